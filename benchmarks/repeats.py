"""Fit the confidence of ambiguous poses on floors with repetitive structure.

    python -m benchmarks.repeats --floors 10 -o src/wsdesc/alignment/repetitive.json

All pairs of laser scans of a synthetic floor are registered, with and without overlap. A case is a plausible
pose of a pair with another plausible pose.

Writes the fitted model. Prints the number of pairs, cases and correct poses, and a table: for each range of
probability the number of poses, their mean probability and the share of correct ones. Probabilities of a
floor are those of a model fitted to the other floors.
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

from benchmarks.calibrate import DescribedScan, describe_rotated
from benchmarks.common import make_parser, print_machine, print_rows, run_command, show_progress
from wsdesc.alignment.confidence import PLAUSIBLE, REPETITIVE_FILE, Calibration
from wsdesc.cloud.units import working_resolution
from wsdesc.core.geometry import inverse
from wsdesc.datasets.synthetic.floor import floor_scans
from wsdesc.evaluation.metrics import r2_success
from wsdesc.registration.candidates import find_candidates

BINS = (0.0, 0.1, 0.3, 0.5, 0.8, 0.9, 1.0)


class Case(NamedTuple):
    """A plausible pose of a pair with another plausible pose."""

    floor: int
    features: np.ndarray  # (2,)
    right: bool  # the pose is correct
    solved: bool  # one of the pair's poses is correct


def describe_floor(floor: int, count: int, keypoints: int) -> list[DescribedScan]:
    """Describe the scans of a floor at their common resolution."""
    scans = floor_scans(floor, count)
    resolution = working_resolution(*(scan.points for scan in scans))
    rng = np.random.default_rng(floor)
    return [describe_rotated("floor", s.points, s.T_world_scan, keypoints, rng, resolution) for s in scans]


def find_cases(floor: int, source: DescribedScan, target: DescribedScan) -> list[Case]:
    """Register a pair and return its cases."""
    surfaces = (source.surface, target.surface)
    candidates = find_candidates(source.description, target.description, surfaces, distinct=True).ranked
    T_true = inverse(target.T_world_scan) @ source.T_world_scan
    right = [bool(r2_success(candidate.refined.T_target_source, T_true)) for candidate in candidates]
    return [
        Case(floor, candidate.evidence.repetitive_features(), correct, any(right))
        for candidate, correct in zip(candidates, right, strict=True)
        if candidate.evidence.repetitive and candidate.evidence_alone.base_confidence > PLAUSIBLE
    ]


_SCANS: dict[int, list[DescribedScan]] = {}


def _find_cases(pair: tuple[int, int, int]) -> list[Case]:
    floor, a, b = pair
    return find_cases(floor, _SCANS[floor][a], _SCANS[floor][b])


def fit(cases: list[Case]) -> Calibration:
    """Fit the model; pairs with and without a correct pose have the same total weight."""
    features, right = np.stack([c.features for c in cases]), np.array([c.right for c in cases])
    solved = np.array([c.solved for c in cases])
    weights = np.where(solved, 0.5 / solved.mean(), 0.5 / (1 - solved.mean()))
    return Calibration.fit(features, right, negative=0, weights=weights)


def make_table(cases: list[Case]) -> list[list[str]]:
    """Compare probabilities with the share of correct poses, each floor by a model of the others."""
    probabilities = np.empty(len(cases))
    for floor in sorted({c.floor for c in cases}):
        inside = np.array([c.floor == floor for c in cases])
        model = fit([c for c in cases if c.floor != floor])
        probabilities[inside] = model.probability(np.stack([c.features for c in cases if c.floor == floor]))
    right = np.array([c.right for c in cases])
    rows = [["probability", "poses", "mean", "correct"]]
    for low, high in pairwise(BINS):
        inside = (probabilities >= low) & (probabilities < high)
        if inside.any():
            shares = [f"{probabilities[inside].mean():.2f}", f"{right[inside].mean():.2f}"]
            rows.append([f"{low:.1f} to {high:.1f}", str(inside.sum()), *shares])
    return rows


def main(arguments: argparse.Namespace) -> None:
    for floor in show_progress(range(arguments.first, arguments.first + arguments.floors), "floors"):
        _SCANS[floor] = describe_floor(floor, arguments.scans, arguments.keypoints)
    pairs = [(floor, a, b) for floor in _SCANS for a, b in combinations(range(arguments.scans), 2)]
    torch.set_num_threads(1)
    with multiprocessing.get_context("fork").Pool() as pool:
        groups = list(show_progress(pool.imap(_find_cases, pairs), "register", len(pairs)))
    cases = [case for group in groups for case in group]
    fit(cases).save(arguments.out)
    if arguments.rows:
        np.savez(arguments.rows, *(np.array(column) for column in zip(*cases, strict=True)))
    print_machine()
    right = sum(case.right for case in cases)
    print(f"{len(pairs)} pairs of {arguments.floors} floors; {len(cases)} poses, {right} correct")
    print_rows(make_table(cases))
    print(f"written: {arguments.out}")


def parser() -> argparse.ArgumentParser:
    parser = make_parser("repeats", __doc__)
    parser.add_argument("--floors", type=int, default=10, help="number of floors (default: %(default)s)")
    parser.add_argument(
        "--first", type=int, default=11, help="seed of the first floor (default: %(default)s)"
    )
    parser.add_argument("--scans", type=int, default=9, help="scans per floor (default: %(default)s)")
    parser.add_argument("--keypoints", type=int, default=2000, help="per scan (default: %(default)s)")
    parser.add_argument("--rows", type=Path, help="npz file for features and correctness")
    parser.add_argument(
        "-o", "--out", type=Path, default=REPETITIVE_FILE, help="fitted model (default: the package's)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
