"""Measure how fast synthetic rooms are made, by one process and by one process per core.

    python -m benchmarks.rooms [--rooms 4] [--workers N]

Processes are started and rooms prepared as in a training. Prints scans per second and core seconds per scan
for one process and for N, and both extrapolated to 16 cores. The goal is 20 scans per second on 16 cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import NamedTuple

from benchmarks.common import make_parser, print_machine, print_table, run_command
from wsdesc.learning.sources import make_room, room_makers

GOAL = 20  # scans per second on 16 cores
MIN_SHARE = 0.45  # of the median's surface, below which a training removes points


class Speed(NamedTuple):
    """Speed of several processes."""

    scans: int
    per_second: float  # of all processes together
    core_seconds: float  # per scan; hardly changed by other work on the machine


def make(room: int) -> tuple[int, float]:
    """Make one room; return its number of scans and the core seconds."""
    start = time.process_time()
    return len(make_room(0, room, MIN_SHARE)), time.process_time() - start


def measure(workers: int, rooms: int) -> Speed:
    """Measure processes that make `rooms` rooms each."""
    with room_makers(workers) as pool:
        warm_up = 2 * workers  # imports and compilation do not count; two rooms, as any process may take one
        list(pool.map(make, range(warm_up)))
        start = time.perf_counter()
        made = list(pool.map(make, range(warm_up, warm_up + workers * rooms)))
        seconds = time.perf_counter() - start
    scans = sum(count for count, _ in made)
    return Speed(scans, scans / seconds, sum(core_seconds for _, core_seconds in made) / scans)


def main(arguments: argparse.Namespace) -> None:
    workers = arguments.workers
    single, together = measure(1, arguments.rooms), measure(workers, arguments.rooms)
    print_machine()
    each = together.per_second / workers
    verdict = "reached" if 16 * each >= GOAL else "missed"
    rows = [_row("one process", single), _row(f"{workers} processes", together)]
    rows.append(("  each", f"{each:6.2f} scans/s, {each / single.per_second:.0%} of a single process"))
    rows.append(("16 such cores", f"{16 * each:6.2f} scans/s; goal {GOAL}: {verdict}"))
    rows.append(("16 idle cores", f"{16 / together.core_seconds:6.2f} scans/s, from core seconds"))
    print_table(rows)


def _row(name: str, speed: Speed) -> tuple[str, str]:
    figures = f"{speed.per_second:6.2f} scans/s, {speed.core_seconds:.2f} core seconds per scan"
    return name, f"{figures} (n = {speed.scans})"


def parser() -> argparse.ArgumentParser:
    parser = make_parser("rooms", __doc__)
    parser.add_argument("--rooms", type=int, default=4, help="rooms per process (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
