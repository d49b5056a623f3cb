"""How placing grows with the number of scans, registration aside: simulated pairs, some of them wrong.

    python -m benchmarks.posegraph 300 1000 3000 [--wrong 0.1]

Scans stand in a square, three quarters of a metre apart in rows and columns, each with its 12 nearest ones as
pairs. A share of the pairs has a wrong pose as its best and the right one as its rival, another is wrong
altogether. Errors are the largest over all scans, after the frames were aligned by the first one.
"""

from __future__ import annotations

import argparse
import math
import sys
import time

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from benchmarks.common import or_explain, print_machine, print_rows
from wsdesc.alignment.observability import Information
from wsdesc.core.geometry import inverse
from wsdesc.reconstruction.disambiguation import choose
from wsdesc.reconstruction.loop_closure import judge_edges, place
from wsdesc.reconstruction.pose_graph import Edge, solve

APART, NEAREST, RADIUS = 0.75, 12, 1.5
FIRM = Information(0.3 * np.eye(6), np.zeros(3), 1.0, 0.5, 2000)


def motion(rng: np.random.Generator, angle: float, shift: float) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(rng.normal(0, angle, 3)).as_matrix()
    T[:3, 3] = rng.normal(0, shift, 3)
    return T


def simulate(count: int, wrong: float, rng: np.random.Generator) -> tuple[np.ndarray, list[list[Edge]]]:
    """T_world_scan (count, 4, 4), and the poses of pairs."""
    side = math.ceil(math.sqrt(count))
    T_world_scan = np.stack([motion(rng, 2.0, 0.05) for _ in range(count)])
    places = np.stack(np.unravel_index(np.arange(count), (side, side)), axis=1) * APART
    T_world_scan[:, :2, 3] += places
    near = cKDTree(places).query(places, NEAREST + 1)[1][:, 1:]
    pairs = []
    for i, j in sorted({(min(i, j), max(i, j)) for i, row in enumerate(near.tolist()) for j in row}):
        T_i_j = inverse(T_world_scan[i]) @ T_world_scan[j]
        right = Edge(j, i, T_i_j @ motion(rng, 0.005, 0.01), 0.95, FIRM, 0.01)
        other = Edge(j, i, T_i_j @ motion(rng, 1.0, 1.0), 0.5, FIRM, 0.01)
        kind = rng.random()
        if kind < wrong / 2:
            pairs.append([other._replace(confidence=0.85)])
        elif kind < wrong:
            pairs.append([other, right._replace(confidence=0.45)])
        else:
            pairs.append([right])
    return T_world_scan, pairs


def measure(count: int, wrong: float) -> list[str]:
    T_true, pairs = simulate(count, wrong, np.random.default_rng(0))
    radii = np.full(count, RADIUS)
    seconds = []
    for work in (
        lambda: choose(pairs, radii),
        lambda: judge_edges([poses[0] for poses in pairs], radii),
        lambda: solve(count, [poses[-1] for poses in pairs]),
        lambda: place(pairs, radii),
    ):
        start = time.process_time()
        found = work()
        seconds.append(f"{time.process_time() - start:.1f}")
    placed = found.graph.components[0]
    T = found.graph.T_world_scan[placed]
    T = T_true[placed[0]] @ inverse(T[0]) @ T
    off = np.linalg.norm(T[:, :3, 3] - T_true[placed, :3, 3], axis=1).max()
    return [str(count), str(len(pairs)), *seconds, str(len(placed)), f"{1000 * off:.0f}"]


def main(o: argparse.Namespace) -> None:
    print_machine()
    head = ["scans", "pairs", "choose, s", "judge, s", "solve, s", "all, s", "placed", "largest error, mm"]
    print_rows([head, *(measure(count, o.wrong) for count in o.counts)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("counts", type=int, nargs="+")
    parser.add_argument("--wrong", type=float, default=0.1, help="share of pairs whose best pose is wrong")
    sys.exit(or_explain(lambda: main(parser.parse_args())))
