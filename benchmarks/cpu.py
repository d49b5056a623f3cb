"""Time the CPU code and compare the times with their bounds.

    python -m benchmarks.cpu [SCAN]        a scan of 10–20 thousand points; default: a synthetic room

Prints the load of the machine and each time with its bound. The exit code is 1 if a bound is exceeded. The
machine must be idle: with a busy core, threads wait for each other, and a grid of 2 ms takes 300 ms.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.common import make_parser, print_machine, print_table, read_scan_or_room, run_command
from wsdesc import WSDesc, local_frames, voxelize
from wsdesc.alignment import ransac
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points, random_sample
from wsdesc.evaluation.stopwatch import median_ms
from wsdesc.matching import mutual_matches

SUPPORT = 1.1  # metres, close to the support of the trained weights

IMPORT = "import wsdesc; [getattr(wsdesc, name) for name in wsdesc.__all__]"
PIPELINE = """
import torch
from wsdesc import WSDesc, alignment as align, matching as match
generator = torch.Generator().manual_seed(0)
points = torch.rand(5000, 3, generator=generator) * torch.tensor([3.0, 3.0, 0.5])
model, keypoints = WSDesc(width=0.25).eval(), points[:64]
with torch.inference_mode():
    described = model(points, keypoints)
pairs = match.mutual_matches(described, described)
assert align.ransac(keypoints[pairs[:, 0]], keypoints[pairs[:, 1]]).success
"""


@dataclass
class Row:
    """A measured time and its bound; None is for information only."""

    name: str
    value: float
    unit: str
    bound: float | None = None

    @property
    def good(self) -> bool:
        return self.bound is None or self.value < self.bound

    def __str__(self) -> str:
        bound = (
            ""
            if self.bound is None
            else f"< {self.bound:4g} {self.unit:<3} {'ok' if self.good else 'EXCEEDED'}"
        )
        return f"{self.value:9.2f} {self.unit:<3} {bound}".rstrip()


def with_far_points(scan: Tensor) -> Tensor:
    """Add four copies of the scan, far from it and from each other."""
    away = 3 * float((scan.amax(0) - scan.amin(0)).amax()) + 10
    return torch.cat([scan + torch.tensor([step * away, 0.0, 0.0]) for step in range(5)])


def alternate(*works: Callable[[], object], rounds: int = 9) -> list[float]:
    """Measure medians in ms of alternating calls, so that a slow moment affects all of them."""
    times = [[median_ms(work, 1, 0) for work in works] for _ in range(rounds + 1)][1:]
    return [statistics.median(column) for column in zip(*times, strict=True)]


@torch.inference_mode()
def time_description(scan: Tensor) -> list[Row]:
    """Time voxels and network of the same 1 000 keypoints."""
    keypoints = scan[random_sample(len(scan), 1000)]
    many = scan[random_sample(len(scan), 5000)]
    far = with_far_points(scan)
    frames = local_frames(scan, keypoints).frames
    torch.manual_seed(0)
    model = WSDesc().eval()
    grids = voxelize(scan, keypoints, frames, SUPPORT)
    voxels, among_more = alternate(
        lambda: voxelize(scan, keypoints, frames, SUPPORT), lambda: voxelize(far, keypoints, frames, SUPPORT)
    )
    network = median_ms(lambda: model.describe(grids), 3, 1)
    return [
        Row("neighbour grid", median_ms(lambda: NeighbourGrid.of(scan), 7, 1), "ms"),
        Row("frames, K = 5000", median_ms(lambda: local_frames(scan, many), 5, 1), "ms", 1000),
        Row("voxelization, K = 1000", voxels, "ms"),
        Row("network, K = 1000", network, "ms"),
        Row("voxelization / network", 100 * voxels / network, "%", 10),
        Row("voxelization with four times the points added far away", among_more, "ms"),
        Row("  more time", 100 * (among_more / voxels - 1), "%", 15),
    ]


def time_matching(scan: Tensor) -> list[Row]:
    """Time sampling, matching and RANSAC."""
    generator = torch.Generator().manual_seed(0)
    features = torch.nn.functional.normalize(torch.randn(2, 5000, 32, generator=generator), dim=2)
    p = scan[random_sample(len(scan), 1000)]
    q = torch.where(
        torch.rand(len(p), 1, generator=generator) < 0.1, p, p.flip(0)
    )  # 10 % of the matches are correct

    def all_samples() -> object:
        return ransac(p, q, iterations=50_000, confidence=1)

    return [
        Row("farthest points, 512", median_ms(lambda: farthest_points(scan, 512), 7, 1), "ms"),
        Row("mutual matches, 5000 × 5000", median_ms(lambda: mutual_matches(*features), 7, 1), "ms"),
        Row("RANSAC, 50 000 samples of 1000 matches", median_ms(all_samples, 5, 1), "ms"),
    ]


def seconds(code: list[str], **environment: str) -> float:
    """Measure the wall-clock time of a new Python process."""
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, *code], env={**os.environ, **environment}, capture_output=True, text=True
    )
    if run.returncode != 0:
        raise RuntimeError(f"{code} failed: {run.stderr}")
    return time.perf_counter() - start


def time_starts() -> list[Row]:
    """Time imports, help and first calls in new processes; best of three where nothing is compiled."""
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = (seconds(["-c", PIPELINE], XDG_CACHE_HOME=cache) for _ in range(2))
    return [
        Row("import wsdesc with all public names", min(seconds(["-c", IMPORT]) for _ in range(3)), "s", 3),
        Row("wsdesc --help", min(seconds(["-m", "wsdesc", "--help"]) for _ in range(3)), "s", 1),
        Row("describe, match, RANSAC: first start, kernels compiled", cold, "s", 20),
        Row("  second start", warm, "s"),
    ]


def main(arguments: argparse.Namespace) -> bool:
    scan = read_scan_or_room(arguments.scan)
    print_machine()
    load = os.getloadavg()[0]
    print(f"{len(scan)} points, {torch.get_num_threads()} threads, load {load:.2f} before the start")
    if load > 0.5:
        print("warning: the machine is not idle, these times are not reliable")
    # New processes first: the threads of this one would still be awake.
    rows = [*time_starts(), *time_description(scan), *time_matching(scan)]
    print_table([(row.name, str(row)) for row in rows])
    passed = all(row.good for row in rows)
    print("all times are within their bounds" if passed else "SOME TIMES EXCEED THEIR BOUNDS")
    return passed


def parser() -> argparse.ArgumentParser:
    parser = make_parser("cpu", __doc__)
    parser.add_argument("scan", type=Path, nargs="?", help="file of a scan (default: a synthetic room)")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
