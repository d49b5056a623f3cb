"""Measure success, confidence and time of `wsdesc.register` with default options on real pairs.

    python -m benchmarks.registration SCENE EVALUATION… --foreign OTHER_SCENE… --diagram reliability.png

SCENE is a folder of cloud_bin_k.ply, EVALUATION a folder of gt.log and gt.info, OTHER_SCENE a folder of scans
of another place. Every scan is rotated at random. Scans of SCENE and OTHER_SCENE form pairs without overlap,
as many as there are overlapping ones. `--unit` is the length of one metre in the files: R1 allows 0.2 m, R2
15° and 0.3 m.

Prints, for each EVALUATION: the share of correct poses by R1 and R2, the share of successes, median errors of
the correct poses, median time and resolution. Then the median time of each step, and precision, recall and
calibration error of the confidence over all pairs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    add_model_option,
    fragment_path,
    make_parser,
    percent,
    print_machine,
    print_rows,
    random_rotation,
    read_truth,
    run_command,
    show_progress,
)
from benchmarks.report.reliability_diagram import draw_reliability
from wsdesc import Registration, read_points, register
from wsdesc.core.geometry import rotate
from wsdesc.evaluation import r1_counts, r1_success, r2_success, rotation_error_deg, translation_error
from wsdesc.evaluation.reliability import reliability
from wsdesc.evaluation.scenes import PairTruth

Row = dict[str, Any]


def read_rotated(path: Path, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Read a scan and rotate it about the origin; return it with T_rotated_file."""
    T = random_rotation(np.random.default_rng([seed, int(path.stem.rsplit("_", 1)[1])]))
    return rotate(read_points(path, nonfinite="drop"), T), T


def register_files(
    source: Path, target: Path, arguments: argparse.Namespace
) -> tuple[Registration, np.ndarray, float]:
    """Register two rotated scans; return the result, its pose for the files, and the seconds."""
    (p, T_p), (q, T_q) = read_rotated(source, arguments.seed), read_rotated(target, arguments.seed + 1)
    names = ("model", "solver", "device", "resolution", "seed")
    options: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    start = time.perf_counter()
    result = register(p, q, **options)
    seconds = time.perf_counter() - start
    return result, np.linalg.inv(T_q) @ result.T_target_source @ T_p, seconds


def score_pair(name: str, pair: PairTruth, arguments: argparse.Namespace) -> Row:
    """Register an overlapping pair and compare it with the ground truth."""
    files = [fragment_path(arguments.scene, number) for number in (pair.j, pair.i)]
    result, T_i_j, seconds = register_files(files[0], files[1], arguments)
    row = result_row(name, result, seconds)
    row["pair"] = [pair.i, pair.j]
    row["r2"] = bool(r2_success(T_i_j, pair.T_i_j, arguments.unit))
    if pair.information is not None and r1_counts(pair.i, pair.j):
        row["r1"] = bool(r1_success(T_i_j, pair.T_i_j, pair.information, arguments.unit))
    row["degrees"] = float(rotation_error_deg(T_i_j, pair.T_i_j))
    row["distance"] = float(translation_error(T_i_j, pair.T_i_j))
    return row


def result_row(name: str, result: Registration, seconds: float) -> Row:
    """Collect the figures of one registration."""
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


def foreign_pairs(arguments: argparse.Namespace, count: int) -> list[tuple[Path, Path]]:
    """Draw pairs of a scan of the scene and a scan of another place."""
    own = sorted(arguments.scene.glob("cloud_bin_*.ply"))
    foreign = sorted(file for folder in arguments.foreign for file in folder.glob("cloud_bin_*.ply"))
    pairs = [(a, b) for a in own for b in foreign]
    chosen = np.random.default_rng(arguments.seed).permutation(len(pairs))[:count]
    return [pairs[k] for k in np.sort(chosen)]


def share(values: list[Any]) -> str:
    """Format a share with its n; None does not count."""
    counted = [value for value in values if value is not None]
    return f"{percent(np.mean(counted))} ({len(counted)})" if counted else "–"


def table_row(name: str, rows: list[Row]) -> list[str]:
    """Summarise pairs in one row of the table."""
    right = [row for row in rows if row["r2"]]
    medians = [f"{np.median([r[k] for r in right]):.3g}" if right else "–" for k in ("degrees", "distance")]
    return [
        name,
        share([row.get("r1") for row in rows]),
        share([row["r2"] for row in rows]),
        share([row["success"] for row in rows]),
        *medians,
        f"{np.median([row['seconds'] for row in rows]):.2f}",
        f"{np.median([row['resolution'] for row in rows]):.3g}",
    ]


def main(arguments: argparse.Namespace) -> None:
    rows: list[Row] = []
    table = [["", "R1 (n)", "R2 (n)", "success (n)", "median °", "median distance", "median s", "resolution"]]
    for folder in arguments.evaluations:
        pairs = read_truth(folder)[:: arguments.every]
        scored = [score_pair(folder.name, pair, arguments) for pair in show_progress(pairs, folder.name)]
        table.append(table_row(folder.name, scored))
        rows += scored
    if len(arguments.evaluations) > 1:
        table.append(table_row("all", rows))
    count = len(rows) if arguments.foreign_pairs is None else arguments.foreign_pairs
    pairs_without_overlap = foreign_pairs(arguments, count) if arguments.foreign else []
    for source, target in show_progress(pairs_without_overlap, "pairs without overlap"):
        result, _, seconds = register_files(source, target, arguments)
        rows.append({**result_row("foreign", result, seconds), "r2": False})
    print_machine()
    print_rows(table)
    steps: dict[str, list[float]] = {}
    for row in rows:
        for step, seconds in row["timings"].items():
            steps.setdefault(step, []).append(seconds)
    print("median seconds:", ", ".join(f"{name} {np.median(s):.2f}" for name, s in steps.items()))
    confidences, right = [row["confidence"] for row in rows], [row["r2"] for row in rows]
    print(reliability(confidences, right))
    if arguments.diagram:
        title = f"{arguments.scene.name}, {len(rows)} pairs"
        draw_reliability(confidences, right, arguments.diagram, title)
    if arguments.rows:
        arguments.rows.write_text(json.dumps(rows))


def parser() -> argparse.ArgumentParser:
    parser = make_parser("registration", __doc__)
    parser.add_argument("scene", type=Path, help="folder of cloud_bin_k.ply")
    parser.add_argument("evaluations", type=Path, nargs="+", help="folders of gt.log and gt.info")
    parser.add_argument(
        "--foreign", type=Path, nargs="*", default=[], help="folders of scans of other places"
    )
    parser.add_argument("--foreign-pairs", type=int, help="pairs without overlap (default: as many as with)")
    parser.add_argument("--unit", type=float, default=1.0, help="length of one metre in the files")
    add_model_option(parser)
    parser.add_argument("--solver", default="consensus", help="pose solver (default: %(default)s)")
    parser.add_argument("--resolution", type=float, help="working resolution (default: measured)")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto (default: %(default)s)")
    parser.add_argument("--every", type=int, default=1, help="step between pairs (default: all pairs)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the rotations and of register")
    parser.add_argument("--diagram", type=Path, help="PNG file for the reliability diagram")
    parser.add_argument("--rows", type=Path, help="JSON file for the figures of every pair")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
