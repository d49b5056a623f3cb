"""Measure the gain of the structure search over candidates of matches, on synthetic sites.

    python -m benchmarks.structure --sites 3 --kinds courtyard warehouse building

Pairs with a true overlap of 0.1 to 0.5 are registered in one round of 300 keypoints, with and without
structural poses. Prints, per kind of site, with known and with unknown viewpoints,

- the share of pairs whose right pose is the most probable candidate, and among the candidates,
- the successes and how many are wrong,
- the time of a round without descriptors.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import make_parser, print_machine, print_rows, run_command
from benchmarks.label_poses import Unit, describe_scans, first_keypoints, make_scans
from wsdesc.core.geometry import inverse

KEYPOINTS = 300
OVERLAPS = (0.1, 0.5)
MAX_ERROR = 5.0, 0.2  # degrees and model metres of a right pose


class Outcome(NamedTuple):
    """Result of one pair."""

    first: bool  # the most probable candidate is right
    among: bool  # a candidate is right
    success: bool
    seconds: float


def outcomes(kind: str, seed: int) -> Iterator[tuple[str, Outcome]]:
    """Register the pairs of one site; yields a case, as "known, matches", and its outcome."""
    from wsdesc.alignment.surface import make_surface
    from wsdesc.datasets.synthetic import overlap
    from wsdesc.registration.candidates import find_candidates
    from wsdesc.registration.result import SUCCESS

    scans = make_scans(Unit(kind, seed))
    described = [first_keypoints(d, KEYPOINTS) for d in describe_scans(scans, "cpu", "cpu")]
    surfaces = [make_surface(d.points) for d in described]
    for a, b in itertools.combinations(range(len(scans)), 2):
        if scans[a].place != scans[b].place:
            continue
        T_true = _true_pose(scans[a], scans[b], described[a], described[b])
        points = [described[k].points.numpy() for k in (a, b)]
        shared = min(overlap(*points, T_true), overlap(*points[::-1], inverse(T_true)))
        if not OVERLAPS[0] <= shared < OVERLAPS[1]:
            continue
        for viewpoints in ("known", "unknown"):
            p, q = described[a], described[b]
            if viewpoints == "unknown":
                p, q = (replace(d, range_image=None) for d in (p, q))
            for proposed_by, structural in (("matches", _nothing), ("structure too", None)):
                start = time.process_time()
                ranked = find_candidates(p, q, (surfaces[a], surfaces[b]), structural=structural).ranked
                seconds = time.process_time() - start
                right = [_is_right(candidate.refined.T_target_source, T_true) for candidate in ranked]
                success = bool(ranked) and ranked[0].confidence >= SUCCESS
                yield (
                    f"{viewpoints}, {proposed_by}",
                    Outcome(right[:1] == [True], any(right), success, seconds),
                )


def _nothing() -> np.ndarray:
    return np.zeros((0, 4, 4))


def _true_pose(source: Any, target: Any, p: Any, q: Any) -> np.ndarray:
    T = inverse(target.T_world_scan) @ source.T_world_scan
    T_true = inverse(q.T_scan_local) @ T @ p.T_scan_local
    T_true[:3, 3] /= p.unit
    return np.asarray(T_true)


def _is_right(T: np.ndarray, T_true: np.ndarray) -> bool:
    from wsdesc.evaluation.metrics import rotation_error_deg, translation_error

    return bool(rotation_error_deg(T, T_true) < MAX_ERROR[0] and translation_error(T, T_true) < MAX_ERROR[1])


def main(arguments: argparse.Namespace) -> None:
    print_machine()
    rows = [
        [
            "site",
            "viewpoints, poses proposed by",
            "pairs",
            "right",
            "right one among",
            "successes",
            "wrong",
            "CPU s",
        ]
    ]
    for kind in arguments.kinds:
        cases: dict[str, list[Outcome]] = {}
        for seed in range(arguments.first, arguments.first + arguments.sites):
            for case, outcome in outcomes(kind, seed):
                cases.setdefault(case, []).append(outcome)
        for case, results in sorted(cases.items()):
            first, among, success, seconds = np.array(results, dtype=float).T
            wrong = int((success * (1 - first)).sum())
            shares = [f"{100 * first.mean():.1f} %", f"{100 * among.mean():.1f} %"]
            rows.append(
                [
                    kind,
                    case,
                    str(len(results)),
                    *shares,
                    str(int(success.sum())),
                    str(wrong),
                    f"{seconds.mean():.2f}",
                ]
            )
    print_rows(rows)


if __name__ == "__main__":
    parser = make_parser("structure", __doc__)
    kinds = ["courtyard", "warehouse", "building", "hall"]
    parser.add_argument("--kinds", nargs="*", default=kinds, help="kinds of sites (default: %(default)s)")
    parser.add_argument("--sites", type=int, default=3, help="sites of each kind (default: %(default)s)")
    parser.add_argument("--first", type=int, default=80_000, help="first seed (default: %(default)s)")
    sys.exit(run_command(parser, main))
