"""Measure how well free space separates right from wrong poses, and how well viewpoints are detected.

    python -m benchmarks.free_space [SITE…] [--sensors SENSOR…] [--seeds 2]     poses of synthetic scans
    python -m benchmarks.free_space [SITE…] --detection                         viewpoints
    python -m benchmarks.free_space --detection --files SCAN… [--motions 40]    viewpoints of files
    python -m benchmarks.free_space --scene SCENE --evaluation FOLDER           poses of real scans

The first table has the share of violating points, in percent, per site and sensor, at

- the true poses (median and largest),
- poses that are wrong by about 0.3° and half a resolution (95 % quantile),
- poses that are wrong by about 2° and two resolutions, measured as unrefined (95 % quantile),
- poses that are wrong by 90°, 180° or 270° about the vertical and a translation (5 % quantile and median).

The last column is the share of wrong poses with more violation than every true pose.

With `--detection`, scans of each sensor are tried as they are, thinned to 1 % and 2 % of the median range,
shifted by 0.25, 1 and 3 median ranges, centred, and merged with a second scan. FILES are tried as they are,
and after so many random motions, shifted by up to three times their size: then none should be detected.

With `--scene`, the pairs of gt.log are measured at their true poses, and at the best candidates of a
registration, right or wrong (0.2 of the extent, 15°).
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial.transform import Rotation

import wsdesc
from benchmarks.common import (
    fragment_path,
    make_parser,
    print_rows,
    random_pose,
    read_truth,
    run_command,
    show_progress,
)
from wsdesc.alignment.free_space import measure_free_space
from wsdesc.alignment.surface import Surface, make_surface
from wsdesc.cloud.range_image import RangeImage
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION, measure
from wsdesc.cloud.viewpoint_detection import detect_viewpoint
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, inverse, make_pose, transform
from wsdesc.datasets.synthetic.scanning import SyntheticScan
from wsdesc.datasets.synthetic.sites import SITES, SUITABLE
from wsdesc.datasets.synthetic.survey import site_scans
from wsdesc.registration.candidates import find_candidates

_SINGLE = ("lidar16", "lidar32", "lidar64", "lidar128", "terrestrial", "solid_state", "depth_camera")
_RIGHT = (15.0, 0.2)  # degrees, and share of the extent


class Pair(NamedTuple):
    """Two scans at the working resolution, in metres of the model."""

    surfaces: tuple[Surface, Surface]
    images: tuple[RangeImage, RangeImage]
    unit: float

    def violations(self, poses: list[Floats], refined: bool = True) -> list[float]:
        """Measure poses (4, 4) in the unit of the scans."""
        scaled = np.stack(poses)
        scaled[:, :3, 3] /= self.unit
        return [r.violation for r in measure_free_space(*self.surfaces, self.images, scaled, refined=refined)]


def make_pair(source: np.ndarray, target: np.ndarray) -> Pair:
    """Prepare two scans (N, 3) whose viewpoints are their origins."""
    resolution = measure(source, target).resolution
    unit = resolution / INDOOR_RESOLUTION
    scans = [np.ascontiguousarray(points, np.float32) for points in (source, target)]
    p, q = (make_surface(voxel_downsample(torch.from_numpy(s), resolution) / unit) for s in scans)
    a, b = (RangeImage.of(s, np.zeros(3)).scaled(1 / unit) for s in scans)
    return Pair((p, q), (a, b), unit)


def moved(T: Floats, rng: np.random.Generator, degrees: float, distance: float) -> Floats:
    """Move a pose by a random rotation and translation with these standard deviations per axis."""
    turn = Rotation.from_rotvec(np.radians(rng.normal(0, degrees, 3)))
    return T @ make_pose(turn.as_matrix(), rng.normal(0, distance, 3))


def pose_row(name: str, pairs: list[tuple[SyntheticScan, SyntheticScan]], seed: int) -> list[str]:
    """Measure the poses of pairs of scans: one row of the table."""
    rng = np.random.default_rng(seed)
    shares: dict[str, list[float]] = defaultdict(list)
    for source, target in pairs:
        pair = make_pair(source.points, target.points)
        T = inverse(target.T_world_scan) @ source.T_world_scan
        resolution = pair.unit * INDOOR_RESOLUTION
        reach = float(np.median(np.linalg.norm(source.points, axis=1)))
        wrong = []
        for quarter in (1, 2, 3):
            turn = np.eye(4)
            turn[:3, :3] = Rotation.from_euler("z", 90 * quarter, degrees=True).as_matrix()
            wrong += [moved(T @ turn, rng, 0, share * reach) for share in (0.1, 0.3)]
        near = [moved(T, rng, 0.17, 0.3 * resolution) for _ in range(4)]
        rough = [moved(T, rng, 1.2, 1.2 * resolution) for _ in range(4)]
        shares["true"] += pair.violations([T])
        shares["near"] += pair.violations(near)
        shares["rough"] += pair.violations(rough, refined=False)
        shares["wrong"] += pair.violations(wrong)
    true, near_, rough_, wrong_ = (100 * np.array(shares[k]) for k in ("true", "near", "rough", "wrong"))
    numbers = [np.median(true), true.max(), *(np.quantile(x, 0.95) for x in (near_, rough_))]
    numbers += [np.quantile(wrong_, 0.05), np.median(wrong_)]
    return [
        name,
        str(len(pairs)),
        *(f"{n:.2f}" for n in numbers),
        f"{100 * (wrong_ > true.max()).mean():.0f}",
    ]


def measure_sites(arguments: argparse.Namespace) -> None:
    rows = [["violation, %", "n", "true", "max", "near", "rough", "wrong 5 %", "median", "separated, %"]]
    for site in arguments.sites or SITES:
        for sensor in SUITABLE[site]:
            if sensor not in (arguments.sensors or _SINGLE) or sensor not in _SINGLE:
                continue
            seeds = range(arguments.seed, arguments.seed + arguments.seeds)
            scans = [site_scans(site, seed, 3, sensor) for seed in seeds]
            pairs = [(s[i], s[j]) for s in scans for i, j in ((0, 1), (0, 2), (1, 2))]
            rows.append(pose_row(f"{site} {sensor}", pairs, arguments.seed))
    print_rows(rows)


def variants(scans: list[SyntheticScan], rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the scans, and clouds made of them whose origin is no viewpoint."""
    a, b = scans
    reach = float(np.median(np.linalg.norm(a.points, axis=1)))
    yield "as it is", a.points
    yield "as it is", b.points
    for share in (0.01, 0.02):
        thinned = voxel_downsample(torch.from_numpy(a.points), share * reach).numpy()
        yield f"thinned {share:.0%}", thinned
    for share in (0.25, 1.0, 3.0):
        direction = rng.normal(size=3)
        yield f"shifted {share:g}", a.points + share * reach * direction / np.linalg.norm(direction)
    yield "centred", b.points - b.points.mean(axis=0)
    T = inverse(a.T_world_scan) @ b.T_world_scan
    yield "merged", np.concatenate([a.points, b.points @ T[:3, :3].T + T[:3, 3]])


def detect_in_files(files: list[Path], motions: int) -> None:
    """Print which files have a viewpoint at the origin, and how often moved ones seem to have one."""
    rng, detected = np.random.default_rng(1), 0
    for path in files:
        points = wsdesc.read_points(path, nonfinite="drop")
        print(f"{'yes' if detect_viewpoint(points) else 'no':<4}{path}")
        size = float(np.linalg.norm(points.std(axis=0)))
        poses = (random_pose(rng, 3 * size) for _ in range(motions))
        detected += sum(detect_viewpoint(transform(points, T)) for T in poses)
    if motions:
        print(f"moved: {detected} of {motions * len(files)} detected")


def measure_detection(arguments: argparse.Namespace) -> None:
    if arguments.files:
        detect_in_files(arguments.files, arguments.motions)
        return
    counts: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for site in arguments.sites or SITES:
        for sensor in SUITABLE[site]:
            if arguments.sensors and sensor not in arguments.sensors:
                continue
            for seed in range(arguments.seed, arguments.seed + arguments.seeds):
                scans = site_scans(site, seed, 2, sensor)
                for name, points in variants(scans, np.random.default_rng(seed)):
                    counts[sensor][name].append(detect_viewpoint(points))
    names = list(next(iter(counts.values())))
    rows = [["detected", *names]]
    for sensor, answers in counts.items():
        rows.append([sensor, *(f"{sum(answers[name])}/{len(answers[name])}" for name in names)])
    print_rows(rows)


def measure_scene(arguments: argparse.Namespace) -> None:
    rows = [["pair", "true pose, %", "right candidates, %", "wrong candidates, %"]]
    for truth in show_progress(read_truth(arguments.evaluation)[: arguments.pairs], arguments.scene.name):
        scans = [wsdesc.read_points(fragment_path(arguments.scene, k)) for k in (truth.j, truth.i)]
        resolution = measure(*scans).resolution
        described = [
            wsdesc.describe(s, resolution=resolution, viewpoint=(0, 0, 0), device=arguments.device)
            for s in scans
        ]
        p, q = (replace(d, range_image=None) for d in described)  # candidates that free space did not choose
        surfaces = (make_surface(p.points), make_surface(q.points))
        candidates = find_candidates(p, q, surfaces, hypotheses=40, refined=12, seed=0)
        T = inverse(q.T_scan_local) @ truth.T_i_j @ p.T_scan_local
        T[:3, 3] /= p.unit
        poses = [T, *(candidate.refined.T_target_source for candidate in candidates.ranked)]
        images = (described[0].range_image, described[1].range_image)
        shares = [r.violation for r in measure_free_space(*surfaces, images, np.stack(poses))]
        extent = float(p.points.std(dim=0).norm())
        right = [is_right(pose, T, extent) for pose in poses]
        groups = [
            [f"{100 * v:.1f}" for v, r in zip(shares[1:], right[1:], strict=True) if r == k] for k in (1, 0)
        ]
        rows.append([f"{truth.j} {truth.i}", f"{100 * shares[0]:.2f}", *(" ".join(g) or "–" for g in groups)])
    print_rows(rows)


def is_right(pose: Floats, truth: Floats, extent: float) -> bool:
    """Return whether a pose is right, within the limits of this benchmark."""
    error = inverse(truth) @ pose
    degrees = np.degrees(Rotation.from_matrix(error[:3, :3]).magnitude())
    return bool(degrees < _RIGHT[0] and np.linalg.norm(error[:3, 3]) < _RIGHT[1] * extent)


def main(arguments: argparse.Namespace) -> None:
    unknown = [site for site in arguments.sites if site not in SITES]
    if unknown:
        raise InputError(f"unknown site {unknown[0]!r}: choose of {', '.join(SITES)}")
    if arguments.detection or arguments.files:
        measure_detection(arguments)
    elif arguments.scene:
        measure_scene(arguments)
    else:
        measure_sites(arguments)


if __name__ == "__main__":
    parser = make_parser("free_space", __doc__)
    parser.add_argument("sites", nargs="*", help="synthetic sites; all of them if none is named")
    parser.add_argument("--sensors", nargs="+", help="sensors of the synthetic scans")
    parser.add_argument("--seeds", type=int, default=2, help="sites of each kind")
    parser.add_argument("--seed", type=int, default=500, help="first seed of the sites")
    parser.add_argument("--detection", action="store_true", help="table of detected viewpoints")
    parser.add_argument("--files", type=Path, nargs="+", help="scans whose viewpoints are detected")
    parser.add_argument("--motions", type=int, default=0, help="random motions of each file")
    parser.add_argument("--scene", type=Path, help="folder of cloud_bin_k.ply with viewpoints at the origins")
    parser.add_argument("--evaluation", type=Path, help="folder of gt.log")
    parser.add_argument("--pairs", type=int, help="first pairs of gt.log only")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or auto")
    sys.exit(run_command(parser, main))
