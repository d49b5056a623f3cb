"""Judge a descriptor on a scene with known poses, in the layout of 3DMatch.

    python benchmarks/descriptor.py SCENE EVALUATION [EVALUATION …] --model NAME_OR_PATH

SCENE holds cloud_bin_0.ply, cloud_bin_1.ply …, an EVALUATION gt.log and, for R1, gt.info. Each fragment is
described once; putative matches are mutual nearest neighbours. Printed for each evaluation and for all pairs
together, in percent: the inlier ratio (τ1 = 0.1 m), feature-match recall at τ2 = 0.05 and 0.2 and, with
--ransac, registration recall by R1 (pairs j − i > 1) and by R2 (all pairs), each with its n.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from common import or_explain, print_machine, watched
from wsdesc import WSDesc, read_points
from wsdesc.align import ransac
from wsdesc.cloud.sampling import random_sample, voxel_downsample
from wsdesc.datasets.threedmatch import read_info, read_log
from wsdesc.errors import InputError
from wsdesc.evaluate import (
    feature_match_recall,
    inlier_ratio,
    r1_counts,
    r1_success,
    r2_success,
)
from wsdesc.match import mutual

UNTRAINED = "untrained"


class Pair(NamedTuple):
    """A line of gt.log, with its matrix of gt.info where there is one."""

    i: int
    j: int
    T_i_j: Tensor  # (4, 4) float64
    information: Tensor | None  # (6, 6)


class Fragment(NamedTuple):
    """Keypoints and descriptors of a cloud, as it was turned."""

    keys: Tensor  # (K, 3)
    features: Tensor  # (K, C)
    T_turned_file: Tensor  # (4, 4) float64


@dataclass
class Outcome:
    """What became of a pair; None where it was not asked for or does not count."""

    ratio: float
    matches: int
    r1: bool | None = None
    r2: bool | None = None


def read_pairs(folder: Path) -> list[Pair]:
    """The pairs of gt.log, in its order."""
    information = {}
    if (folder / "gt.info").is_file():
        information = {(e.i, e.j): torch.as_tensor(e.information) for e in read_info(folder / "gt.info")}
    pairs = [
        Pair(e.i, e.j, torch.as_tensor(e.T_i_j).double(), information.get((e.i, e.j)))
        for e in read_log(folder / "gt.log")
    ]
    if not pairs:
        raise InputError(f"{folder}: its gt.log names no pairs")
    return pairs


def load_model(options: argparse.Namespace, device: torch.device) -> WSDesc:
    """Trained weights, or the untrained network of a width."""
    if options.model != UNTRAINED:
        if options.width is not None:
            raise InputError(f"--width is for --model {UNTRAINED}; trained weights know theirs")
        return WSDesc.from_pretrained(options.model, device)
    torch.manual_seed(options.seed)
    return WSDesc(width=options.width or 1.0).to(device).eval()


def describe(model: WSDesc, scene: Path, number: int, options: argparse.Namespace) -> Fragment:
    """Fragment `number` of the scene; the same keypoints and rotation whichever others are described."""
    device = next(model.parameters()).device
    points = torch.from_numpy(read_points(scene / f"cloud_bin_{number}.ply", nonfinite="drop"))
    if options.voxel > 0:
        points = voxel_downsample(points, options.voxel * options.unit)
    turn = torch.eye(4, dtype=torch.float64)
    if options.rotated:
        rng = np.random.default_rng([options.seed, number])
        turn[:3, :3] = torch.from_numpy(Rotation.from_quat(rng.normal(size=4)).as_matrix())
        points = points @ turn[:3, :3].T
    points = points.float().to(device)
    generator = torch.Generator().manual_seed(1000 * options.seed + number)
    keys = points[random_sample(len(points), options.keypoints, generator).to(device)]
    return Fragment(keys, model(points, keys, options.unit), turn)


def judge(pair: Pair, fragments: dict[int, Fragment], options: argparse.Namespace) -> Outcome:
    """Match j to i; the truth is turned as they are, an estimate is turned back."""
    source, target = fragments[pair.j], fragments[pair.i]
    matches = mutual(source.features, target.features)
    truth = target.T_turned_file @ pair.T_i_j @ torch.linalg.inv(source.T_turned_file)
    ratio = inlier_ratio(source.keys, target.keys, matches, truth, tau1=0.1 * options.unit)
    outcome = Outcome(ratio, len(matches))
    if options.ransac:
        found = ransac(
            source.keys[matches[:, 0]],
            target.keys[matches[:, 1]],
            threshold=0.05 * options.unit,
            seed=options.seed,
        )
        T_i_j = torch.linalg.inv(target.T_turned_file) @ found.T_target_source @ source.T_turned_file
        outcome.r2 = found.success and bool(r2_success(T_i_j, pair.T_i_j, options.unit))
        if pair.information is not None and r1_counts(pair.i, pair.j):
            error_is_small = r1_success(T_i_j, pair.T_i_j, pair.information, options.unit)
            outcome.r1 = found.success and bool(error_is_small)
    return outcome


def row(name: str, outcomes: list[Outcome], with_ransac: bool) -> list[str]:
    """A line of the table."""
    ratios = [outcome.ratio for outcome in outcomes]
    cells = [name, str(len(outcomes)), f"{np.mean([outcome.matches for outcome in outcomes]):.0f}"]
    cells += [percent(np.mean(ratios))]
    cells += [percent(feature_match_recall(ratios, tau2)) for tau2 in (0.05, 0.2)]
    if with_ransac:
        for counted in ([o.r1 for o in outcomes], [o.r2 for o in outcomes]):
            successes = [success for success in counted if success is not None]
            share = percent(np.mean(successes)) if successes else "–"
            cells.append(f"{share} ({len(successes)})")
    return cells


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def print_rows(rows: list[list[str]]) -> None:
    """Aligned columns, the first one to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        print("  ".join([cells[0].ljust(widths[0]), *rest]))


@torch.inference_mode()
def run(options: argparse.Namespace) -> None:
    """Describe, judge, print."""
    device = torch.device(options.device)
    evaluations = [(folder.resolve().name, read_pairs(folder)) for folder in options.evaluations]
    numbers = sorted({number for _, pairs in evaluations for p in pairs for number in (p.i, p.j)})
    model = load_model(options, device)
    start = time.perf_counter()
    fragments = {
        number: describe(model, options.scene, number, options)
        for number in watched(numbers, "describe fragments")
    }
    described = time.perf_counter() - start
    outcomes = [
        (name, [judge(pair, fragments, options) for pair in watched(pairs, f"match {name}")])
        for name, pairs in evaluations
    ]
    matched = time.perf_counter() - start - described

    print_machine()
    keypoints = sum(len(fragment.keys) for fragment in fragments.values())
    support = getattr(model.support, "size", None)
    size = f", support {float(support):.3f} m" if isinstance(support, Tensor) else ""
    print(f"model {options.model}, width {model.options.width:g}{size}")
    print(
        f"{len(fragments)} fragments, {options.keypoints} keypoints, "
        f"{'each turned at random' if options.rotated else 'as they stand'}, "
        f"{f'voxels of {options.voxel * options.unit:g}' if options.voxel > 0 else 'all points'}; "
        f"{1e3 * described / max(1, keypoints):.2f} ms a keypoint with reading, {matched:.1f} s for all pairs"
    )
    names = ["", "n", "matches", "IR", "FMR 0.05", "FMR 0.2"]
    names += ["RR by R1 (n)", "RR by R2 (n)"] if options.ransac else []
    rows = [names, *(row(name, some, options.ransac) for name, some in outcomes)]
    if len(outcomes) > 1:
        rows.append(row("all", [outcome for _, some in outcomes for outcome in some], options.ransac))
    print_rows(rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("scene", type=Path, help="folder of cloud_bin_k.ply")
    parser.add_argument("evaluations", type=Path, nargs="+", help="folder of gt.log and gt.info")
    parser.add_argument("--model", default=UNTRAINED, help="weights by name or path (default: %(default)s)")
    parser.add_argument("--width", type=float, help="of the untrained network (default: 1)")
    parser.add_argument("--keypoints", type=int, default=2000, help="of a fragment (default: %(default)s)")
    parser.add_argument("--voxel", type=float, default=0.025, help="downsampling, in units; 0 keeps all")
    parser.add_argument("--unit", type=float, default=1.0, help="what counts as a metre in these files")
    parser.add_argument("--rotated", action="store_true", help="turn each fragment by its own rotation")
    parser.add_argument("--ransac", action="store_true", help="registration recall as well")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if options.keypoints < 1 or options.seed < 0:
        parser.error("--keypoints must be at least 1, --seed not negative")
    if not (options.unit > 0 and math.isfinite(options.unit)):
        parser.error("--unit must be positive")
    return options


if __name__ == "__main__":
    sys.exit(or_explain(lambda: run(parse())))
