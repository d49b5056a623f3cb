"""Count how often `wsdesc.register` stays correct when scans of synthetic rooms are perturbed.

    python -m benchmarks.properties [--rooms 40] [--rows rows.json]

The pair of each room is registered as it is, then after each perturbation of `benchmarks/perturb.py`, with
default options. A pose is correct if the source's points are within 10 cm (root mean square) of their true
positions.

Prints, for each perturbation: the number n of rooms registered successfully before, the percentage of them
that stays correct and a success ("kept"), wrong poses with success (which must be 0), correct poses, and the
median displacement of the correct ones. "holds" is yes if at least 95 % are kept and no wrong pose is a
success.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    make_parser,
    percent,
    print_machine,
    print_rows,
    run_command,
    show_progress,
)
from benchmarks.perturb import EXACT, LOSSY, PosedPair
from wsdesc import register
from wsdesc.datasets.synthetic import room_pair

PERTURBATIONS = {**EXACT, **LOSSY}
MAX_DISPLACEMENT = 0.1  # metres, of a correct pose
MIN_KEPT = 0.95  # share of the successes that perturbed scans must keep

Row = dict[str, Any]


def score(pair: PosedPair) -> Row:
    """Register a pair and compare the pose with the true one."""
    result = register(pair.source, pair.target)
    displacement = pair.displacement(result.T_target_source)
    return {
        "off": displacement,
        "right": displacement < MAX_DISPLACEMENT,
        "success": result.success,
        "confidence": result.confidence,
    }


def score_room(seed: int, first: int, names: list[str]) -> list[Row]:
    """Score the pair of a room as it is, and after each named perturbation."""
    room = room_pair(first + seed)
    source, target = room.source.astype(np.float64), room.target.astype(np.float64)
    pair = PosedPair(source, target, room.T_target_source)
    before = score(pair)
    good = before["right"] and before["success"]
    rows = [{"room": first + seed, "perturbation": None, **before}]
    for number, (name, perturb) in enumerate(PERTURBATIONS.items()):
        if name in names:
            after = score(perturb(pair, np.random.default_rng([seed, number])))
            rows.append({"room": first + seed, "perturbation": name, **after, "before": good})
    return rows


def table_row(name: str, rows: list[Row]) -> list[str]:
    """Summarise one perturbation."""
    eligible = [row for row in rows if row["before"]]
    kept = [row["right"] and row["success"] for row in eligible]
    displacements = [1000 * row["off"] for row in rows if row["right"]]
    wrong = sum(row["success"] and not row["right"] for row in rows)
    holds = bool(eligible) and np.mean(kept) >= MIN_KEPT and wrong == 0
    share = percent(np.mean(kept)) if eligible else "–"
    median = f"{np.median(displacements):.1f}" if displacements else "–"
    right = sum(row["right"] for row in rows)
    return [name, str(len(eligible)), share, str(wrong), str(right), median, "yes" if holds else "NO"]


def main(arguments: argparse.Namespace) -> None:
    rows: list[Row] = []
    for seed in show_progress(range(arguments.rooms), "rooms"):
        rows += score_room(seed, arguments.first, arguments.only)
        if arguments.rows:
            arguments.rows.write_text(json.dumps(rows))
    print_machine()
    unperturbed = [row for row in rows if row["perturbation"] is None]
    good = sum(row["right"] and row["success"] for row in unperturbed)
    wrong = sum(row["success"] and not row["right"] for row in unperturbed)
    print(f"{len(unperturbed)} rooms unperturbed: {good} correct with success, {wrong} wrong with success")
    header = [
        "perturbation",
        "n",
        "kept, %",
        "wrong with success",
        "correct",
        "median displacement, mm",
        "holds",
    ]
    table = [table_row(name, [r for r in rows if r["perturbation"] == name]) for name in arguments.only]
    print_rows([header, *table])


def parser() -> argparse.ArgumentParser:
    parser = make_parser("properties", __doc__)
    parser.add_argument("--rooms", type=int, default=40, help="number of rooms (default: %(default)s)")
    parser.add_argument("--first", type=int, default=2000, help="seed of the first room; unused in training")
    parser.add_argument(
        "--only", nargs="+", choices=PERTURBATIONS, default=list(PERTURBATIONS), help="perturbations"
    )
    parser.add_argument("--rows", type=Path, help="JSON file for the figures of every case")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
