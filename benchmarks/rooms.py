"""How fast synthetic rooms are made: fragments per second, by one process and by one on each core.

    python -m benchmarks.rooms [--rooms 4] [--workers N]      rooms for each process; default: one a core

The goal is 20 fragments a second on 16 cores. Processes are spawned and rooms made ready as in a training.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import NamedTuple

from benchmarks.common import print_machine, print_table
from wsdesc.learning.sources import make_room, room_makers

GOAL = 20  # fragments a second on 16 cores
SHARE = 0.45  # of the median's surface, below which a training drops points


class Speed(NamedTuple):
    """What some processes made."""

    fragments: int
    per_second: float  # of all processes together
    seconds: float  # of a core, for one fragment; others on the machine do not change it


def make(room: int) -> tuple[int, float]:
    """Make one room; how many fragments it gave, and the time of a core it took."""
    start = time.process_time()
    return len(make_room(0, room, SHARE)), time.process_time() - start


def measure(workers: int, rooms: int) -> Speed:
    """So many processes at work, on `rooms` rooms each."""
    with room_makers(workers) as pool:
        warm = 2 * workers  # imports and kernels are no part of it; two each, since nobody says who takes one
        list(pool.map(make, range(warm)))
        start = time.perf_counter()
        made = list(pool.map(make, range(warm, warm + workers * rooms)))
        passed = time.perf_counter() - start
    count = sum(fragments for fragments, _ in made)
    return Speed(count, count / passed, sum(seconds for _, seconds in made) / count)


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--rooms", type=int, default=4)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    workers = arguments.workers
    alone, together = measure(1, arguments.rooms), measure(workers, arguments.rooms)
    print_machine()
    each = together.per_second / workers
    verdict = "reached" if 16 * each >= GOAL else "missed"
    rows = [_row("one process", alone), _row(f"{workers} processes", together)]
    rows.append(("  each", f"{each:6.2f} fragments/s, {each / alone.per_second:.0%} of one alone"))
    rows.append(("16 such cores", f"{16 * each:6.2f} fragments/s; goal {GOAL}: {verdict}"))
    rows.append(("16 of them idle", f"{16 / together.seconds:6.2f} fragments/s, by the time of a core"))
    print_table(rows)
    return 0


def _row(name: str, speed: Speed) -> tuple[str, str]:
    figures = f"{speed.per_second:6.2f} fragments/s, {speed.seconds:.2f} s of a core each"
    return name, f"{figures} (n = {speed.fragments})"


if __name__ == "__main__":
    sys.exit(main())
