"""Measure memory and time of `wsdesc register` on two scans with millions of points.

    python -m benchmarks.big [--points 10000000]

Two scans of a synthetic room are made denser with a millimetre of noise and written as ply. The command
registers them in a separate process, so that its peak memory includes only reading and registering.
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

from benchmarks.common import print_machine, print_table
from wsdesc import read_points, write_points
from wsdesc.core.geometry import transform
from wsdesc.datasets.synthetic import room_pair


def dense(points: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Sample points (count, 3) float32 around the given ones."""
    rng = np.random.default_rng(seed)
    chosen = points[rng.integers(len(points), size=count)]
    return chosen + rng.normal(0, 0.001, (count, 3)).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=10_000_000, help="points per scan")
    count = parser.parse_args().points
    pair = room_pair(0)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "source.ply", Path(folder) / "target.ply"]
        for seed, (file, points) in enumerate(zip(files, (pair.source, pair.target), strict=True)):
            write_points(file, dense(points, count, seed))
        start = time.perf_counter()
        read_points(files[0])
        reading = 2 * (time.perf_counter() - start)
        start = time.perf_counter()
        command = [sys.executable, "-m", "wsdesc", "register", *map(str, files), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - start
    result = json.loads(done.stdout)
    T = np.array(result["T_target_source"])
    moved, expected = (transform(pair.source, M) for M in (T, np.asarray(pair.T_target_source)))
    print_machine()
    print_table(
        [
            ("points per scan", f"{count:,}"),
            (
                "peak memory",
                f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20:.2f} GiB (limit 4)",
            ),
            ("whole command", f"{seconds:.1f} s"),
            ("reading both files only", f"{reading:.1f} s"),
            ("steps", ", ".join(f"{name} {value:.1f} s" for name, value in result["timings"].items())),
            ("largest point error", f"{np.linalg.norm(moved - expected, axis=1).max():.3f} m"),
            ("confidence", f"{result['confidence']:.3f}"),
        ]
    )


if __name__ == "__main__":
    main()
