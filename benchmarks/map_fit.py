"""Fit the confidence of `wsdesc locate` to candidates that `maps` wrote.

    python -m benchmarks.maps --first-seed 21000 --candidates exact.jsonl
    python -m benchmarks.maps --first-seed 22000 --pose-error 0.008 --candidates inexact.jsonl
    python -m benchmarks.maps --first-seed 31000 --kinds room --resolution 0.06 --candidates rooms.jsonl
    python -m benchmarks.maps --first-seed 24000 --kinds building hall courtyard warehouse stairwell street \
        --sensor lidar64 --candidates sites.jsonl
    python -m benchmarks.map_fit *.jsonl -o src/wsdesc/mapping/confidence.json

The mapped scans of real maps have errors of their poses, so some of these maps have them, too. The model of
the package was fitted to 180 scans of 102 such sites by terrestrial scanners and lidars.

Prints recall and precision on sites that were left out: each sixth of the sites is answered by a model of the
others. Writes the model of all sites.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibrate import Answer, Group, answer, fit
from benchmarks.common import make_parser, percent, print_rows, run_command
from benchmarks.maps import COVERED
from wsdesc.alignment.confidence import ConfidenceModel
from wsdesc.alignment.evidence import Evidence
from wsdesc.mapping.evidence import CONFIDENCE_FILE, FEATURES, MapEvidence, features
from wsdesc.registration.result import SUCCESS

REGULARISATION = 0.1  # of the log odds that a feature adds over its range, in units of a scan
_PARTS = 6


def read_groups(path: Path) -> list[Group]:
    """Read the candidates of all scans and rounds; each file is a domain."""
    groups = []
    for number, line in enumerate(path.read_text().splitlines()):
        query = json.loads(line)
        for k, candidates in enumerate(query["rounds"]):
            evidence = [_read_evidence(**candidate["evidence"]) for candidate in candidates]
            right, valid = ([candidate[key] for candidate in candidates] for key in ("right", "valid"))
            covered = -1.0 if query["covered"] is None else query["covered"]
            pair = (str(path), query["site"], 0, number, 0)
            groups.append(
                Group(path.stem, pair, k, covered, features(evidence), np.array(right, bool), np.array(valid))
            )
    return groups


def _read_evidence(pair: dict[str, Any], **others: Any) -> MapEvidence:
    return MapEvidence(Evidence(**pair), **others)


def fit_model(groups: list[Group]) -> ConfidenceModel:
    """Fit the confidence of candidates in maps."""
    fitted = [g._replace(domain="", overlap=-1.0) for g in groups if len(g.right)]  # all scans weigh the same
    return fit(fitted, effects=FEATURES, regularisation=REGULARISATION)


def answer_left_out(groups: list[Group]) -> list[Answer]:
    """Answer the scans of each part of the sites by a model of the others."""
    sites = sorted({g.pair[:2] for g in groups})
    part = {site: k % _PARTS for k, site in enumerate(sites)}
    answers = []
    for k in range(_PARTS):
        model = fit_model([g for g in groups if part[g.pair[:2]] != k])
        answers += answer([g for g in groups if part[g.pair[:2]] == k], model, (0, 1))
    return answers


def table(answers: Sequence[Answer]) -> list[list[str]]:
    """Summarise the results, one row per file."""
    rows = [["file", "scans in the map", "recall", "successes", "precision", "strangers", "located"]]
    for name in sorted({j.domain for j in answers}):
        own = [j for j in answers if j.domain == name]
        mapped, strangers = [j for j in own if j.overlap >= COVERED], [j for j in own if j.overlap < 0]
        successes = [j for j in own if j.confidence >= SUCCESS]
        right = sum(j.right for j in successes)
        recalled = sum(j.right and j.confidence >= SUCCESS for j in mapped)
        located = sum(j.confidence >= SUCCESS for j in strangers)
        rows.append(
            [
                name,
                str(len(mapped)),
                percent(recalled / max(1, len(mapped))),
                str(len(successes)),
                percent(right / max(1, len(successes))),
                str(len(strangers)),
                str(located),
            ]
        )
    return rows


def main(arguments: argparse.Namespace) -> None:
    groups = [group for path in arguments.candidates for group in read_groups(path)]
    print_rows(table(answer_left_out(groups)))
    model = fit_model(groups)
    for name, values in zip(FEATURES, model.log_odds, strict=True):
        print(f"  {name:22s} {np.ptp(values):6.2f}")
    if arguments.output is not None:
        model.save(arguments.output, FEATURES)


if __name__ == "__main__":
    parser = make_parser("map_fit", __doc__)
    parser.add_argument("candidates", type=Path, nargs="+", help="files of `maps --candidates`")
    parser.add_argument(
        "-o", "--output", type=Path, help=f"file of the model, such as {CONFIDENCE_FILE.name}"
    )
    sys.exit(run_command(parser, main))
