"""Measure how exact the ground truth of pairs is.

    python -m benchmarks.truth SCENE EVALUATION…      e.g. kitchen kitchen-evaluation kitchen-evaluation-lo

Scans that were fused from depth frames are slightly bent, so that their surfaces fit best at another pose
than the true one. Each pair is refined starting at its true pose. Prints, for each EVALUATION (a folder of
gt.log): the number of pairs, the median rotation (degrees) and distance (scan's unit) between both poses, and
the percentage of pairs whose refined pose fits better than the true one.
"""

from __future__ import annotations

import argparse
import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import (
    fragment_path,
    make_parser,
    percent,
    print_machine,
    print_rows,
    read_truth,
    run_command,
    show_progress,
)
from wsdesc import read_points
from wsdesc.alignment.refine import OVERLAP_DISTANCE, orthonormalise, refine
from wsdesc.alignment.surface import Surface, make_surface
from wsdesc.alignment.verify import score_refinement, verify
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.evaluation import rotation_error_deg, translation_error


def main(arguments: argparse.Namespace) -> None:
    resolution = arguments.resolution
    distance = OVERLAP_DISTANCE * resolution

    @cache
    def surface(number: int) -> Surface:
        points = torch.from_numpy(read_points(fragment_path(arguments.scene, number), nonfinite="drop"))
        return make_surface(voxel_downsample(points, resolution))

    table = [["", "n", "median °", "median distance", "refined pose fits better, %"]]
    for folder in arguments.evaluations:
        rows = []
        for pair in show_progress(read_truth(folder), folder.name):
            source, target, T_true = surface(pair.j), surface(pair.i), orthonormalise(pair.T_i_j)
            (refined,) = refine(source, target, T_true[None], resolution)
            (true_score,) = verify(source, target, T_true[None], distance)
            poses = (refined.T_target_source, T_true)
            better = score_refinement(refined.score, distance) > score_refinement(true_score, distance)
            rows.append((float(rotation_error_deg(*poses)), float(translation_error(*poses)), better))
        degrees, distances, is_better = zip(*rows, strict=True)
        medians = [f"{np.median(degrees):.2f}", f"{np.median(distances):.3f}"]
        table.append([folder.name, str(len(rows)), *medians, percent(np.mean(is_better))])
    print_machine()
    print_rows(table)


def parser() -> argparse.ArgumentParser:
    parser = make_parser("truth", __doc__)
    parser.add_argument("scene", type=Path, help="folder of cloud_bin_k.ply")
    parser.add_argument("evaluations", type=Path, nargs="+", help="folders of gt.log")
    parser.add_argument("--resolution", type=float, default=0.025, help="voxel size in the scans' unit")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
