"""Fit how far to trust a pose where others would be believed, too: floors whose bays are built alike.

    python -m benchmarks.repeats --floors 10 -o src/wsdesc/align/repeats.json

Laser scans of synthetic floors are registered, every two of a floor, whether they overlap or not, and all
poses that differ are looked at. Each floor is also judged by a fit to the others, which is what the printed
table is about.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.calibrate import Scan, scan_of
from benchmarks.common import or_explain, print_machine, print_rows, watched
from wsdesc.alignment.confidence import REPEATS, Calibration
from wsdesc.cloud.units import working_resolution
from wsdesc.core.geometry import inverse
from wsdesc.datasets.synthetic.floor import floor_scans
from wsdesc.evaluation.metrics import r2_success
from wsdesc.registration.candidates import find_candidates

BINS = (0.0, 0.1, 0.3, 0.5, 0.8, 0.9, 1.0)


class Case(NamedTuple):
    """A pose that would be believed, of a pair with another such pose."""

    floor: int
    features: np.ndarray  # (2,)
    right: bool
    solved: bool  # one of the pair's poses is right


def scans_of(floor: int, count: int, keypoints: int) -> list[Scan]:
    """Described, all at the resolution that suits them together."""
    made = floor_scans(floor, count)
    resolution = working_resolution(*(f.points for f in made))
    rng = np.random.default_rng(floor)
    return [scan_of("floor", f.points, f.T_world_scan, keypoints, rng, resolution) for f in made]


def cases_of(floor: int, source: Scan, target: Scan) -> list[Case]:
    """Of one pair."""
    surfaces = (source.surface, target.surface)
    found = find_candidates(source.description, target.description, surfaces, distinct=True).ranked
    truth = torch.from_numpy(inverse(target.T_world_scan) @ source.T_world_scan)
    right = [bool(r2_success(torch.from_numpy(c.refined.T_target_source), truth)) for c in found]
    cases = []
    for candidate, good in zip(found, right, strict=True):
        if candidate.evidence.repeats and candidate.evidence_alone.alone > 0.5:
            cases.append(Case(floor, candidate.evidence.features_of_repeats(), good, any(right)))
    return cases


_SCANS: dict[int, list[Scan]] = {}


def _cases(pair: tuple[int, int, int]) -> list[Case]:
    floor, a, b = pair
    return cases_of(floor, _SCANS[floor][a], _SCANS[floor][b])


def fit(cases: list[Case]) -> Calibration:
    """Pairs with a right pose count as much as those without: who asks for two scans has a reason to."""
    features, right = np.stack([c.features for c in cases]), np.array([c.right for c in cases])
    solved = np.array([c.solved for c in cases])
    weights = np.where(solved, 0.5 / solved.mean(), 0.5 / (1 - solved.mean()))
    return Calibration.fit(features, right, against=0, weights=weights)


def table(cases: list[Case]) -> list[list[str]]:
    """How often poses are right that a fit to the other floors gives a probability."""
    said = np.empty(len(cases))
    for floor in sorted({c.floor for c in cases}):
        here = np.array([c.floor == floor for c in cases])
        others = fit([c for c in cases if c.floor != floor])
        said[here] = others.probability(np.stack([c.features for c in cases if c.floor == floor]))
    right = np.array([c.right for c in cases])
    rows = [["probability", "poses", "mean", "right"]]
    for low, high in pairwise(BINS):
        inside = (said >= low) & (said < high)
        if inside.any():
            shares = [f"{said[inside].mean():.2f}", f"{right[inside].mean():.2f}"]
            rows.append([f"{low:.1f} to {high:.1f}", str(inside.sum()), *shares])
    return rows


def main(o: argparse.Namespace) -> None:
    for floor in watched(range(o.first, o.first + o.floors), "floors"):
        _SCANS[floor] = scans_of(floor, o.scans, o.keypoints)
    pairs = [(floor, a, b) for floor in _SCANS for a, b in combinations(range(o.scans), 2)]
    torch.set_num_threads(1)
    with multiprocessing.get_context("fork").Pool() as pool:
        found = list(watched(pool.imap(_cases, pairs), "register", len(pairs)))
    cases = [case for some in found for case in some]
    fit(cases).save(o.out)
    if o.rows:
        np.savez(o.rows, *(np.array(column) for column in zip(*cases, strict=True)))
    print_machine()
    print(f"{len(pairs)} pairs of {o.floors} floors; {len(cases)} poses, {sum(c.right for c in cases)} right")
    print_rows(table(cases))
    print(f"written: {o.out}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("--floors", type=int, default=10)
    parser.add_argument("--first", type=int, default=11, help="seed of the first floor")
    parser.add_argument("--scans", type=int, default=9, help="of a floor")
    parser.add_argument("--keypoints", type=int, default=2000, help="of a scan")
    parser.add_argument("--rows", type=Path, help="keep features and answers in this npz")
    parser.add_argument("-o", "--out", type=Path, default=REPEATS, help="default: beside the code")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(or_explain(lambda: main(parse())))
