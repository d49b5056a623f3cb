"""Compare solvers on the matches of a descriptor, by how much the clouds overlap.

    python -m benchmarks.solvers [SCENE …] [--rooms N] --model NAME_OR_PATH

A SCENE holds cloud_bin_0.ply … with their poses cloud_bin_0.info.txt …; --rooms adds N synthetic rooms. Each
fragment is turned at random and described once. Pairs are those of one scene or room that overlap by a tenth
or more, counted in the fragment where it is less. Printed for each class of overlap: the share of pairs, in
percent, whose first motion is right (less than 15° and 0.3 m off), the share where any of the motions is,
and the median time of the solver alone.
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
from scipy.spatial.transform import Rotation
from torch import Tensor

from benchmarks.common import or_explain, percent, print_machine, print_rows, watched
from wsdesc import WSDesc, read_points
from wsdesc.alignment import ransac
from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.hypotheses import ransac_hypotheses
from wsdesc.cloud.sampling import random_sample, voxel_downsample
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import overlap, room_scans
from wsdesc.datasets.threedmatch import find_fragments, read_pose
from wsdesc.evaluation import r2_success
from wsdesc.matching import mutual_matches, nearest

CLASSES = (0.1, 0.3, 0.5, 1.01)  # bounds of the classes of overlap
FIRST_ROOM = 90_000  # seeds of the rooms: none that a training would reach soon
VOXEL = 0.025

Solver = Callable[[Tensor, Tensor], list[Tensor]]  # matched points (M, 3) twice -> motions, best first


class Fragment(NamedTuple):
    """A turned cloud with keypoints and descriptors."""

    points: Tensor  # (N, 3)
    keys: Tensor  # (K, 3)
    features: Tensor  # (K, C)
    T_world_turned: Tensor  # (4, 4) float64


class Outcome(NamedTuple):
    """What a solver made of a pair."""

    first: bool  # its best motion is right
    any: bool  # one of its motions is
    ms: float


def scenes(options: argparse.Namespace) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Of each scene or room the clouds (N, 3) and their T_world_cloud."""
    for folder in options.scenes:
        if not folder.is_dir():
            raise InputError(f"{folder}: there is no such folder")
        files = find_fragments(folder)
        if not files:
            raise InputError(f"{folder}: no cloud_bin_0.ply, cloud_bin_1.ply … here")
        yield [
            (
                torch.from_numpy(read_points(path, nonfinite="drop")),
                torch.from_numpy(read_pose(path.with_suffix(".info.txt"))),
            )
            for path in files.values()
        ]
    for room in range(options.rooms):
        made = room_scans(FIRST_ROOM + room, 5)
        yield [(torch.from_numpy(f.points).double(), torch.from_numpy(f.T_world_scan)) for f in made]


def describe(
    model: WSDesc, points: Tensor, T_world_cloud: Tensor, rng: np.random.Generator, keypoints: int
) -> Fragment:
    """A cloud turned at random, and descriptors of random points of it."""
    turn = torch.eye(4, dtype=torch.float64)
    turn[:3, :3] = torch.from_numpy(Rotation.from_quat(rng.normal(size=4)).as_matrix())
    points = (voxel_downsample(points, VOXEL) @ turn[:3, :3].T).float()
    generator = torch.Generator().manual_seed(int(rng.integers(2**32)))
    keys = points[random_sample(len(points), keypoints, generator)]
    device = next(model.parameters()).device
    features = model(points.to(device), keys.to(device)).cpu()
    return Fragment(points, keys, features, T_world_cloud @ torch.linalg.inv(turn))


def matches_of(source: Fragment, target: Fragment, one_way: bool) -> Tensor:
    """(M, 2): mutual nearest neighbours, or the nearest ones either way."""
    if not one_way:
        return mutual_matches(source.features, target.features)
    to_target, _ = nearest(source.features, target.features)
    to_source, _ = nearest(target.features, source.features)
    forth = torch.stack([torch.arange(len(to_target)), to_target], dim=1)
    back = torch.stack([to_source, torch.arange(len(to_source))], dim=1)
    return torch.unique(torch.cat([forth, back]), dim=0)


def solvers(options: argparse.Namespace) -> dict[str, Solver]:
    threshold, most, seed = options.threshold, options.hypotheses, options.seed

    def once(source: Tensor, target: Tensor) -> list[Tensor]:
        found = ransac(source, target, threshold=threshold, seed=seed)
        return [found.T_target_source] if found.success else []

    def again(source: Tensor, target: Tensor) -> list[Tensor]:
        found = ransac_hypotheses(source, target, threshold=threshold, hypotheses=most, seed=seed)
        return [hypothesis.T_target_source for hypothesis in found]

    def agreed(source: Tensor, target: Tensor) -> list[Tensor]:
        found = consensus(source, target, threshold=threshold, hypotheses=most)
        return [hypothesis.T_target_source for hypothesis in found]

    return {"ransac": once, f"ransac × {most}": again, f"consensus × {most}": agreed}


def judge(solver: Solver, source: Tensor, target: Tensor, truth: Tensor) -> Outcome:
    start = time.perf_counter()
    motions = solver(source, target)
    ms = 1e3 * (time.perf_counter() - start)
    right = [bool(r2_success(T, truth)) for T in motions]
    return Outcome(bool(right) and right[0], any(right), ms)


@torch.inference_mode()
def run(options: argparse.Namespace) -> None:
    """Describe, match, solve, print."""
    model = WSDesc.from_pretrained(options.model, options.device)
    described = []
    for number, clouds in enumerate(scenes(options)):
        rng = np.random.default_rng([options.seed, number])
        items = watched(clouds, f"describe scene {number}")
        described.append([describe(model, *cloud, rng, options.keypoints) for cloud in items])

    tried = solvers(options)
    outcomes: dict[tuple[int, str], list[Outcome]] = {}
    counts: dict[int, list[int]] = {}
    pairs = [pair for fragments in described for pair in combinations(fragments, 2)]
    warm = torch.rand(50, 3, generator=torch.Generator().manual_seed(0))
    for solver in tried.values():
        solver(warm, warm)  # compiles
    for source, target in watched(pairs, "solve"):
        truth = torch.linalg.inv(target.T_world_turned) @ source.T_world_turned
        forth = overlap(source.points, target.points, truth)
        common = min(forth, overlap(target.points, source.points, torch.linalg.inv(truth)))
        kind = int(np.searchsorted(CLASSES, common, side="right")) - 1
        if kind < 0:
            continue
        matches = matches_of(source, target, options.one_way)
        counts.setdefault(kind, []).append(len(matches))
        for name, solver in tried.items():
            outcome = judge(solver, source.keys[matches[:, 0]], target.keys[matches[:, 1]], truth)
            outcomes.setdefault((kind, name), []).append(outcome)
    if not counts:
        raise InputError(f"no two fragments overlap by {CLASSES[0]:g} or more")

    print_machine()
    kind_of_matches = "nearest neighbours either way" if options.one_way else "mutual nearest neighbours"
    print(f"{options.keypoints} keypoints, {kind_of_matches}, threshold {options.threshold:g} m")
    rows = [["overlap", "n", "matches", *(f"{name}: first / any, ms" for name in tried)]]
    for kind in sorted(counts):
        bounds = f"{CLASSES[kind]:g} … {min(1, CLASSES[kind + 1]):g}"
        cells = [cell(outcomes[kind, name]) for name in tried]
        rows.append([bounds, str(len(counts[kind])), f"{statistics.mean(counts[kind]):.0f}", *cells])
    everything = [n for some in counts.values() for n in some]
    cells = [cell([o for kind in counts for o in outcomes[kind, name]]) for name in tried]
    rows.append(["all", str(len(everything)), f"{statistics.mean(everything):.0f}", *cells])
    print_rows(rows)


def cell(outcomes: list[Outcome]) -> str:
    first, some = (float(np.mean([o[k] for o in outcomes])) for k in (0, 1))
    return f"{percent(first)} / {percent(some)}, {statistics.median(o.ms for o in outcomes):.0f}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("scenes", type=Path, nargs="*", help="folders of cloud_bin_k.ply with poses")
    parser.add_argument("--rooms", type=int, default=0, help="synthetic rooms (default: %(default)s)")
    parser.add_argument("--model", required=True, help="weights by name or path")
    parser.add_argument("--keypoints", type=int, default=1000, help="of a fragment (default: %(default)s)")
    parser.add_argument("--one-way", action="store_true", help="match nearest neighbours either way")
    parser.add_argument("--threshold", type=float, default=0.075, help="of an inlier (default: %(default)s)")
    parser.add_argument("--hypotheses", type=int, default=8, help="at most (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if options.keypoints < 1 or options.seed < 0 or options.rooms < 0:
        parser.error("--keypoints must be at least 1, --seed and --rooms not negative")
    if not options.scenes and not options.rooms:
        parser.error("name a SCENE, or give --rooms")
    return options


if __name__ == "__main__":
    sys.exit(or_explain(lambda: run(parse())))
