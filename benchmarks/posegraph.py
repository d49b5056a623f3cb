"""Measure how the time of the pose graph grows with the number of scans, on simulated edges with outliers.

    python -m benchmarks.posegraph 300 1000 3000 [--wrong 0.1]

Scans are in a square grid, 0.75 m apart, each with edges to its 12 nearest neighbours. Half of the wrong
pairs have only a wrong pose; the other half has a wrong pose as its best candidate and the correct one as the
second.

Prints, for each number of scans,

- the number of pairs,
- the processor time of choosing candidates, of rejecting edges, of solving, and of all together,
- the number of scans in the largest component,
- the largest position error in it, after its frame was aligned with the true one by the first scan.
"""

from __future__ import annotations

import argparse
import math
import sys
import time

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from benchmarks.common import make_parser, print_machine, print_rows, run_command
from wsdesc.alignment.information import Information
from wsdesc.core.geometry import inverse, make_pose
from wsdesc.reconstruction.disambiguation import CandidatePoses, first_layout
from wsdesc.reconstruction.joint import find_layout
from wsdesc.reconstruction.placement import place_scans
from wsdesc.reconstruction.pose_graph import Edge, solve

SPACING, NEIGHBOURS, RADIUS = 0.75, 12, 1.5  # metres, edges per scan, metres
INFORMATION = Information(0.3 * np.eye(6), np.zeros(3), 1.0, 0.5, 2000)


def random_pose(rng: np.random.Generator, angle: float, shift: float) -> np.ndarray:
    """Draw a pose with normally distributed rotation vector (radians) and translation (metres)."""
    return make_pose(Rotation.from_rotvec(rng.normal(0, angle, 3)).as_matrix(), rng.normal(0, shift, 3))


def simulate(count: int, wrong: float, rng: np.random.Generator) -> tuple[np.ndarray, list[list[Edge]]]:
    """Simulate T_world_scan (count, 4, 4) and the candidates of each pair."""
    side = math.ceil(math.sqrt(count))
    T_world_scan = np.stack([random_pose(rng, 2.0, 0.05) for _ in range(count)])
    positions = np.stack(np.unravel_index(np.arange(count), (side, side)), axis=1) * SPACING
    T_world_scan[:, :2, 3] += positions
    neighbours = cKDTree(positions).query(positions, NEIGHBOURS + 1)[1][:, 1:]
    pairs = []
    for i, j in sorted({(min(i, j), max(i, j)) for i, row in enumerate(neighbours.tolist()) for j in row}):
        T_i_j = inverse(T_world_scan[i]) @ T_world_scan[j]
        right = Edge(j, i, T_i_j @ random_pose(rng, 0.005, 0.01), 0.95, INFORMATION, 0.01)
        other = Edge(j, i, T_i_j @ random_pose(rng, 1.0, 1.0), 0.5, INFORMATION, 0.01)
        kind = rng.random()
        if kind < wrong / 2:
            pairs.append([other._replace(confidence=0.85)])
        elif kind < wrong:
            pairs.append([other, right._replace(confidence=0.45)])
        else:
            pairs.append([right])
    return T_world_scan, pairs


def measure(count: int, wrong: float) -> list[str]:
    """Simulate and solve one graph; return the row of the table."""
    T_true, pairs = simulate(count, wrong, np.random.default_rng(0))
    radii = np.full(count, RADIUS)
    poses = CandidatePoses.of(pairs)
    first = first_layout(pairs, poses, radii)
    seconds = []
    for work in (
        lambda: first_layout(pairs, poses, radii),
        lambda: find_layout(poses, radii, first),
        lambda: solve(count, [edges[-1] for edges in pairs]),
        lambda: place_scans(pairs, radii),
    ):
        start = time.process_time()
        result = work()
        seconds.append(f"{time.process_time() - start:.1f}")
    largest = result.graph.components[0]
    T = result.graph.T_world_scan[largest]
    T = T_true[largest[0]] @ inverse(T[0]) @ T
    error = np.linalg.norm(T[:, :3, 3] - T_true[largest, :3, 3], axis=1).max()
    return [str(count), str(len(pairs)), *seconds, str(len(largest)), f"{1000 * error:.0f}"]


def main(arguments: argparse.Namespace) -> None:
    print_machine()
    steps = ["first layout, s", "joint layout, s", "solve, s", "all, s"]
    header = ["scans", "pairs", *steps, "largest component", "largest error, mm"]
    print_rows([header, *(measure(count, arguments.wrong) for count in arguments.counts)])


def parser() -> argparse.ArgumentParser:
    parser = make_parser("posegraph", __doc__)
    parser.add_argument("counts", type=int, nargs="+", help="numbers of scans")
    parser.add_argument(
        "--wrong", type=float, default=0.1, help="share of wrong pairs (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
