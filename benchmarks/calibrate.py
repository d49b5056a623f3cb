"""Fit the confidence of `wsdesc.register` to labelled poses, and evaluate it domain by domain.

    python -m benchmarks.label_poses -o poses.npz
    python -m benchmarks.calibrate poses.npz -o src/wsdesc/alignment/confidence.json
    python -m benchmarks.calibrate poses.npz --base old.json -o src/wsdesc/alignment/confidence.json
    python -m benchmarks.calibrate poses.npz --shipped

Prints a table with one row per domain, whose confidences come from a model fitted to all other domains:
successes, their precision and recall by overlap, the expected calibration error, and the wrong successes of
twins (pairs of one place without overlap) and of strangers (pairs of two places). Writes the model of all
domains, and with `--plot` one reliability diagram per domain. With `--base`, the functions of a model of the
first features are kept, and only those of the other features are fitted. `--shipped` prints the table of the
package's model, and how often the last round proposes the right pose; it fits nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
from scipy.optimize import minimize

from benchmarks.common import make_parser, percent, print_rows, run_command
from wsdesc.alignment.confidence import CONFIDENCE_FILE, ConfidenceModel
from wsdesc.alignment.evidence import FEATURES, Evidence, features
from wsdesc.alignment.scale import RelativeScale
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.json_file import read_object
from wsdesc.evaluation.reliability import reliability, reliability_bins
from wsdesc.registration.result import SUCCESS

MAX_ROTATION, MAX_TRANSLATION = 5.0, 0.2  # errors of a correct pose: degrees and model metres
KNOTS = (0.02, 0.2, 0.4, 0.6, 0.8, 0.98)  # quantiles of a feature between which its function is linear
VIOLATIONS = {  # the same of violations; most correct poses have none
    "violation": (-4.0, -3.0, -2.5, -2.0, -1.5, -0.7),
    "dense_violation": (-4.5, -3.7, -3.0, -2.3, -1.7, -0.8),
    "overlapping_violation": (0.05, 0.8, 1.5, 2.2, 2.8, 3.7),
}
REGULARISATION = 6.0  # of the log odds that a feature adds over its range, in units of a pair
SCHEDULE = (0, 1, 2)  # rounds of `label_poses` that `wsdesc.register` makes
MIN_OVERLAP = 0.1  # least overlap of pairs that count as overlapping
HIGH_OVERLAP = 0.3
_LARGEST_MODEL = 1_000_000  # bytes
TWIN_WEIGHT = 0.1  # of pairs without overlap in one place: equal parts of a place, seen from equal stations


class Group(NamedTuple):
    """The candidates of a pair in one round."""

    domain: str
    pair: tuple[str, str, int, int, int]  # file, domain, unit, source, target
    round: int
    overlap: float  # -1 of strangers
    features: np.ndarray  # (K, F)
    right: np.ndarray  # (K,)
    valid: np.ndarray  # (K,) neither degenerate nor of another scale


def read_groups(path: Path) -> list[Group]:
    """Read the rows of `label_poses`, grouped by pair and round."""
    try:
        with np.load(path) as arrays:
            columns = {name: arrays[name] for name in arrays.files}
        keys = [columns[name] for name in ("domain", "unit", "source", "target", "round")]
    except (ValueError, KeyError, EOFError, AttributeError, BadZipFile) as error:
        raise FileFormatError(f"{path}: no poses of `python -m benchmarks.label_poses -o FILE`") from error
    changed = np.flatnonzero(np.logical_or.reduce([key[1:] != key[:-1] for key in keys])) + 1
    groups = []
    for rows in np.split(np.arange(len(keys[0])), changed):
        first = rows[0]
        c = {name: values[rows] for name, values in columns.items()}
        evidence = [Evidence(*(None if math.isnan(x) else x for x in row)) for row in c["evidence"].tolist()]
        same = [
            not RelativeScale(factor, deviation).differs
            for factor, deviation in zip(c["scale"], c["scale_deviation"], strict=True)
        ]
        groups.append(
            Group(
                str(columns["domain"][first]),
                (
                    str(path),
                    str(keys[0][first]),
                    int(keys[1][first]),
                    int(keys[2][first]),
                    int(keys[3][first]),
                ),
                int(keys[4][first]),
                float(columns["overlap"][first]),
                features(evidence),
                (c["rotation_error"] < MAX_ROTATION) & (c["translation_error"] < MAX_TRANSLATION),
                np.array(same) & ~c["degenerate"],
            )
        )
    return groups


def fit(
    groups: list[Group],
    base: ConfidenceModel | None = None,
    effects: Mapping[str, int] = FEATURES,
    regularisation: float = REGULARISATION,
) -> ConfidenceModel:
    """Fit the log odds of all candidates by maximum likelihood.

    Each domain has the same weight. With a model of the first features, only the functions of the others
    are fitted. `effects` are the names of all features and the signs of their effects.
    """
    names = list(effects) if base is None else list(effects)[len(base.knots) :]
    x = np.concatenate([g.features for g in groups])
    offset = np.zeros(len(x)) if base is None else base.score(x[:, : len(base.knots)])
    x = x[:, len(effects) - len(names) :]
    right = np.concatenate([g.right for g in groups])
    starts = np.cumsum([0] + [len(g.right) for g in groups[:-1]])
    owner = np.repeat(np.arange(len(groups)), [len(g.right) for g in groups])
    solved = np.array([g.right.any() for g in groups])
    weight = _group_weights(groups, solved)

    knots = np.stack([_knots(name, column) for name, column in zip(names, x.T, strict=True)])  # (F, K)
    ramps = np.stack(  # (M, F, K - 1): how far a value has come from a knot to the next, 0 … 1
        [
            np.clip((column[:, None] - at[:-1]) / np.diff(at), 0, 1)
            for column, at in zip(x.T, knots, strict=True)
        ],
        axis=1,
    )
    is_measured = ~np.isnan(x)
    ramps = np.where(is_measured[..., None], ramps, 0.0)
    sometimes = ~is_measured.all(axis=0)
    design = np.hstack([ramps.reshape(len(x), -1), is_measured[:, sometimes].astype(float)])  # (M, D)
    signs = np.repeat([effects[name] for name in names], knots.shape[1] - 1)
    bounds = [(0, None) if sign > 0 else (None, 0) for sign in signs]
    bounds += [(None, None)] * int(sometimes.sum()) + [(None, None) if base is None else (0, 0)]

    def cost(w: np.ndarray) -> tuple[float, np.ndarray]:
        score = offset + design @ w[:-1] + w[-1]
        top = np.maximum(np.maximum.reduceat(score, starts), 0.0)
        odds = np.exp(score - top[owner])
        total = np.exp(-top) + np.add.reduceat(odds, starts)
        good = np.where(solved, np.add.reduceat(odds * right, starts), np.exp(-top))
        loss = (weight * (np.log(total) - np.log(np.maximum(good, 1e-300)))).sum()
        share = odds / total[owner]
        true_share = np.where(solved[owner] & right, odds / np.maximum(good, 1e-300)[owner], 0.0)
        pull = weight[owner] * (share - true_share)
        penalty = regularisation * w[:-1]
        gradient = np.append(design.T @ pull + penalty, pull.sum())
        return float(loss + penalty @ w[:-1] / 2), gradient

    start = np.zeros(design.shape[1] + 1)
    w = minimize(
        cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 400, "ftol": 1e-7}
    ).x
    steps = w[: len(signs)].reshape(len(names), -1)
    values = np.hstack([np.zeros((len(names), 1)), np.cumsum(steps, axis=1)])
    values[sometimes] += w[len(signs) : -1, None]
    if base is None:
        return ConfidenceModel(knots, values, float(w[-1]), len(x))
    stacked = np.vstack([base.knots, knots]), np.vstack([base.log_odds, values])
    return ConfidenceModel(*stacked, base.bias, base.poses + len(x))


def _knots(name: str, column: np.ndarray) -> np.ndarray:
    at = np.array(VIOLATIONS[name]) if name in VIOLATIONS else np.nanquantile(column, KNOTS)
    return np.asarray(at + np.arange(len(at)) * 1e-4)  # a quantile may repeat where many values are equal


def _group_weights(groups: list[Group], solved: np.ndarray) -> np.ndarray:
    """Weight each domain equally, and in it twin places less."""
    domains = np.array([g.domain for g in groups])
    weight = np.empty(len(groups))
    for domain in np.unique(domains):
        weight[domains == domain] = 1 / (domains == domain).sum()
    twins = [0 <= g.overlap < MIN_OVERLAP and not right for g, right in zip(groups, solved, strict=True)]
    weight *= np.where(twins, TWIN_WEIGHT, 1.0)
    return np.asarray(weight * len(groups) / weight.sum())


class Answer(NamedTuple):
    """The answer to a pair."""

    domain: str
    overlap: float
    confidence: float
    right: bool
    round: int


def answer(groups: list[Group], model: ConfidenceModel, schedule: tuple[int, ...] = SCHEDULE) -> list[Answer]:
    """Answer each pair as `wsdesc.register` does: the first round with a success, or the last."""
    by_pair: dict[tuple[str, str, int, int, int], dict[int, Group]] = {}
    for g in groups:
        by_pair.setdefault(g.pair, {})[g.round] = g
    answers = []
    for rounds in by_pair.values():
        best_answer = None
        for number in schedule:
            g = rounds.get(number)
            if g is None:
                continue
            probability = model.probabilities(g.features)
            best = int(probability.argmax())
            confidence = float(probability[best]) if g.valid[best] else 0.0
            best_answer = Answer(g.domain, g.overlap, confidence, bool(g.right[best]), number)
            if confidence >= SUCCESS:
                break
        if best_answer is not None:
            answers.append(best_answer)
    return answers


def table(answers: list[Answer]) -> list[list[str]]:
    """Summarise the answers, one row per domain."""
    rows = [
        [
            "domain",
            "pairs",
            "R ≥ 0.3",
            "successes",
            "precision",
            "recall",
            "R 0.1–0.3",
            "successes",
            "precision",
            "recall",
            "ECE",
            "twins: wrong successes",
            "strangers: wrong successes",
        ]
    ]
    names = sorted({a.domain for a in answers})
    for name in [*names, "all"]:
        own = [a for a in answers if name in (a.domain, "all")]
        row = [name, str(len(own))]
        for low, high in ((HIGH_OVERLAP, 2.0), (MIN_OVERLAP, HIGH_OVERLAP)):
            row += summarise([a for a in own if low <= a.overlap < high])
        if own:
            row.append(
                f"{reliability([a.confidence for a in own], [a.right for a in own]).calibration_error:.3f}"
            )
        for apart in ([a for a in own if 0 <= a.overlap < MIN_OVERLAP], [a for a in own if a.overlap < 0]):
            wrong = sum(a.confidence >= SUCCESS and not a.right for a in apart)
            row.append(f"{wrong} of {len(apart)}")
        rows.append(row)
    return rows


def summarise(answers: list[Answer]) -> list[str]:
    """Return the share of right poses with the number of pairs, successes, their precision and recall."""
    if not answers:
        return ["–"] * 4
    successes = [a for a in answers if a.confidence >= SUCCESS]
    correct = sum(a.right for a in successes)
    right = sum(a.right for a in answers)
    return [
        f"{percent(right / len(answers))} ({len(answers)})",
        str(len(successes)),
        percent(correct / len(successes)) if successes else "–",
        percent(correct / right) if right else "–",
    ]


def proposed(groups: list[Group]) -> list[list[str]]:
    """Summarise by overlap how often the right pose is among the candidates of the last round."""
    last = [g for g in groups if g.round == SCHEDULE[-1]]
    rows = [["the last round proposes the right pose", "pairs", "%"]]
    for name, low, high in (("R ≥ 0.3", HIGH_OVERLAP, 2.0), ("R 0.1–0.3", MIN_OVERLAP, HIGH_OVERLAP)):
        own = [g.right.any() for g in last if low <= g.overlap < high]
        rows.append([name, str(len(own)), percent(float(np.mean(own))) if own else "–"])
    return rows


def leave_one_domain_out(
    groups: list[Group], schedule: tuple[int, ...] = SCHEDULE, base: ConfidenceModel | None = None
) -> list[Answer]:
    """Answer the pairs of each domain with a model fitted to all other domains."""
    answers = []
    for domain in sorted({g.domain for g in groups}):
        model = fit([g for g in groups if g.domain != domain], base)
        answers += answer([g for g in groups if g.domain == domain], model, schedule)
    return answers


def read_base(path: Path) -> ConfidenceModel:
    """Read a model of the first features."""
    invalid = "no model that this command wrote"
    names = read_object(path, largest=_LARGEST_MODEL, kind="a confidence model", invalid=invalid).get(
        "features"
    )
    if not isinstance(names, dict):
        raise FileFormatError(f"{path}: {invalid}")
    if list(names) != list(FEATURES)[: len(names)]:
        raise InputError(f"{path}: its features must be the first of {', '.join(FEATURES)}")
    return ConfidenceModel.load(path, names)


def plot(answers: list[Answer], path: Path) -> None:
    """Draw one reliability diagram per domain."""
    import matplotlib.pyplot as plt

    names = sorted({a.domain for a in answers})
    columns = 4
    figure, axes = plt.subplots(
        math.ceil(len(names) / columns), columns, figsize=(11, 2.9 * math.ceil(len(names) / columns))
    )
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
    for axis, name in zip(axes.flat, names, strict=False):
        own = [a for a in answers if a.domain == name]
        bins = reliability_bins([a.confidence for a in own], [a.right for a in own])
        axis.plot([0, 1], [0, 1], color="0.8", lw=1)
        axis.scatter(
            [b.confidence for b in bins],
            [b.right for b in bins],
            s=[8 + 3 * math.sqrt(b.poses) for b in bins],
        )
        axis.set(title=f"{name} ({len(own)} pairs)", xlim=(-0.05, 1.05), ylim=(-0.05, 1.05))
    figure.supxlabel("confidence")
    figure.supylabel("share of correct poses")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main(arguments: argparse.Namespace) -> None:
    groups = [group for path in arguments.poses for group in read_groups(path)]
    if arguments.shipped:
        print_rows(table(answer(groups, ConfidenceModel.load())))
        print_rows(proposed(groups))
        return
    base = read_base(arguments.base) if arguments.base else None
    answers = leave_one_domain_out(groups, base=base)
    poses = sum(len(g.right) for g in groups)
    print(f"{poses} poses of {len(answers)} pairs; each domain by a model of the others")
    print_rows(table(answers))
    if arguments.plot:
        plot(answers, arguments.plot)
    fit(groups, base).save(arguments.out)
    print(f"written: {arguments.out}")


def parser() -> argparse.ArgumentParser:
    parser = make_parser("calibrate", __doc__)
    parser.add_argument("poses", type=Path, nargs="+", help="files that `label_poses` wrote")
    parser.add_argument(
        "-o", "--out", type=Path, default=CONFIDENCE_FILE, help="model (default: the package's)"
    )
    parser.add_argument("--base", type=Path, help="model of the first features, whose functions are kept")
    parser.add_argument("--shipped", action="store_true", help="judge the package's model; fit nothing")
    parser.add_argument("--plot", type=Path, help="picture with one reliability diagram per domain")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
