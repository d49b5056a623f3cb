"""Measure how well `wsdesc.register` notices that two scans differ in scale.

    python -m benchmarks.scale_check SCENE EVALUATION… [--factors 0.95 0.98 1 1.02 1.04] [--pairs 8]

    e.g. kitchen kitchen-evaluation kitchen-evaluation-lo

Each pair is registered with its source multiplied by each factor. Both scans are rotated and shifted at
random.

Prints, for each EVALUATION (a folder of gt.log) and each factor,

- the number of pairs,
- the successes without and with the check of the scale, and those with a warning about the scale,
- the median error of the estimated scale over all poses that are confident without the check.

`benchmarks.scale_poses` measures the check alone, at right poses.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

import wsdesc
from benchmarks.common import (
    fragment_path,
    make_parser,
    print_machine,
    print_rows,
    random_pose,
    read_truth,
    run_command,
    show_progress,
)
from wsdesc.alignment.confidence import confidences
from wsdesc.core.geometry import transform
from wsdesc.registration.result import SUCCESS, Registration


class Row(NamedTuple):
    """One registration of a pair."""

    unchecked: bool  # a success if the scale were not checked
    success: bool
    warned: bool  # about the scale
    error: float  # of the logarithm of the estimated scale


def main(arguments: argparse.Namespace) -> None:
    """Register all pairs at all factors, and print one row per evaluation and factor."""
    rng = np.random.default_rng(arguments.seed)
    table = [["", "factor", "n", "unchecked", "success", "with a warning", "error, %"]]
    for folder in arguments.evaluations:
        rows: dict[float, list[Row]] = {factor: [] for factor in arguments.factors}
        pairs = read_truth(folder)
        step = max(len(pairs) // arguments.pairs, 1) if arguments.pairs else 1
        for pair in show_progress(pairs[::step][: arguments.pairs], folder.name):
            scans = [wsdesc.read_points(fragment_path(arguments.scene, k)) for k in (pair.j, pair.i)]
            size = float(np.ptp(scans[0], axis=0).max())
            for factor in arguments.factors:
                source, target = (transform(scan, random_pose(rng, size)) for scan in scans)
                result = wsdesc.register(factor * source, target, device=arguments.device)
                rows[factor].append(row_of(factor, result))
        table += [[folder.name, f"{factor:g}", *summary(rows[factor])] for factor in arguments.factors]
    print_machine()
    print_rows(table)


def row_of(factor: float, result: Registration) -> Row:
    """Compare the result for a source that was multiplied by a factor with the truth."""
    unchecked = result.evidence is not None and confidences([result.evidence])[0] >= SUCCESS
    warned = any("scale" in warning for warning in result.warnings)
    return Row(bool(unchecked), result.success, warned, abs(math.log(result.scale * factor)))


def summary(rows: list[Row]) -> list[str]:
    """Count the successes at one factor."""
    errors = [row.error for row in rows if row.unchecked]
    counts = [
        len(rows),
        sum(row.unchecked for row in rows),
        sum(row.success for row in rows),
        sum(row.success and row.warned for row in rows),
    ]
    return [*map(str, counts), f"{100 * np.median(errors):.2f}" if errors else "–"]


if __name__ == "__main__":
    parser = make_parser("scale_check", __doc__)
    parser.add_argument("scene", type=Path, help="folder of cloud_bin_k.ply")
    parser.add_argument("evaluations", type=Path, nargs="+", help="folders of gt.log")
    parser.add_argument("--factors", type=float, nargs="+", default=[0.95, 0.98, 1.0, 1.02, 1.04])
    parser.add_argument("--pairs", type=int, help="pairs of each evaluation (default: all)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto")
    parser.add_argument("--seed", type=int, default=0, help="seed of the poses")
    sys.exit(run_command(parser, main))
