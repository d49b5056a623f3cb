"""Measure the time of `wsdesc.reconstruct` on the scans of one synthetic building, step by step.

    python -m benchmarks.site_time [--scans 45] [--points 40000] [--jobs 8] [--device cuda] [--repeats 2]

Makes scans of a building by a laser scanner with 64 lines, chooses so many points of each, and reconstructs
them. No run uses results of another one. The first run compiles kernels and starts the processes, which the
following runs use again. With `--write DIR`, the scans are written there and nothing is reconstructed, for
example to time `wsdesc adapt DIR`.
Prints, for each run: seconds of all steps and of the whole call, placed scans, and wrong edges.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.common import make_parser, print_machine, print_rows, run_command
from benchmarks.known_scans import PlacedScan, count_wrong, write_shuffled
from wsdesc import reconstruct
from wsdesc.core.executors import choose_executor
from wsdesc.core.progress import Advance
from wsdesc.datasets.synthetic import site_scans

SITE, SENSOR, SEED, OVERLAPS = "building", "lidar64", 9105, (0.3, 0.8)


def make_scans(count: int, points: int) -> list[PlacedScan]:
    """Scan the building, and choose points of each scan at random."""
    rng = np.random.default_rng(0)
    made = site_scans(SITE, SEED, count, SENSOR, OVERLAPS)
    chosen = [rng.permutation(len(scan.points))[:points] for scan in made]
    return [(SITE, scan.T_world_scan, scan.points[rows]) for scan, rows in zip(made, chosen, strict=True)]


@contextmanager
def add_time(seconds: dict[str, float], step: str, total: int = 0) -> Iterator[Advance]:
    """Progress hook that adds the time of a step to `seconds`."""
    start = time.perf_counter()
    yield lambda items: None
    seconds[step] += time.perf_counter() - start


def main(arguments: argparse.Namespace) -> None:
    """Reconstruct the scans repeatedly, and print one column per run; or write the scans."""
    scans = make_scans(arguments.scans, arguments.points)
    if arguments.write is not None:
        arguments.write.mkdir(parents=True, exist_ok=True)
        write_shuffled(arguments.write, scans, SEED, moved=False)
        return
    columns: list[dict[str, str]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(choose_executor(arguments.jobs, device=arguments.device)) as executor,
    ):
        truth = write_shuffled(Path(folder), scans, SEED, moved=False)
        for _ in range(arguments.repeats):
            seconds: dict[str, float] = defaultdict(float)
            measure = partial(add_time, seconds)
            with measure("all"):
                result = reconstruct(folder, device=arguments.device, executor=executor, progress=measure)
            accepted = [edge for edge in result.edges if edge.rejection is None]
            columns.append({step: f"{value:.1f}" for step, value in seconds.items()})
            columns[-1] |= {"placed": str(len(result.T_world_scan)), "accepted edges": str(len(accepted))}
            columns[-1]["wrong edges"] = str(count_wrong(truth, accepted))
    print_machine()
    names = list(dict.fromkeys(name for column in columns for name in column))
    print_rows([["s", *(f"run {k + 1}" for k in range(len(columns)))]]
               + [[name, *(column.get(name, "–") for column in columns)] for name in names])  # fmt: skip


if __name__ == "__main__":
    parser = make_parser("site_time", __doc__)
    parser.add_argument("--scans", type=int, default=45, help="number of scans (default: %(default)s)")
    parser.add_argument("--points", type=int, default=40_000, help="points per scan (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=2, help="runs (default: %(default)s)")
    parser.add_argument("--write", type=Path, metavar="DIR", help="folder for the scans; nothing is timed")
    sys.exit(run_command(parser, main))
