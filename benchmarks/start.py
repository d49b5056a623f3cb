"""Measure what a user waits for: first start, second start, a pair that convinces, and a pair that does not.

    python -m benchmarks.start [A.ply B.ply C.ply D.ply …] [--miss A.ply X.ply] [--cores 2] [--repeats 3]

Files come in pairs, source and target; without any, synthetic rooms are registered. `--miss` names a pair
without overlap. A first start is `wsdesc register` of the first pair with an empty cache of compiled kernels,
a second start the same command again. The last two figures are calls of `wsdesc.register` in one process,
after a call that warms up. Run it on an idle machine; CPU seconds depend less on other work.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.common import files_in_pairs, make_parser, print_machine, print_rows, run_command
from wsdesc import read_points, register, write_points
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import room_pair

Files = tuple[Path, Path]  # source and target


class Seconds(NamedTuple):
    """Time of a process or of a call."""

    wall: float
    cpu: float  # of all its threads, without helper processes; 0 on Windows


def time_command(arguments: list[str], cache: Path) -> Seconds:
    """Measure a Python process from start to end, with a folder for compiled kernels."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    start, before = time.perf_counter(), os.times()
    run = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    seconds, after = time.perf_counter() - start, os.times()
    if run.returncode not in (0, 1):  # 1: no success
        raise InputError(f"{' '.join(arguments)} failed: {run.stderr.strip()[-500:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Seconds(seconds, cpu)


def time_starts(pair: Files, repeats: int) -> tuple[list[Seconds], list[Seconds]]:
    """Measure first and second starts of `wsdesc register`."""
    command = ["-m", "wsdesc", "register", *map(str, pair), "--device", "cpu"]
    first, second = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            first.append(time_command(command, Path(folder)))
            time_command(command, Path(folder))  # helpers of the first start may still compile
            second.append(time_command(command, Path(folder)))
    return first, second


def time_calls(pairs: list[Files], repeats: int) -> tuple[list[Seconds], int]:
    """Return the medians of calls of `wsdesc.register` of each pair, and the number of successes."""
    seconds, successes = [], 0
    for files in pairs:
        clouds = [read_points(path, nonfinite="drop") for path in files]
        successes += register(*clouds, device="cpu").success
        times = []
        for _ in range(repeats):
            start, before = time.perf_counter(), time.process_time()
            register(*clouds, device="cpu")
            times.append(Seconds(time.perf_counter() - start, time.process_time() - before))
        seconds.append(Seconds(*map(statistics.median, zip(*times, strict=True))))
    return seconds, successes


def write_rooms(folder: Path, seeds: list[int]) -> list[Files]:
    """Write pairs of scans of synthetic rooms."""
    pairs = []
    for seed in seeds:
        room = room_pair(seed)
        files = (folder / f"{seed}_source.ply", folder / f"{seed}_target.ply")
        for path, points in zip(files, (room.source, room.target), strict=True):
            write_points(path, np.asarray(points, float))
        pairs.append(files)
    return pairs


def main(arguments: argparse.Namespace) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    torch.set_num_threads(arguments.cores)
    with tempfile.TemporaryDirectory() as folder:
        pairs = [(Path(a), Path(b)) for a, b in files_in_pairs(arguments.scans)]
        pairs = pairs or write_rooms(Path(folder), list(range(11, 11 + arguments.rooms)))
        miss = tuple(arguments.miss) if arguments.miss else (pairs[0][0], pairs[-1][1])
        first, second = time_starts(pairs[0], arguments.repeats)
        with tempfile.TemporaryDirectory() as cache:
            imports = [
                time_command(["-c", "import wsdesc.registration.pipeline"], Path(cache))
                for _ in range(arguments.repeats)
            ]
        overlapping, successes = time_calls(pairs, arguments.repeats)
        missed, false_successes = time_calls([miss], arguments.repeats)
    print_machine()
    print_rows(
        [
            ["", "median s", "CPU s", "n"],
            ["first start, nothing compiled", *_medians(first), f"{len(first)} starts"],
            ["second start", *_medians(second), f"{len(second)} starts"],
            ["of these: import of libraries", *_medians(imports), f"{len(imports)} starts"],
            [
                "call, overlapping pairs",
                *_medians(overlapping),
                f"{successes} of {len(pairs)} succeed",
            ],
            ["call, a pair without overlap", *_medians(missed), f"{false_successes} of 1 succeed"],
        ]
    )


def _medians(measured: list[Seconds]) -> list[str]:
    return [f"{statistics.median(values):.2f}" for values in zip(*measured, strict=True)]


def parser() -> argparse.ArgumentParser:
    parser = make_parser("start", __doc__)
    parser.add_argument("scans", type=Path, nargs="*", help="source, target, source, target, …")
    parser.add_argument("--miss", type=Path, nargs=2, help="source and target without overlap")
    parser.add_argument("--cores", type=int, default=2, help="cores to use (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=3, help="starts, and calls per pair (default: %(default)s)"
    )
    parser.add_argument("--rooms", type=int, default=4, help="synthetic pairs, if no scans are given")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
