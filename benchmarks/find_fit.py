"""Fit the confidence of `wsdesc.find` to poses that `find` wrote.

    python -m benchmarks.find DATA --shapes train --scenes 200 -o searches.jsonl
    python -m benchmarks.find_fit searches.jsonl -o src/wsdesc/finding/confidence.json

Of each search, the fit uses the most exact right pose and the wrong poses with the highest scores: an
instance is the best pose of its place, and its confidence competes with these.

Prints recall and precision of the fitted model on rooms that were left out: each scene has a room of its own,
and eighths of the scenes are judged by a model of the others. Writes the model of all scenes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from benchmarks.common import make_parser, print_rows, run_command
from benchmarks.find import MAX_ADDS, read
from wsdesc.alignment.confidence import ConfidenceModel
from wsdesc.finding.evidence import CONFIDENCE_FILE, FEATURES, Evidence, contradicted, features
from wsdesc.finding.result import SUCCESS

KNOTS = (0.05, 0.35, 0.65, 0.95)  # quantiles of a feature between which its function is linear
REGULARISATION = 0.1  # of the log odds that a feature adds over its range, in units of a pose
WRONG_WEIGHT = 1.5  # of wrong poses: a wrong instance costs more than a missed one
UNSURE = (MAX_ADDS, 0.1)  # ADD-S in diameters: such poses count neither as right nor as wrong
_WRONG = 4  # wrong poses of each search
_PARTS = 8


class Poses(NamedTuple):
    """Candidates of all searches."""

    search: np.ndarray  # (M,) number of the search
    present: np.ndarray  # (M,) whether the object is in the scene
    error: np.ndarray  # (M,) ADD-S in diameters
    x: np.ndarray  # (M, F) features


def read_poses(paths: list[Path]) -> Poses:
    """Read the poses of files that `find` wrote, without those that are contradicted."""
    columns: tuple[list[float], ...] = ([], [], [])
    evidence = []
    for search in (search for path in paths for search in read(path)):
        for pose in search.poses:
            figures = Evidence(**pose.evidence)
            if not contradicted(figures):
                evidence.append(figures)
                for column, x in zip(columns, (2 * search.scene + search.present, search.present, pose.error),
                                     strict=True):  # fmt: skip
                    column.append(x)
    search_number, present, error = (np.array(column) for column in columns)
    return Poses(search_number, present > 0, error, features(evidence))


def fit(poses: Poses) -> ConfidenceModel:
    """Fit the log odds of poses by maximum likelihood, each feature by a monotone function."""
    used = _decisive(poses)
    x, right = poses.x[used], poses.error[used] <= MAX_ADDS
    knots = np.stack([np.nanquantile(column, KNOTS) for column in x.T]) + np.arange(len(KNOTS)) * 1e-4
    is_measured = ~np.isnan(x)
    ramps = np.clip((x[:, :, None] - knots[None, :, :-1]) / np.diff(knots)[None], 0, 1)
    ramps = np.where(is_measured[..., None], ramps, 0.0)  # (M, F, K - 1)
    sometimes = ~is_measured.all(axis=0)
    design = np.hstack([ramps.reshape(len(x), -1), is_measured[:, sometimes], np.ones((len(x), 1))])
    signs = np.repeat(list(FEATURES.values()), len(KNOTS) - 1)
    bounds = [(0, None) if sign > 0 else (None, 0) for sign in signs]
    bounds += [(None, None)] * (int(sometimes.sum()) + 1)
    weight = np.where(right, 1.0, WRONG_WEIGHT)
    sign = np.where(right, 1.0, -1.0)

    def cost(w: np.ndarray) -> tuple[float, np.ndarray]:
        margin = sign * (design @ w)
        pull = -weight * sign / (1 + np.exp(np.clip(margin, -50, 50)))
        penalty = np.append(REGULARISATION * w[:-1], 0.0)
        loss = float((weight * np.logaddexp(0, -margin)).sum() + penalty @ w / 2)
        return loss, design.T @ pull + penalty

    w = minimize(cost, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds).x
    steps = w[: len(signs)].reshape(len(FEATURES), -1)
    values = np.hstack([np.zeros((len(FEATURES), 1)), np.cumsum(steps, axis=1)])
    values[sometimes] += w[len(signs) : -1, None]
    return ConfidenceModel(knots, values, float(w[-1]), len(x))


def _decisive(poses: Poses) -> np.ndarray:
    """Choose (M,) the poses of each search that its result depends on."""
    score = poses.x[:, list(FEATURES).index("score")]
    chosen = np.zeros(len(score), bool)
    for search in np.unique(poses.search):
        rows = np.flatnonzero(poses.search == search)
        right = rows[poses.error[rows] <= UNSURE[0]]
        wrong = rows[poses.error[rows] > UNSURE[1]]
        chosen[right[poses.error[right].argsort(kind="stable")[:1]]] = True
        chosen[wrong[(-score[wrong]).argsort(kind="stable")[:_WRONG]]] = True
    return chosen


def main(arguments: argparse.Namespace) -> None:
    poses = read_poses(arguments.poses)
    score = np.empty(len(poses.error))
    scenes, scene = np.unique(poses.search // 2, return_inverse=True)
    print(f"{len(scenes)} scenes")
    for part in range(_PARTS):
        left_out = scene % _PARTS == part
        score[left_out] = fit(Poses(*(column[~left_out] for column in poses))).score(poses.x[left_out])
    accepted = score >= np.log(SUCCESS / (1 - SUCCESS))
    right = poses.error <= MAX_ADDS
    best = np.array([np.flatnonzero(poses.search == s)[score[poses.search == s].argmax()]
                     for s in np.unique(poses.search)])  # fmt: skip
    present = poses.present[best]
    rows = [
        ["searches of present objects", str(int(present.sum()))],
        ["searches of absent objects", str(int((~present).sum()))],
        ["with a right candidate", str(len(set(poses.search[right])))],
        ["recalled", str(int((accepted & right)[best][present].sum()))],
        ["best candidates accepted", str(int(accepted[best].sum()))],
        ["of these, right", str(int((accepted & right)[best].sum()))],
    ]
    print_rows(rows)
    model = fit(poses)
    for name, values in zip(FEATURES, model.log_odds, strict=True):
        print(f"  {name:22s} {np.ptp(values):6.2f}")
    if arguments.output is not None:
        model.save(arguments.output, FEATURES)


if __name__ == "__main__":
    parser = make_parser("find_fit", __doc__)
    parser.add_argument("poses", type=Path, nargs="+", help="files of `find -o`")
    parser.add_argument(
        "-o", "--output", type=Path, help=f"file of the model, such as {CONFIDENCE_FILE.name}"
    )
    sys.exit(run_command(parser, main))
