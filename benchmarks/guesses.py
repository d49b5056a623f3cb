"""Measure the confidence of poses around right and wrong guesses, and fit what a guess adds.

    python -m benchmarks.guesses DATA [--pairs 40] [--seed 7] [--sets train sites rooms kitchen]

Sets are those of `benchmarks.priors`, and synthetic rooms. Each pair is registered without descriptors

- near a right guess, off by up to 4 resolutions and 2°: refinement alone, and with limits of 16 resolutions
  and 15° (off by up to these limits);
- near wrong guesses, off by 15, 30 and 80 resolutions and 10°, 25° and 60°, by refinement alone, and by 45
  and 80 resolutions with the limits.

Prints successes and wrong successes of each set, and the log odds that maximise the likelihood of right and
wrong poses, for all sets and without each one; compare `GUESS_LOG_ODDS`. Poses without any confidence do not
take part: their confidence stays 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from benchmarks import priors
from benchmarks.common import make_parser, print_machine, print_rows, run_command
from wsdesc.alignment.prior import GUESS_LOG_ODDS
from wsdesc.cloud.units import working_resolution
from wsdesc.core.errors import WSDescError
from wsdesc.core.geometry import Floats, inverse
from wsdesc.datasets.synthetic import room_scans

RADIUS, ANGLE = 16.0, 15.0  # limits of a narrow search: resolutions, degrees
SPREAD = 3.0  # standard deviation of the fitted log odds beforehand
_LEAST = 1e-5  # smaller confidences count as 0

# Name, largest error of the guess (resolutions, degrees), whether the error is drawn up to it, with limits.
GUESSES = (
    ("refinement", 4.0, 2.0, True, False),
    ("refinement, wrong", 15.0, 10.0, False, False),
    ("refinement, wrong", 30.0, 25.0, False, False),
    ("refinement, wrong", 80.0, 60.0, False, False),
    ("narrow", RADIUS, ANGLE, True, True),
    ("narrow, wrong", 45.0, 35.0, False, True),
    ("narrow, wrong", 80.0, 60.0, False, True),
)


class Answer(NamedTuple):
    """A registration around a guess."""

    set: str
    guess: str
    right: bool
    confidence: float
    success: bool


def room_pairs(count: int, seed: int) -> Iterator[priors.Pair]:
    """Make pairs of scans of synthetic rooms."""
    for k in range(count):
        a, b = room_scans(40_000 + seed + k, 2)
        T = inverse(b.T_world_scan) @ a.T_world_scan
        yield priors.Pair(a.points.astype(float), b.points.astype(float), T, b.T_world_scan[2, :3])


def register_around_guesses(name: str, pair: priors.Pair, rng: np.random.Generator) -> Iterator[Answer]:
    """Register a pair around all guesses."""
    resolution = working_resolution(*(torch.from_numpy(points) for points in pair[:2]))
    for guess, distance, degrees, drawn, limited in GUESSES:
        share = rng.random() ** (1 / 3) if drawn else 1.0
        T = priors.moved(
            pair.T_target_source, pair.source, share * distance * resolution, share * degrees, rng
        )
        radius, angle = (RADIUS * resolution, ANGLE) if limited else (0.0, 0.0)
        options: dict[str, Any] = {"initial": T, "search_radius": radius, "max_angle": angle}
        result, row = priors.measure(pair, {**options, "resolution": resolution}, keypoints=300)
        yield Answer(name, guess, row.right, result.confidence, result.success)


def fit(answers: list[Answer]) -> float:
    """Fit the log odds that a guess adds, to confidences that contain `GUESS_LOG_ODDS`."""
    answers = [a for a in answers if _LEAST < a.confidence < 1 - _LEAST]
    odds = np.array([a.confidence / (1 - a.confidence) for a in answers])
    right = np.array([a.right for a in answers])
    log_odds: Floats = np.log(odds) - GUESS_LOG_ODDS

    def cost(added: float) -> float:
        signed = np.where(right, 1.0, -1.0) * (log_odds + added)
        return float(np.log1p(np.exp(-signed)).sum() + (added / SPREAD) ** 2 / 2)

    return float(minimize_scalar(cost, bounds=(-3, 8), method="bounded").x)


def table(answers: list[Answer]) -> list[list[str]]:
    """Count right poses, successes and wrong successes, per set and kind of guess."""
    rows = [["set", "guess", "n", "right", "success", "wrong success"]]
    for name in dict.fromkeys(a.set for a in answers):
        for guess in dict.fromkeys(a.guess for a in answers):
            own = [a for a in answers if (a.set, a.guess) == (name, guess)]
            figures = [len(own), sum(a.right for a in own), sum(a.success for a in own)]
            rows.append([name, guess, *map(str, figures), str(sum(a.success and not a.right for a in own))])
    return rows


def main(arguments: argparse.Namespace) -> None:
    answers: list[Answer] = []
    for name in arguments.sets:
        if name == "rooms":
            pairs = room_pairs(arguments.pairs, arguments.seed)
        else:
            pairs = priors.SETS[name](arguments.data, arguments.pairs, arguments.seed)
        for number, pair in enumerate(pairs):
            try:
                answers += register_around_guesses(name, pair, np.random.default_rng([7, number]))
            except WSDescError as error:  # a synthetic scan may have too few points
                print(f"{name} {number}: {error}", file=sys.stderr)
    print_machine()
    print_rows(table(answers))
    print(f"log odds that fit best: {fit(answers):.2f} (used: {GUESS_LOG_ODDS})")
    for name in arguments.sets if len(arguments.sets) > 1 else []:
        print(f"without {name}: {fit([a for a in answers if a.set != name]):.2f}")


def parser() -> argparse.ArgumentParser:
    parser = make_parser("guesses", __doc__)
    parser.add_argument("data", type=Path, help="folder of real scans, with indoor/")
    sets = ["train", "sites", "rooms"]
    parser.add_argument(
        "--sets", nargs="+", choices=[*priors.SETS, "rooms"], default=sets, help="sets of pairs"
    )
    parser.add_argument("--pairs", type=int, default=40, help="pairs of each set (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the pairs (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
