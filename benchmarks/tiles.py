"""Measure memory and time of merging scans into tiles on disk.

    python -m benchmarks.tiles [--points 50000000] [--scans 50] [--work DIR]

Synthetic scans of a wavy ground, 400 points per square metre with intensity and colours, are written
as LAS, one after the other, and merged in a new process. Its peak memory covers reading, sorting and writing.

Prints the points before and after merging, the tiles, the time, the peak memory, and the largest disk space.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.common import make_parser, print_machine, print_table, run_command
from benchmarks.reconstruct import working_folder
from wsdesc import write_points

MAX_GIGABYTES = 4
VOXEL = 0.05  # metres
DENSITY = 400  # points per square metre

MERGE = """
import json, sys
from pathlib import Path
import numpy as np
from wsdesc.cloud.tiles import PlacedScan, merge_into_tiles
folder, voxel = Path(sys.argv[1]), float(sys.argv[2])
scans = []
for path in sorted(folder.glob("scan_*.las")):
    T = np.eye(4)
    T[:3, 3] = json.loads(path.with_suffix(".json").read_text())
    scans.append(PlacedScan(path, T))
result = merge_into_tiles(scans, folder / "tiles", voxel=voxel)
print(json.dumps([len(result.files), result.points, result.merged]))
"""


def write_scans(folder: Path, points: int, scans: int) -> None:
    """Write scans along a road, each overlapping the next one by half, with their positions in the world."""
    share = points // scans
    side = (share / DENSITY) ** 0.5
    for k in range(scans):
        path = folder / f"scan_{k:04d}.las"
        if path.with_suffix(".json").exists():
            continue
        rng = np.random.default_rng(k)
        xy = rng.uniform(0, side, (share, 2))
        ground = np.sin(0.3 * (xy[:, 0] + k * side / 2)) + rng.normal(0, 0.005, share)
        colours = {name: rng.integers(0, 65_535, share, np.uint16) for name in ("red", "green", "blue")}
        attributes = {"intensity": rng.integers(0, 65_535, share, np.uint16)} | colours
        write_points(path, np.c_[xy, ground], attributes)
        path.with_suffix(".json").write_text(json.dumps([448_000 + k * side / 2, 5_411_000.0, 300.0]))


def main(arguments: argparse.Namespace) -> bool:
    """Write the scans, merge them, and compare the memory with the limit."""
    with working_folder(arguments.work) as folder:
        write_scans(folder, arguments.points, arguments.scans)
        start, largest = time.perf_counter(), 0
        process = subprocess.Popen(
            [sys.executable, "-c", MERGE, str(folder), str(VOXEL)], stdout=subprocess.PIPE, text=True
        )
        while process.poll() is None:
            largest = max(largest, _bytes_below(folder / "tiles"))
            time.sleep(1)
        seconds = time.perf_counter() - start
        assert process.stdout is not None
        files, after, before = json.loads(process.stdout.read())
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    gigabytes = usage.ru_maxrss / 2**20
    print_machine()
    print_table(
        [
            ("points", f"{before:,} before merging, {after:,} after, in {files} tiles"),
            ("time", f"{seconds:.0f} s, {usage.ru_utime + usage.ru_stime:.0f} core seconds"),
            ("peak memory", f"{gigabytes:.2f} GiB; limit {MAX_GIGABYTES}"),
            ("disk", f"{largest / 1e9:.1f} GB of parts and tiles at most"),
        ]
    )
    return gigabytes <= MAX_GIGABYTES


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:  # removed meanwhile
            continue
    return total


def parser() -> argparse.ArgumentParser:
    """Make the parser of the arguments."""
    top = make_parser("tiles", __doc__)
    top.add_argument("--points", type=int, default=50_000_000)
    top.add_argument("--scans", type=int, default=50)
    top.add_argument("--work", type=Path)
    return top


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
