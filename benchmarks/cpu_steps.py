"""Measure the CPU time of `wsdesc.register` step by step. It depends less on other work than the wall time.

    python -m benchmarks.cpu_steps A.ply B.ply [C.ply D.ply …] [--repeats 3]

Files come in pairs, source and target. Each pair is registered once to warm up and then `--repeats` times; of
these, the call with the least CPU time counts. Prints the mean of each step over all pairs, and the mean and
the single values of whole calls, in milliseconds of all threads.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.common import files_in_pairs, make_parser, print_machine, print_rows, run_command
from wsdesc import read_points, register
from wsdesc.core.progress import Advance

Steps = dict[str, float]  # CPU seconds by name; "all" is the whole call


def time_steps(source: np.ndarray, target: np.ndarray) -> Steps:
    """Measure one registration."""
    steps: Steps = {}

    @contextmanager
    def measure(name: str, total: int) -> Iterator[Advance]:
        start = time.process_time()
        yield lambda items: None
        steps[name] = steps.get(name, 0.0) + time.process_time() - start

    start = time.process_time()
    register(source, target, device="cpu", progress=measure)
    return {**steps, "all": time.process_time() - start}


def main(arguments: argparse.Namespace) -> None:
    measured = []
    for files in files_in_pairs(arguments.scans):
        clouds = [read_points(path, nonfinite="drop") for path in files]
        register(*clouds, device="cpu")
        calls = [time_steps(*clouds) for _ in range(arguments.repeats)]
        measured.append(min(calls, key=lambda steps: steps["all"]))
    names = dict.fromkeys(name for steps in measured for name in steps if name != "all")
    means = {name: statistics.mean(steps.get(name, 0.0) for steps in measured) for name in [*names, "all"]}
    print_machine()
    print_rows([["step", "CPU ms"], *([name, f"{1e3 * mean:.1f}"] for name, mean in means.items())])
    print("all, pair by pair:", " ".join(f"{1e3 * steps['all']:.0f}" for steps in measured))


if __name__ == "__main__":
    parser = make_parser("cpu_steps", __doc__)
    parser.add_argument("scans", type=Path, nargs="+", help="source, target, source, target, …")
    parser.add_argument("--repeats", type=int, default=3, help="calls per pair (default: %(default)s)")
    sys.exit(run_command(parser, main))
