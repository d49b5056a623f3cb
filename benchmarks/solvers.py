"""Compare pose solvers on the matches of a descriptor, by the overlap of the scans.

    python -m benchmarks.solvers [SCENE …] [--rooms N] --model NAME_OR_PATH

A SCENE holds cloud_bin_0.ply … with their poses cloud_bin_0.info.txt …; --rooms adds N synthetic rooms. Each
scan is rotated at random and described once. Pairs are scans of one scene or room with an overlap of at least
10 %, counted in the scan where it is smaller.

Prints, for each range of overlap: the number of pairs, the mean number of matches, and for each solver the
percentage of pairs whose first pose is correct (within 15° and 0.3 m), the percentage where any pose is
correct, and the median time of the solver in ms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import (
    make_parser,
    percent,
    print_machine,
    print_rows,
    random_rotation,
    run_command,
    show_progress,
)
from wsdesc import WSDesc, read_points
from wsdesc.alignment import ransac
from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.hypotheses import ransac_hypotheses
from wsdesc.cloud.sampling import random_sample, voxel_downsample
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import rotate
from wsdesc.datasets.synthetic import overlap, room_scans
from wsdesc.datasets.threedmatch import find_fragments, read_pose
from wsdesc.evaluation import r2_success
from wsdesc.matching import mutual_matches, nearest

OVERLAPS = (0.1, 0.3, 0.5, 1.01)  # bounds of the ranges of overlap
FIRST_ROOM = 90_000  # seed of the first room; unused in training
VOXEL = 0.025  # metres

Solver = Callable[[Tensor, Tensor], list[Tensor]]  # matched points (M, 3) twice -> poses, best first


class RotatedScan(NamedTuple):
    """A rotated scan with keypoints and descriptors."""

    points: Tensor  # (N, 3)
    keypoints: Tensor  # (K, 3)
    descriptors: Tensor  # (K, C)
    T_world_scan: Tensor  # (4, 4) float64


class Outcome(NamedTuple):
    """Result of a solver on one pair."""

    first: bool  # the best pose is correct
    any: bool  # one of the poses is correct
    ms: float


def read_scenes(arguments: argparse.Namespace) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Yield points (N, 3) and T_world_scan of all scans, for each scene and room."""
    for folder in arguments.scenes:
        files = find_fragments(folder) if folder.is_dir() else {}
        if not files:
            raise InputError(f"{folder}: expected a folder of cloud_bin_0.ply, cloud_bin_1.ply, …")
        yield [
            (
                torch.from_numpy(read_points(path, nonfinite="drop")),
                torch.from_numpy(read_pose(path.with_suffix(".info.txt"))),
            )
            for path in files.values()
        ]
    for room in range(arguments.rooms):
        scans = room_scans(FIRST_ROOM + room, 5)
        yield [(torch.from_numpy(s.points).double(), torch.from_numpy(s.T_world_scan)) for s in scans]


def describe(
    model: WSDesc, points: Tensor, T_world_scan: Tensor, rng: np.random.Generator, keypoints: int
) -> RotatedScan:
    """Rotate a scan at random and describe random points of it."""
    T_rotated_scan = torch.from_numpy(random_rotation(rng))
    points = rotate(voxel_downsample(points, VOXEL), T_rotated_scan).float()
    generator = torch.Generator().manual_seed(int(rng.integers(2**32)))
    chosen = points[random_sample(len(points), keypoints, generator)]
    device = next(model.parameters()).device
    descriptors = model(points.to(device), chosen.to(device)).cpu()
    return RotatedScan(points, chosen, descriptors, T_world_scan @ torch.linalg.inv(T_rotated_scan))


def find_matches(source: RotatedScan, target: RotatedScan, one_way: bool) -> Tensor:
    """Find matches (M, 2): mutual nearest neighbours, or nearest neighbours in either direction."""
    if not one_way:
        return mutual_matches(source.descriptors, target.descriptors)
    to_target, _ = nearest(source.descriptors, target.descriptors)
    to_source, _ = nearest(target.descriptors, source.descriptors)
    forward = torch.stack([torch.arange(len(to_target)), to_target], dim=1)
    backward = torch.stack([to_source, torch.arange(len(to_source))], dim=1)
    return torch.unique(torch.cat([forward, backward]), dim=0)


def make_solvers(arguments: argparse.Namespace) -> dict[str, Solver]:
    """Return the solvers by name."""
    threshold, count, seed = arguments.threshold, arguments.hypotheses, arguments.seed

    def solve_ransac(source: Tensor, target: Tensor) -> list[Tensor]:
        result = ransac(source, target, threshold=threshold, seed=seed)
        return [result.T_target_source] if result.success else []

    def solve_ransac_hypotheses(source: Tensor, target: Tensor) -> list[Tensor]:
        hypotheses = ransac_hypotheses(source, target, threshold=threshold, hypotheses=count, seed=seed)
        return [hypothesis.T_target_source for hypothesis in hypotheses]

    def solve_consensus(source: Tensor, target: Tensor) -> list[Tensor]:
        hypotheses = consensus(source, target, threshold=threshold, hypotheses=count)
        return [hypothesis.T_target_source for hypothesis in hypotheses]

    return {
        "ransac": solve_ransac,
        f"ransac × {count}": solve_ransac_hypotheses,
        f"consensus × {count}": solve_consensus,
    }


def score(solver: Solver, source: Tensor, target: Tensor, T_true: Tensor) -> Outcome:
    """Time a solver on matched points and compare its poses with the true one."""
    start = time.perf_counter()
    poses = solver(source, target)
    ms = 1e3 * (time.perf_counter() - start)
    right = [bool(r2_success(T, T_true)) for T in poses]
    return Outcome(bool(right) and right[0], any(right), ms)


@torch.inference_mode()
def main(arguments: argparse.Namespace) -> None:
    if not arguments.scenes and not arguments.rooms:
        raise InputError("no data: name a SCENE, or pass --rooms")
    model = WSDesc.from_pretrained(arguments.model, arguments.device)
    described = []
    for number, scans in enumerate(read_scenes(arguments)):
        rng = np.random.default_rng([arguments.seed, number])
        bar = show_progress(scans, f"describe scene {number}")
        described.append([describe(model, *scan, rng, arguments.keypoints) for scan in bar])

    solvers = make_solvers(arguments)
    outcomes: dict[tuple[int, str], list[Outcome]] = {}
    counts: dict[int, list[int]] = {}
    pairs = [pair for scans in described for pair in combinations(scans, 2)]
    sample = torch.rand(50, 3, generator=torch.Generator().manual_seed(0))
    for solver in solvers.values():
        solver(sample, sample)  # compile
    for source, target in show_progress(pairs, "solve"):
        T_true = torch.linalg.inv(target.T_world_scan) @ source.T_world_scan
        forward = overlap(source.points, target.points, T_true)
        shared = min(forward, overlap(target.points, source.points, torch.linalg.inv(T_true)))
        group = int(np.searchsorted(OVERLAPS, shared, side="right")) - 1
        if group < 0:
            continue
        matches = find_matches(source, target, arguments.one_way)
        counts.setdefault(group, []).append(len(matches))
        for name, solver in solvers.items():
            p, q = source.keypoints[matches[:, 0]], target.keypoints[matches[:, 1]]
            outcomes.setdefault((group, name), []).append(score(solver, p, q, T_true))
    if not counts:
        raise InputError(f"no two scans have an overlap of {OVERLAPS[0]:g} or more")

    print_machine()
    kind = "nearest neighbours in either direction" if arguments.one_way else "mutual nearest neighbours"
    print(f"{arguments.keypoints} keypoints, {kind}, threshold {arguments.threshold:g} m")
    rows = [["overlap", "n", "matches", *(f"{name}: first / any, ms" for name in solvers)]]
    for group in sorted(counts):
        bounds = f"{OVERLAPS[group]:g} … {min(1, OVERLAPS[group + 1]):g}"
        cells = [cell(outcomes[group, name]) for name in solvers]
        rows.append([bounds, str(len(counts[group])), f"{statistics.mean(counts[group]):.0f}", *cells])
    all_counts = [n for group in counts.values() for n in group]
    cells = [cell([o for group in counts for o in outcomes[group, name]]) for name in solvers]
    rows.append(["all", str(len(all_counts)), f"{statistics.mean(all_counts):.0f}", *cells])
    print_rows(rows)


def cell(outcomes: list[Outcome]) -> str:
    """Format the outcomes of a solver."""
    first = float(np.mean([outcome.first for outcome in outcomes]))
    any_right = float(np.mean([outcome.any for outcome in outcomes]))
    ms = statistics.median(outcome.ms for outcome in outcomes)
    return f"{percent(first)} / {percent(any_right)}, {ms:.0f}"


def parser() -> argparse.ArgumentParser:
    parser = make_parser("solvers", __doc__)
    parser.add_argument("scenes", type=Path, nargs="*", help="folders of cloud_bin_k.ply with poses")
    parser.add_argument("--rooms", type=int, default=0, help="synthetic rooms (default: %(default)s)")
    parser.add_argument("--model", required=True, help="weights by name or path")
    parser.add_argument("--keypoints", type=int, default=1000, help="per scan (default: %(default)s)")
    parser.add_argument("--one-way", action="store_true", help="nearest neighbours in either direction")
    parser.add_argument(
        "--threshold", type=float, default=0.075, help="inlier distance (default: %(default)s)"
    )
    parser.add_argument("--hypotheses", type=int, default=8, help="largest number (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the rotations (default: %(default)s)")
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda"
    )
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
