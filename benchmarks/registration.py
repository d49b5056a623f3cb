"""Success, trust and time of `wsdesc.register` with its defaults on real pairs, each scan turned at random.

    python -m benchmarks.registration SCENE EVALUATION… --foreign OTHER_SCENE… --diagram docs/reliability.png

SCENE is a folder of cloud_bin_k.ply, EVALUATION one of gt.log and gt.info, OTHER_SCENE scans of other places:
as many pairs that do not overlap as there are overlapping ones are made of these. `--unit` is what counts as
a metre: the error allowed is 0.2 of it by R1, 15° and 0.3 of it by R2.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from benchmarks.common import Pair, or_explain, percent, print_machine, print_rows, read_pairs, watched
from benchmarks.report.reliability_diagram import draw_reliability
from wsdesc import read_points, register
from wsdesc.evaluation import r1_counts, r1_success, r2_success, rotation_error_deg, translation_error
from wsdesc.evaluation.reliability import reliability


def turned(path: Path, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The scan turned about the origin, and T_turned_file."""
    rng = np.random.default_rng([seed, int(path.stem.rsplit("_", 1)[1])])
    T = np.eye(4)
    T[:3, :3] = Rotation.from_quat(rng.normal(size=4)).as_matrix()
    return read_points(path, nonfinite="drop") @ T[:3, :3].T, T


def run(source: Path, target: Path, o: argparse.Namespace) -> tuple[Any, np.ndarray, float]:
    """The result, its pose for the files as they are, and the seconds it took."""
    (p, T_p), (q, T_q) = turned(source, o.seed), turned(target, o.seed + 1)
    options = {"model": o.model, "solver": o.solver, "device": o.device, "resolution": o.resolution}
    start = time.perf_counter()
    result = register(p, q, seed=o.seed, **options)
    seconds = time.perf_counter() - start
    return result, np.linalg.inv(T_q) @ result.T_target_source @ T_p, seconds


def judge(name: str, pair: Pair, o: argparse.Namespace) -> dict[str, Any]:
    """One overlapping pair."""
    files = [o.scene / f"cloud_bin_{k}.ply" for k in (pair.j, pair.i)]
    result, T, seconds = run(*files, o)
    T_i_j = torch.from_numpy(T)
    row = describe(name, result, seconds)
    row["pair"] = [pair.i, pair.j]
    row["r2"] = bool(r2_success(T_i_j, pair.T_i_j, o.unit))
    if pair.information is not None and r1_counts(pair.i, pair.j):
        row["r1"] = bool(r1_success(T_i_j, pair.T_i_j, pair.information, o.unit))
    row["degrees"] = float(rotation_error_deg(T_i_j, pair.T_i_j))
    row["distance"] = float(translation_error(T_i_j, pair.T_i_j))
    return row


def describe(name: str, result: Any, seconds: float) -> dict[str, Any]:
    return {
        "set": name,
        "confidence": result.confidence,
        "success": result.success,
        "overlap": result.overlap,
        "resolution": result.resolution,
        "seconds": seconds,
        "timings": result.timings,
        "evidence": result.evidence and result.evidence._asdict(),
    }


def strangers(o: argparse.Namespace, count: int) -> list[tuple[Path, Path]]:
    """Pairs of a scan of the scene and one of another place."""
    ours = sorted(o.scene.glob("cloud_bin_*.ply"))
    others = sorted(f for folder in o.foreign for f in folder.glob("cloud_bin_*.ply"))
    pairs = [(a, b) for a in ours for b in others]
    chosen = np.random.default_rng(o.seed).permutation(len(pairs))[:count]
    return [pairs[k] for k in np.sort(chosen)]


def share(values: list[Any]) -> str:
    known = [v for v in values if v is not None]
    return f"{percent(np.mean(known))} ({len(known)})" if known else "–"


def table_row(name: str, rows: list[dict[str, Any]]) -> list[str]:
    right = [r for r in rows if r["r2"]]
    middle = [f"{np.median([r[k] for r in right]):.3g}" if right else "–" for k in ("degrees", "distance")]
    return [
        name,
        share([r.get("r1") for r in rows]),
        share([r["r2"] for r in rows]),
        share([r["success"] for r in rows]),
        *middle,
        f"{np.median([r['seconds'] for r in rows]):.2f}",
        f"{np.median([r['resolution'] for r in rows]):.3g}",
    ]


def main(o: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    table = [["", "R1 (n)", "R2 (n)", "success (n)", "median °", "median distance", "median s", "resolution"]]
    for folder in o.evaluations:
        pairs = read_pairs(folder)[:: o.every]
        some = [judge(folder.name, pair, o) for pair in watched(pairs, folder.name)]
        table.append(table_row(folder.name, some))
        rows += some
    if len(o.evaluations) > 1:
        table.append(table_row("all", rows))
    count = len(rows) if o.strangers is None else o.strangers
    for source, target in watched(strangers(o, count) if o.foreign else [], "strangers"):
        result, _, seconds = run(source, target, o)
        rows.append({**describe("strangers", result, seconds), "r2": False})
    print_machine()
    print_rows(table)
    steps: dict[str, list[float]] = {}
    for row in rows:
        for step, seconds in row["timings"].items():
            steps.setdefault(step, []).append(seconds)
    print("median seconds:", ", ".join(f"{name} {np.median(s):.2f}" for name, s in steps.items()))
    sure, right = [r["confidence"] for r in rows], [r["r2"] for r in rows]
    print(reliability(sure, right))
    if o.diagram:
        draw_reliability(sure, right, o.diagram, f"{o.scene.name}, {len(rows)} pairs")
    if o.rows:
        o.rows.write_text(json.dumps(rows))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("scene", type=Path, help="folder of cloud_bin_k.ply")
    parser.add_argument("evaluations", type=Path, nargs="+", help="folders of gt.log and gt.info")
    parser.add_argument("--foreign", type=Path, nargs="*", default=[], help="scans of other places")
    parser.add_argument("--strangers", type=int, help="pairs with those (default: as many as overlap)")
    parser.add_argument("--unit", type=float, default=1.0, help="what counts as a metre in these files")
    parser.add_argument("--model", default="indoor-fast")
    parser.add_argument("--solver", default="consensus")
    parser.add_argument("--resolution", type=float, help="default: found by itself")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--every", type=int, default=1, help="take every k-th pair")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--diagram", type=Path, help="draw the reliability diagram into this png")
    parser.add_argument("--rows", type=Path, help="keep every pair in this json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(or_explain(lambda: main(parse())))
