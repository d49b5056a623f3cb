"""Register sparse scans, two noisy samples of 717 points of a shape, at the distance of their points or not.

    python -m benchmarks.sparse_shapes modelnet40_ply_hdf5_2048 --first 162 --count 45

The shapes are training shapes of ModelNet40, so that test shapes choose nothing. They have 1 024 points. The
samples are drawn from points between neighbouring ones, then cut and moved as in RPM-Net's protocol up to
180°. A pose is right within 15° and 0.3 radii.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
from scipy.spatial import cKDTree

from benchmarks.common import (
    add_model_option,
    make_parser,
    print_machine,
    print_rows,
    run_command,
    show_progress,
)
from wsdesc import register
from wsdesc.datasets.modelnet40 import read_split
from wsdesc.datasets.partial_views import independent_pair
from wsdesc.evaluation import rotation_error_deg, translation_error
from wsdesc.registration import schedule

_SHAPES_SEED, _PAIRS_SEED = 5, 7
_SAMPLES = 3072


def resample(shape: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw points (3072, 3) of triangles between a point of the shape (N, 3) and two of its neighbours."""
    _, near = cKDTree(shape).query(shape, k=5)
    i = rng.integers(len(shape), size=_SAMPLES)
    j, k = (near[i, rng.integers(1, 5, size=_SAMPLES)] for _ in range(2))
    a, b, c = rng.dirichlet((1, 1, 1), size=_SAMPLES).T[..., None]
    return (a * shape[i] + b * shape[j] + c * shape[k]).astype(np.float32)


def main(arguments: argparse.Namespace) -> None:
    shapes = read_split(arguments.data, "train").points
    order = np.random.default_rng(_SHAPES_SEED).permutation(len(shapes))
    numbers = range(arguments.first, arguments.first + arguments.count)
    results: dict[str, list[tuple[float, bool, bool, float]]] = {"resolution": [], "distance of points": []}
    for number in show_progress(numbers, "pairs"):
        rng = np.random.default_rng([_PAIRS_SEED, number])
        pair = independent_pair(resample(shapes[order[number]], rng), rng, max_angle=180.0)
        for name, rows in results.items():
            chosen = schedule.coarsening if name != "resolution" else lambda p, q: 1.0
            begin = time.perf_counter()
            with mock.patch.object(schedule, "coarsening", chosen):
                result = register(pair.source, pair.target, model=arguments.model, device=arguments.device)
            seconds = time.perf_counter() - begin
            angle = float(rotation_error_deg(result.T_target_source, pair.T_target_source))
            right = angle < 15 and translation_error(result.T_target_source, pair.T_target_source) < 0.3
            rows.append((angle, right, result.success, seconds))
    print_machine()
    table = [["aligned at the", "n", "right", "success", "wrong success", "median error (°)", "s"]]
    for name, rows in results.items():
        angles, right, success, seconds = (np.array(column) for column in zip(*rows, strict=True))
        counts = [len(rows), right.sum(), success.sum(), (success & ~right).sum()]
        table.append([name, *map(str, counts), f"{np.median(angles):.2f}", f"{seconds.mean():.2f}"])
    print_rows(table)


def parser() -> argparse.ArgumentParser:
    parser = make_parser("sparse_shapes", __doc__)
    parser.add_argument("data", type=Path, help="folder of ModelNet40")
    parser.add_argument("--first", type=int, default=0, help="number of the first shape")
    parser.add_argument("--count", type=int, default=45, help="shapes (default: %(default)s)")
    add_model_option(parser)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or auto")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
