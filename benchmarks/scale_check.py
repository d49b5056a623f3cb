"""Measure how well `wsdesc.register` notices that two scans differ in scale.

    python -m benchmarks.scale_check SCENE EVALUATION… [--device cuda] [--seed 0]
    python -m benchmarks.scale_check SCENE --gaps 1 2 3 4 6     calibrate the uncertainty, without truth

    e.g. kitchen kitchen-evaluation kitchen-evaluation-lo

Each pair is registered twice: as it is, and with its source scaled by a random factor of 1 to 30 %, up or
down. Both scans are rotated at random. Prints, for each EVALUATION (a folder of gt.log): the successes
without and with the check of the scale, of the pairs as they are and of the scaled ones; the successes
among scaled pairs by the size of the factor; and the median error of the estimated scale over all poses
that are confident without the check. Degenerate overlaps count as unchecked successes.

With `--gaps` each scan k is registered with the scans k + gap. Prints the number of poses that are confident
without the check, the root mean square of (logarithm of the scale) / (its standard deviation), which should
be 1, and how many exceed 3.
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

    factor: float  # by which the source was scaled
    unchecked: bool  # a success if the scale were not checked
    success: bool
    scale: float


def main(arguments: argparse.Namespace) -> None:
    if arguments.gaps:
        print_machine()
        calibrate(arguments.scene, arguments.gaps, arguments.device)
        return
    rng = np.random.default_rng(arguments.seed)
    table = [["", "n", "unchecked", "success", "scaled: unchecked", "success", "> 3 %", "> 5 %", "error, %"]]
    for folder in arguments.evaluations:
        rows = []
        for pair in show_progress(read_truth(folder), folder.name):
            scans = [wsdesc.read_points(fragment_path(arguments.scene, k)) for k in (pair.j, pair.i)]
            size = float(np.ptp(scans[0], axis=0).max())
            for factor in (1.0, math.exp(rng.choice([-1, 1]) * rng.uniform(math.log(1.01), math.log(1.3)))):
                source, target = (transform(scan, random_pose(rng, size)) for scan in scans)
                rows.append(row_of(factor, wsdesc.register(factor * source, target, device=arguments.device)))
        table.append([folder.name, *summary(rows)])
    print_machine()
    print_rows(table)


def calibrate(scene: Path, gaps: list[int], device: str) -> None:
    """Compare the estimated scales of scans that have one scale with their uncertainty."""
    count = len(list(scene.glob("cloud_bin_*.ply")))
    errors = []
    pairs = [(k, k + gap) for gap in gaps for k in range(count - gap)]
    for source, target in show_progress(pairs, scene.name):
        result = wsdesc.register(fragment_path(scene, source), fragment_path(scene, target), device=device)
        if row_of(1.0, result).unchecked and math.isfinite(result.scale_deviation):
            errors.append(math.log(result.scale) / (result.scale_deviation / result.scale))
    rms = math.sqrt(np.mean(np.square(errors))) if errors else math.nan
    beyond = np.sum(np.abs(errors) > 3)
    print(f"{scene.name}: {len(errors)} of {len(pairs)} pairs, rms {rms:.2f}, {beyond} beyond 3")


def row_of(factor: float, result: Registration) -> Row:
    unchecked = result.evidence is not None and confidences([result.evidence])[0] >= SUCCESS
    return Row(factor, bool(unchecked), result.success, result.scale)


def summary(rows: list[Row]) -> list[str]:
    """Count successes of pairs as they are and of scaled pairs."""
    plain, scaled = ([row for row in rows if (row.factor == 1) == same] for same in (True, False))
    wrong = [abs(math.log(row.factor)) for row in scaled if row.success]
    errors = [abs(math.log(row.scale * row.factor)) for row in rows if row.unchecked]
    counts = [
        len(plain),
        *(sum(row.unchecked for row in plain), sum(row.success for row in plain)),
        *(sum(row.unchecked for row in scaled), sum(row.success for row in scaled)),
        *(sum(size > limit for size in wrong) for limit in (0.03, 0.05)),
    ]
    return [*map(str, counts), f"{100 * np.median(errors):.2f}" if errors else "–"]


if __name__ == "__main__":
    parser = make_parser("scale_check", __doc__)
    parser.add_argument("scene", type=Path, help="folder of cloud_bin_k.ply")
    parser.add_argument("evaluations", type=Path, nargs="*", help="folders of gt.log")
    parser.add_argument("--gaps", type=int, nargs="+", help="differences of the numbers of paired scans")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto")
    parser.add_argument("--seed", type=int, default=0, help="seed of rotations and factors")
    sys.exit(run_command(parser, main))
