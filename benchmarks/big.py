"""Measure memory and time of `wsdesc register` on two scans of millions of points.

    python -m benchmarks.big [--points 10000000]

Scans of a synthetic room, whose points are repeated with 1 mm of noise, are written as PLY and registered by
the command in a new process. Its peak memory covers reading and registering, and nothing else.

Prints peak memory, the time of the command, of reading both files and of each step, the largest displacement
of a point from its true position, and the confidence.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import make_parser, print_machine, print_table, run_command
from wsdesc import read_points, write_points
from wsdesc.core.errors import WSDescError
from wsdesc.core.geometry import transform
from wsdesc.datasets.synthetic import room_pair

MAX_GIGABYTES = 4


def make_dense(points: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Repeat points with noise: (count, 3) float32."""
    rng = np.random.default_rng(seed)
    chosen = points[rng.integers(len(points), size=count)]
    return chosen + rng.normal(0, 0.001, (count, 3)).astype(np.float32)


def main(arguments: argparse.Namespace) -> None:
    pair = room_pair(0)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "source.ply", Path(folder) / "target.ply"]
        for seed, (file, points) in enumerate(zip(files, (pair.source, pair.target), strict=True)):
            write_points(file, make_dense(points, arguments.points, seed))
        start = time.perf_counter()
        read_points(files[0])
        reading = 2 * (time.perf_counter() - start)
        start = time.perf_counter()
        command = [sys.executable, "-m", "wsdesc", "register", *map(str, files), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - start
    if done.returncode not in (0, 1):
        raise WSDescError(f"wsdesc register failed: {done.stderr.strip()}")
    result = json.loads(done.stdout)
    T, T_true = np.array(result["T_target_source"]), np.asarray(pair.T_target_source)
    moved, true = transform(pair.source, T), transform(pair.source, T_true)
    gigabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print_machine()
    print_table(
        [
            ("points per scan", f"{arguments.points:,}"),
            ("peak memory", f"{gigabytes:.2f} GiB (bound {MAX_GIGABYTES})"),
            ("whole command", f"{seconds:.1f} s"),
            ("reading both files", f"{reading:.1f} s"),
            ("steps", ", ".join(f"{name} {value:.1f} s" for name, value in result["timings"].items())),
            ("largest displacement", f"{np.linalg.norm(moved - true, axis=1).max():.3f} m"),
            ("confidence", f"{result['confidence']:.3f}"),
        ]
    )


def parser() -> argparse.ArgumentParser:
    parser = make_parser("big", __doc__)
    parser.add_argument(
        "--points", type=int, default=10_000_000, help="points per scan (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
