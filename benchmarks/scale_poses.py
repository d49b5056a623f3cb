"""Measure the check of the scale at right poses of pairs with known poses.

    python -m benchmarks.scale_poses --indoor DATA/indoor/train --sites 8

The source of each pair is multiplied by factors around 1, up or down at random. The true pose, moved so that
the middle of the overlap stays, is refined, and the scale is estimated there. Pairs count whose pose stays
right and would be a success with typical matches and without the check. Prints, for each kind of scans and
factor, the share that the check rejects and the number of pairs, and the root mean square of (logarithm of
the scale) / (its standard deviation) at factor 1.

The constants of `wsdesc.alignment.scale` were chosen by this table.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.common import make_parser, print_machine, print_rows, run_command
from benchmarks.label_poses import MIN_POINTS, Scan
from wsdesc.alignment.confidence import confidences
from wsdesc.alignment.evidence import Evidence
from wsdesc.alignment.information import find_degeneracy
from wsdesc.alignment.refine import OVERLAP_DISTANCE, refine
from wsdesc.alignment.scale import RelativeScale, estimate_scale
from wsdesc.alignment.surface import CpuSurface
from wsdesc.cloud.clean import Cleaned
from wsdesc.cloud.files import read_points
from wsdesc.cloud.outliers import remove_outliers
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION, working_resolution
from wsdesc.core.geometry import Floats, inverse, transform
from wsdesc.datasets.scans import natural_order
from wsdesc.datasets.synthetic import SITES, overlap, room_scans, site_scans
from wsdesc.datasets.synthetic.floor import floor_scans
from wsdesc.datasets.threedmatch import read_pose
from wsdesc.descriptor.preparation import clean_scan
from wsdesc.evaluation.metrics import rotation_error_deg, translation_error
from wsdesc.registration.result import SUCCESS

LOGARITHMS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.1)
GAPS = (1, 2, 3, 4, 6)  # differences of the numbers of paired indoor scans
MIN_OVERLAP = 0.12
INLIERS, MATCHES, VOTES = 30, 100, 20.0  # typical matches of a success
MAX_ROTATION, MAX_TRANSLATION = 5.0, 0.25  # degrees and model metres: errors of a right pose
KINDS = {
    **dict.fromkeys(("fused_camera", "depth_camera"), "depth camera"),
    **dict.fromkeys(("structured_light", "orthographic"), "objects"),
    **dict.fromkeys(("room", "floor"), "rooms"),
    "indoor": "indoor",
}  # of a sensor or place; all others are LiDAR


class Row(NamedTuple):
    """One estimated scale."""

    kind: str
    logarithm: float  # of the true factor, without its sign
    scale: RelativeScale


def read_groups(arguments: argparse.Namespace) -> Iterator[tuple[list[Scan], list[tuple[int, int]]]]:
    """Read or make scans that belong together, and list their pairs."""
    for folder in sorted(arguments.indoor.iterdir()) if arguments.indoor else []:
        files = sorted(folder.glob("cloud_bin_*.ply"), key=natural_order)
        scans = [
            Scan(folder.name, "indoor", read_points(f), read_pose(f.with_suffix(".info.txt"))) for f in files
        ]
        yield scans, [(k, k + gap) for gap in GAPS for k in range(len(scans) - gap)]
    makers: dict[str, Any] = {"room": room_scans, "floor": floor_scans}
    for seed, kind in itertools.product(range(arguments.first, arguments.first + arguments.sites), SITES):
        made = site_scans(kind, seed, 4, overlaps=(0.15, 0.9))
        yield from _group(made, kind)
    for seed, kind in itertools.product(range(arguments.first, arguments.first + arguments.sites), makers):
        yield from _group(makers[kind](seed, 4), kind)


def _group(made: list[Any], kind: str) -> Iterator[tuple[list[Scan], list[tuple[int, int]]]]:
    scans = [
        Scan(kind, getattr(scan, "sensor", kind), scan.points, scan.T_world_scan)
        for scan in made
        if len(scan.points) >= MIN_POINTS
    ]
    yield scans, list(itertools.combinations(range(len(scans)), 2))


def prepare(cloud: Cleaned, factor: float, resolution: float) -> CpuSurface:
    """Prepare a scan that is multiplied by a factor as `wsdesc.register` does."""
    points = voxel_downsample(torch.from_numpy(factor * cloud.points), resolution)
    points = remove_outliers(points, resolution) / (resolution / INDOOR_RESOLUTION)
    return CpuSurface.of(points.numpy())


def estimate_at(
    source: CpuSurface, target: CpuSurface, T_true: Floats, factor: float
) -> RelativeScale | None:
    """Refine the true pose for a multiplied source, and estimate the scale; None if it is no success."""
    near = np.isfinite(target.nearest(transform(source.points / factor, T_true), 2 * INDOOR_RESOLUTION)[0])
    if not near.any():
        return None
    T_start = T_true.copy()
    middle = source.points[near].mean(axis=0)
    T_start[:3, 3] += T_true[:3, :3] @ (middle / factor - middle)
    refined = refine(source, target, T_start[None], INDOOR_RESOLUTION)[0]
    T = refined.T_target_source
    at_middle = np.eye(4)
    at_middle[:3, 3] = middle
    moved = translation_error(T @ at_middle, T_start @ at_middle)
    if moved > MAX_TRANSLATION or rotation_error_deg(T, T_start) > MAX_ROTATION:
        return None
    degeneracy = find_degeneracy(refined.information, OVERLAP_DISTANCE * INDOOR_RESOLUTION)
    evidence = Evidence.of(refined.score, degeneracy, inliers=INLIERS, matches=MATCHES, votes=VOTES)
    if degeneracy.kind or confidences([evidence])[0] < SUCCESS:
        return None
    return estimate_scale(source, target, T, INDOOR_RESOLUTION)


def measure_group(scans: list[Scan], pairs: list[tuple[int, int]], rng: np.random.Generator) -> Iterator[Row]:
    """Estimate the scale of all pairs at all factors."""
    clouds = [clean_scan(scan.points) for scan in scans]
    for a, b in pairs:
        resolution = working_resolution(scans[a].points, scans[b].points)
        T = inverse(scans[b].T_world_scan) @ scans[a].T_world_scan
        T = inverse(clouds[b].T_scan_local) @ T @ clouds[a].T_scan_local
        T[:3, 3] /= resolution / INDOOR_RESOLUTION
        source, target = (prepare(clouds[k], 1.0, resolution) for k in (a, b))
        points = source.points, target.points
        if min(overlap(*points, T), overlap(*points[::-1], inverse(T))) < MIN_OVERLAP:
            continue
        for logarithm in LOGARITHMS:
            factor = math.exp(logarithm * rng.choice([-1, 1]))
            scale = estimate_at(prepare(clouds[a], factor, resolution), target, T, factor)
            if scale is not None:
                kind = KINDS.get(scans[a].place) or KINDS.get(scans[a].sensor, "LiDAR")
                yield Row(kind, logarithm, scale)


def main(arguments: argparse.Namespace) -> None:
    """Print one row per kind of scans."""
    rng = np.random.default_rng(arguments.seed)
    rows = [row for group in read_groups(arguments) for row in measure_group(*group, rng)]
    table = [["rejected (n)", *(f"{100 * logarithm:g} %" for logarithm in LOGARITHMS), "rms"]]
    for kind in sorted({row.kind for row in rows}):
        cells = []
        for logarithm in LOGARITHMS:
            scales = [row.scale for row in rows if (row.kind, row.logarithm) == (kind, logarithm)]
            rejected = sum(scale.differs for scale in scales)
            cells.append(f"{100 * rejected / len(scales):.1f} ({len(scales)})" if scales else "–")
        errors = [
            math.log(row.scale.factor) / row.scale.deviation
            for row in rows
            if (row.kind, row.logarithm) == (kind, 0.0)
        ]
        table.append([kind, *cells, f"{math.sqrt(np.mean(np.square(errors))):.2f}" if errors else "–"])
    print_machine()
    print_rows(table)


if __name__ == "__main__":
    parser = make_parser("scale_poses", __doc__)
    parser.add_argument("--indoor", type=Path, help="folder with scenes of scans and poses")
    parser.add_argument("--sites", type=int, default=8, help="synthetic places of each kind")
    parser.add_argument("--first", type=int, default=91_000, help="seed of the first place of each kind")
    parser.add_argument("--seed", type=int, default=0, help="seed of the signs")
    sys.exit(run_command(parser, main))
