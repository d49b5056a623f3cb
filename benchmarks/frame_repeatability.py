"""Measure how many local frames agree between two scans, by radius and orientation radius.

    python -m benchmarks.frame_repeatability [--scenes 24] [--seed 77]

Scans are synthetic rooms and sites with known poses. A frame of a scan agrees with that of the coinciding
point of the other scan if they differ by less than 20°.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import make_parser, print_machine, print_rows, run_command
from wsdesc import local_frames
from wsdesc.core.geometry import Floats, inverse
from wsdesc.learning.match_trainer import matches_by_pose
from wsdesc.learning.synthetic_scenes import make_scene

RADII = ((0.3, 0.3), (0.6, 0.6), (0.3, 0.45), (0.3, 0.6), (0.3, 0.8))  # of z, and of the orientation
MAX_ANGLE = 20.0  # degrees between frames that agree
MATCH_DISTANCE = 0.025  # metres: points nearer to each other coincide
MATCHES = 300  # per pair of scans


def coinciding(p: Tensor, q: Tensor, T_q_p: Floats) -> Tensor:
    """Draw matches (K, 2) of points that coincide."""
    matches = matches_by_pose(p, q, T_q_p, MATCH_DISTANCE)
    order = torch.randperm(len(matches), generator=torch.Generator().manual_seed(0))
    return matches[order[:MATCHES]]


def agreement(p: Tensor, q: Tensor, T_q_p: Floats, radius: float, outer: float) -> tuple[float, float]:
    """Compute the shares of frames that agree, and of axes z that do."""
    rows = coinciding(p, q, T_q_p)
    frames = [
        local_frames(cloud, cloud[row], radius, outer).frames.double()
        for cloud, row in zip((p, q), rows.T, strict=True)
    ]
    between = (torch.from_numpy(T_q_p[:3, :3]) @ frames[0]).mT @ frames[1]
    trace = between.diagonal(dim1=1, dim2=2).sum(1)
    cosine = np.cos(np.radians(MAX_ANGLE))
    return float(((trace - 1) / 2 > cosine).double().mean()), float(
        (between[:, 2, 2] > cosine).double().mean()
    )


def main(arguments: argparse.Namespace) -> None:
    pairs = {"rooms": [], "sites": []}
    for index in range(arguments.scenes):
        p, q, *_ = make_scene(arguments.seed, index)
        T_q_p = inverse(q.T_world_local) @ p.T_world_local
        if len(coinciding(p.points, q.points, T_q_p)) == MATCHES:
            pairs["sites" if index % 2 else "rooms"].append((p.points, q.points, T_q_p))
    rows = [
        ["radius", "orientation radius", *(f"{name} ({len(of)}): frames, z" for name, of in pairs.items())]
    ]
    for radius, outer in RADII:
        means = [np.mean([agreement(*pair, radius, outer) for pair in of], axis=0) for of in pairs.values()]
        rows.append([str(radius), str(outer), *(f"{100 * a:.0f} %, {100 * z:.0f} %" for a, z in means)])
    print_machine()
    print_rows(rows)


def parser() -> argparse.ArgumentParser:
    parser = make_parser("frame_repeatability", __doc__)
    parser.add_argument("--scenes", type=int, default=24, help="number of scenes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=77, help="seed of the scenes (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
