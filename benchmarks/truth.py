"""How exact the truth is: where refinement ends that begins at the true poses, and which of both fits better.

    python -m benchmarks.truth SCENE EVALUATION…      e.g. kitchen kitchen-evaluation kitchen-evaluation-lo

Scans are bent: they were fused from frames whose poses and depths have errors. So surfaces meet best at
another pose than the one that the sequence says, and a refinement by surfaces comes no closer to it.
"""

from __future__ import annotations

import argparse
import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import or_explain, percent, print_machine, print_rows, read_pairs, watched
from wsdesc import read_points
from wsdesc.alignment.refine import REACH, merit, refine, rigid
from wsdesc.alignment.surface import Surface
from wsdesc.alignment.verify import agreement
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.evaluation import rotation_error_deg, translation_error


def main(o: argparse.Namespace) -> None:
    reach = REACH * o.resolution

    @cache
    def surface(k: int) -> Surface:
        points = torch.from_numpy(read_points(o.scene / f"cloud_bin_{k}.ply", nonfinite="drop"))
        return Surface.of(voxel_downsample(points, o.resolution).numpy())

    table = [["", "n", "median °", "median distance", "fits better than the truth, %"]]
    for folder in o.evaluations:
        rows = []
        for pair in watched(read_pairs(folder), folder.name):
            source, target, T = surface(pair.j), surface(pair.i), rigid(pair.T_i_j.numpy())
            found = refine(source, target, T, resolution=o.resolution)
            ends = [torch.from_numpy(pose) for pose in (found.T_target_source, T)]
            better = merit(found.agreement, reach) > merit(agreement(source, target, T, reach), reach)
            rows.append((float(rotation_error_deg(*ends)), float(translation_error(*ends)), better))
        degrees, distance, better_than = zip(*rows, strict=True)
        middles = [f"{np.median(degrees):.2f}", f"{np.median(distance):.3f}"]
        table.append([folder.name, str(len(rows)), *middles, percent(np.mean(better_than))])
    print_machine()
    print_rows(table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("scene", type=Path, help="folder of cloud_bin_k.ply")
    parser.add_argument("evaluations", type=Path, nargs="+", help="folders of gt.log")
    parser.add_argument("--resolution", type=float, default=0.025, help="in the scans' unit")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(or_explain(lambda: main(parse())))
