"""Fit the confidence of `wsdesc.find` to poses that `find` wrote.

    python -m benchmarks.find_fit searches.jsonl                  recall and precision in rooms left out
    python -m benchmarks.find_fit searches.jsonl --write          also write the models of all scenes

Two models are fitted. The first gives the log odds of a pose regardless of the others: of each search, it
sees the most exact right pose and the wrong poses with the highest scores. The second one sees these log
odds, computed for scenes left out of the first, and their lead over the other poses: of each search, it sees
the most probable pose and the most probable wrong one.

Each scene has a room of its own. Eighths of the scenes are judged by models of the others.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from benchmarks.common import make_parser, print_rows, run_command
from benchmarks.find import MAX_ADDS, read, similar
from wsdesc.alignment.confidence import ConfidenceModel
from wsdesc.finding.evidence import (
    CONFIDENCE_FILE,
    FEATURES,
    LEAD_FEATURES,
    LEAD_FILE,
    Evidence,
    contradicted,
    features,
)
from wsdesc.finding.lead import leads
from wsdesc.finding.result import SUCCESS

KNOTS = (0.05, 0.5, 0.95)  # quantiles of a feature between which its function is linear
LEAD_KNOTS = (0.0, 0.5, 0.75, 1.0)
REGULARISATION, LEAD_REGULARISATION = 3.0, 0.03  # of the log odds that a feature adds over a segment
UNSURE = (MAX_ADDS, 0.1)  # ADD-S in diameters: such poses count neither as right nor as wrong
_WRONG = 4  # wrong poses of each search
_PARTS = 8


class Poses(NamedTuple):
    """Candidates of all searches."""

    scene: np.ndarray  # (M,)
    present: np.ndarray  # (M,) whether the object is in the scene
    error: np.ndarray  # (M,) ADD-S in diameters
    x: np.ndarray  # (M, F) features
    similar: np.ndarray  # (M, R) whether it is equal to the candidates of its search, up to symmetries
    number: np.ndarray  # (M,) column of the pose in `similar`

    def take(self, rows: np.ndarray) -> Poses:
        return Poses(*(column[rows] for column in self))

    def searches(self) -> list[np.ndarray]:
        """Return the rows of each search."""
        _, number = np.unique(2 * self.scene + self.present, return_inverse=True)
        return [np.flatnonzero(number == k) for k in range(number.max() + 1)]


class Models(NamedTuple):
    """The two models of the confidence."""

    alone: ConfidenceModel
    lead: ConfidenceModel

    def score(self, poses: Poses) -> np.ndarray:
        """Return the log odds (M,) of poses."""
        return self.lead.score(_compared(poses, self.alone.score(poses.x)))


def read_poses(paths: list[Path]) -> Poses:
    """Read the poses of files that `find` wrote, without those that are contradicted."""
    rows, evidence, similar_to = [], [], []
    for search in (search for path in paths for search in read(path)):
        same = similar(search.poses)
        for k, pose in enumerate(search.poses):
            figures = Evidence(**pose.evidence)
            if not contradicted(figures):
                rows.append((search.scene, search.present, pose.error, k))
                evidence.append(figures)
                similar_to.append(same[k])
    scene, present, error, number = (np.array(column) for column in zip(*rows, strict=True))
    width = max(map(len, similar_to))
    padded = np.array([np.pad(row, (0, width - len(row))) for row in similar_to])
    return Poses(scene, present, error, features(evidence), padded, number)


def fit(poses: Poses) -> Models:
    """Fit the second model to log odds of scenes that the first one has not seen."""
    log_odds = np.empty(len(poses.error))
    for left_out in _parts(poses):
        log_odds[left_out] = _fit_alone(poses.take(~left_out)).score(poses.x[left_out])
    used = _competing(poses, log_odds)
    lead = _fit(
        _compared(poses, log_odds)[used], _right(poses)[used], LEAD_FEATURES, LEAD_KNOTS, LEAD_REGULARISATION
    )
    return Models(_fit_alone(poses), lead)


def _fit_alone(poses: Poses) -> ConfidenceModel:
    used = _decisive(poses)
    return _fit(poses.x[used], _right(poses)[used], FEATURES, KNOTS, REGULARISATION)


def _compared(poses: Poses, log_odds: np.ndarray) -> np.ndarray:
    """Return the features (M, 2) of the second model."""
    lead = np.empty(len(log_odds))
    for rows in poses.searches():
        lead[rows] = leads(log_odds[rows], poses.similar[rows][:, poses.number[rows]])
    return np.stack([log_odds, lead], axis=1)


def _right(poses: Poses) -> np.ndarray:
    return np.asarray(poses.error <= MAX_ADDS)


def _parts(poses: Poses) -> list[np.ndarray]:
    """Split the scenes: (M,) poses of each part."""
    _, scene = np.unique(poses.scene, return_inverse=True)
    return [scene % _PARTS == part for part in range(_PARTS)]


def _decisive(poses: Poses) -> np.ndarray:
    """Choose (M,) the most exact right pose of each search and the wrong ones with the highest scores."""
    score = poses.x[:, list(FEATURES).index("score")]
    chosen = np.zeros(len(score), bool)
    for rows in poses.searches():
        right = rows[poses.error[rows] <= UNSURE[0]]
        wrong = rows[poses.error[rows] > UNSURE[1]]
        chosen[right[poses.error[right].argsort(kind="stable")[:1]]] = True
        chosen[wrong[(-score[wrong]).argsort(kind="stable")[:_WRONG]]] = True
    return chosen


def _competing(poses: Poses, log_odds: np.ndarray) -> np.ndarray:
    """Choose (M,) the most probable pose of each search and the most probable wrong one."""
    chosen = np.zeros(len(log_odds), bool)
    for rows in poses.searches():
        ranked = rows[(-log_odds[rows]).argsort(kind="stable")]
        chosen[ranked[:1]] = True
        chosen[ranked[poses.error[ranked] > UNSURE[1]][:1]] = True
    return chosen & ((poses.error <= UNSURE[0]) | (poses.error > UNSURE[1]))


def _fit(
    x: np.ndarray, right: np.ndarray, signs: dict[str, int], quantiles: tuple[float, ...], strength: float
) -> ConfidenceModel:
    """Fit the log odds of poses by maximum likelihood, each feature (M, F) by a monotone function."""
    segments = len(quantiles) - 1
    knots = np.stack([np.nanquantile(column, quantiles) for column in x.T]) + np.arange(segments + 1) * 1e-4
    is_measured = ~np.isnan(x)
    ramps = np.clip((x[:, :, None] - knots[None, :, :-1]) / np.diff(knots)[None], 0, 1)
    ramps = np.where(is_measured[..., None], ramps, 0.0)  # (M, F, K - 1)
    sometimes = ~is_measured.all(axis=0)
    design = np.hstack([ramps.reshape(len(x), -1), is_measured[:, sometimes], np.ones((len(x), 1))])
    bounds: list[tuple[float | None, float | None]] = [
        (0, None) if sign > 0 else (None, 0) for sign in signs.values() for _ in range(segments)
    ]
    bounds += [(None, None)] * (int(sometimes.sum()) + 1)
    sign = np.where(right, 1.0, -1.0)

    def cost(w: np.ndarray) -> tuple[float, np.ndarray]:
        margin = sign * (design @ w)
        pull = -sign / (1 + np.exp(np.clip(margin, -50, 50)))
        penalty = np.append(strength * w[:-1], 0.0)
        loss = float(np.logaddexp(0, -margin).sum() + penalty @ w / 2)
        return loss, design.T @ pull + penalty

    w = minimize(cost, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds).x
    steps = w[: segments * len(signs)].reshape(len(signs), -1)
    values = np.hstack([np.zeros((len(signs), 1)), np.cumsum(steps, axis=1)])
    values[sometimes] += w[steps.size : -1, None]
    return ConfidenceModel(knots, values, float(w[-1]), len(x))


def main(arguments: argparse.Namespace) -> None:
    poses = read_poses(arguments.poses)
    score = np.empty(len(poses.error))
    for left_out in _parts(poses):
        score[left_out] = fit(poses.take(~left_out)).score(poses.take(left_out))
    accepted, right = score >= np.log(SUCCESS / (1 - SUCCESS)), _right(poses)
    searches = poses.searches()
    best = np.array([rows[score[rows].argmax()] for rows in searches])
    present = poses.present[best]
    rows = [
        ["scenes", str(len(np.unique(poses.scene)))],
        ["searches of present objects", str(int(present.sum()))],
        ["searches of absent objects", str(int((~present).sum()))],
        ["with a right candidate", str(sum(right[rows].any() for rows in searches))],
        ["recalled", str(int((accepted & right)[best][present].sum()))],
        ["best candidates accepted", str(int(accepted[best].sum()))],
        ["of these, right", str(int((accepted & right)[best].sum()))],
    ]
    print_rows(rows)
    models = fit(poses)
    for model, names in ((models.alone, FEATURES), (models.lead, LEAD_FEATURES)):
        for name, values in zip(names, model.log_odds, strict=True):
            print(f"  {name:22s} {np.ptp(values):6.2f}")
    if arguments.write:
        models.alone.save(CONFIDENCE_FILE, FEATURES)
        models.lead.save(LEAD_FILE, LEAD_FEATURES)


if __name__ == "__main__":
    parser = make_parser("find_fit", __doc__)
    parser.add_argument("poses", type=Path, nargs="+", help="files of `find -o`")
    parser.add_argument("--write", action="store_true", help="write the models that `wsdesc.find` uses")
    sys.exit(run_command(parser, main))
