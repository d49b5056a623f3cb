"""What `wsdesc.registration.pipeline` promises whatever happens to its scans, counted over synthetic rooms.

    python -m benchmarks.properties [--rooms 40] [--rows rows.json]

Each room's pair is registered, then perturbed in every way of `evaluation.perturb` and registered again,
with the defaults. A pose is right if it puts the source's points within 10 cm (root mean square) of where
they belong. "Kept": right and called a success, of those that were before. "Wrong, called a success" must
not be.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import or_explain, percent, print_machine, print_rows, watched
from benchmarks.perturb import EXACT, LOSSY, Posed
from wsdesc import register
from wsdesc.datasets.synthetic import room_pair

DISTURBANCES = {**EXACT, **LOSSY}
RIGHT = 0.1  # metres
GOAL = 0.95  # of the successes, that disturbed scans are to keep


def outcome(pair: Posed, **options: Any) -> dict[str, Any]:
    """Register a pair; whether that went well, and whether the result says so."""
    result = register(pair.source, pair.target, **options)
    off = pair.displacement(result.T_target_source)
    return {"off": off, "right": off < RIGHT, "success": result.success, "confidence": result.confidence}


def room_rows(seed: int, first: int, names: list[str]) -> list[dict[str, Any]]:
    """One room: its pair as it is, and disturbed in every way that is named."""
    made = room_pair(first + seed)
    source, target = made.source.astype(np.float64), made.target.astype(np.float64)
    pair = Posed(source, target, made.T_target_source)
    before = outcome(pair)
    good = before["right"] and before["success"]
    rows = [{"room": first + seed, "disturbance": None, **before}]
    for number, (name, disturb) in enumerate(DISTURBANCES.items()):
        if name in names:
            after = outcome(disturb(pair, np.random.default_rng([seed, number])))
            rows.append({"room": first + seed, "disturbance": name, **after, "before": good})
    return rows


def table_row(name: str, rows: list[dict[str, Any]]) -> list[str]:
    eligible = [r for r in rows if r["before"]]
    kept = [r["right"] and r["success"] for r in eligible]
    off = [1000 * r["off"] for r in rows if r["right"]]
    wrong = sum(r["success"] and not r["right"] for r in rows)
    verdict = "yes" if eligible and np.mean(kept) >= GOAL and wrong == 0 else "NO"
    share = percent(np.mean(kept)) if eligible else "–"
    middle = f"{np.median(off):.1f}" if off else "–"
    return [name, str(len(eligible)), share, str(wrong), f"{sum(r['right'] for r in rows)}", middle, verdict]


def main(o: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for seed in watched(range(o.rooms), "rooms"):
        rows += room_rows(seed, o.first, o.only)
        if o.rows:
            o.rows.write_text(json.dumps(rows))
    print_machine()
    base = [r for r in rows if r["disturbance"] is None]
    good = sum(r["right"] and r["success"] for r in base)
    wrong = sum(r["success"] and not r["right"] for r in base)
    print(f"{len(base)} rooms as they are: {good} right and called so, {wrong} wrong and called a success")
    table = [["disturbance", "n", "kept, %", "wrong, called a success", "right", "median off, mm", "holds"]]
    table += [table_row(name, [r for r in rows if r["disturbance"] == name]) for name in o.only]
    print_rows(table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("--rooms", type=int, default=40)
    parser.add_argument("--first", type=int, default=2000, help="seed of the first room; none of a training")
    parser.add_argument("--only", nargs="+", choices=DISTURBANCES, default=list(DISTURBANCES))
    parser.add_argument("--rows", type=Path, help="keep every case in this json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(or_explain(lambda: main(parse())))
