"""Scans with known poses for benchmarks of reconstructions: make, move, write, and compare them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from benchmarks.common import random_rotation
from wsdesc import write_points
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.synthetic import room_scans, site_scans
from wsdesc.datasets.synthetic.floor import floor_scans
from wsdesc.datasets.synthetic.scanning import SyntheticScan
from wsdesc.datasets.threedmatch import find_fragments, read_log, read_pose
from wsdesc.reconstruction.edge_result import EdgeResult

PlacedScan = tuple[str, np.ndarray | None, np.ndarray]  # place, T_world_scan, points (N, 3)
MIN_OVERLAP = 0.2  # share of the points of both scans
TRUTH = "truth.npz"  # file of true poses


class KnownScan(NamedTuple):
    """A scan as written for the reconstruction, and its true pose."""

    place: str  # scans of one place share a frame
    T_world_scan: np.ndarray | None  # None for foreign scans
    centre: np.ndarray  # (3,) of its points
    extent: float
    points: np.ndarray  # (n, 3), a third of them


def make_site(kind: str, seed: int, count: int) -> list[SyntheticScan]:
    """Scan a synthetic site."""
    if kind == "room":
        return room_scans(seed, count)
    if kind == "floor":
        return floor_scans(seed, count)
    return site_scans(kind, seed, count, overlaps=(0.2, 0.9))


def true_poses(scene: Path) -> dict[int, np.ndarray]:
    """Read T_world_scan of all scans from their own files, or chain the pairs of gt.log."""
    numbers = sorted(find_fragments(scene))
    if (scene / f"cloud_bin_{numbers[0]}.info.txt").exists():
        return {k: read_pose(scene / f"cloud_bin_{k}.info.txt") for k in numbers}
    logs = [scene.with_name(f"{scene.name}-evaluation{end}") / "gt.log" for end in ("", "-lo")]
    pairs = [entry for log in logs if log.exists() for entry in read_log(log)]
    poses = {numbers[0]: np.eye(4)}
    for _ in numbers:
        for i, j, _, T_i_j in pairs:
            if i in poses and j not in poses:
                poses[j] = poses[i] @ T_i_j
            elif j in poses and i not in poses:
                poses[i] = poses[j] @ np.linalg.inv(T_i_j)
    if missing := set(numbers) - set(poses):
        raise InputError(f"{scene}: no pose of the scans {sorted(missing)}")
    return poses


def move_randomly(points: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rotate points at random and shift them by up to their extent; return them with T_original_moved."""
    T = random_rotation(rng)
    T[:3, 3] = rng.uniform(-1, 1, 3) * np.ptp(points, axis=0).max()
    return transform(points, T), inverse(T)


def rotated(scans: Sequence[PlacedScan], seed: int) -> list[PlacedScan]:
    """Rotate each scan at random about its origin."""
    rng = np.random.default_rng(seed)
    turned = []
    for place, T_world_scan, points in scans:
        T = random_rotation(rng)
        turned.append((place, T_world_scan @ inverse(T), transform(points, T)))
    return turned


def write_shuffled(
    folder: Path, scans: list[PlacedScan], seed: int, *, moved: bool = True
) -> dict[str, KnownScan]:
    """Write scans (place, T_world_scan, points) shuffled, and moved at random; return the truth by name."""
    rng = np.random.default_rng(seed)
    truth = {}
    for number, k in enumerate(rng.permutation(len(scans))):
        place, T_world_scan, points = scans[k]
        T_scan_moved = np.eye(4)
        if moved:
            points, T_scan_moved = move_randomly(points, rng)
        write_points(folder / f"scan_{number:04d}.ply", points)
        T = None if T_world_scan is None else T_world_scan @ T_scan_moved
        truth[f"scan_{number:04d}.ply"] = KnownScan(
            place, T, points.mean(axis=0), float(np.ptp(scans[k][2], axis=0).max()), points[::3]
        )
    return truth


def save_truth(path: Path, truth: dict[str, KnownScan]) -> None:
    """Write places, true poses, centres and extents of the scans."""
    scans = list(truth.values())
    np.savez(
        path,
        names=list(truth),
        place=[scan.place for scan in scans],
        T_world_scan=np.stack([scan.T_world_scan for scan in scans]),
        centre=np.stack([scan.centre for scan in scans]),
        extent=np.array([scan.extent for scan in scans]),
    )


def load_truth(path: Path) -> dict[str, KnownScan]:
    """Read what `save_truth` wrote; the scans have no points."""
    with np.load(path) as arrays:
        names, places = arrays["names"].tolist(), arrays["place"].tolist()
        rows = zip(places, arrays["T_world_scan"], arrays["centre"], arrays["extent"].tolist(), strict=True)
        return {name: KnownScan(*row, np.zeros((0, 3))) for name, row in zip(names, rows, strict=True)}


class Errors(NamedTuple):
    """Errors of the scans of one frame after aligning it with the truth; (n,) each."""

    degrees: np.ndarray
    distance: np.ndarray  # of the scans' centres, in their unit


def pose_errors(truth: list[KnownScan], poses: list[np.ndarray]) -> Errors:
    """Align the frame of the estimated poses with the true one, without outliers; return the errors."""
    T_true = np.stack([k.T_world_scan for k in truth])
    T = np.stack(poses)
    centres = np.stack([k.centre for k in truth])
    each = T_true @ np.linalg.inv(T)  # (n, 4, 4): T_true_frame of each scan alone
    aligned = [_errors(T_true, G @ T, centres) for G in each]
    best = int(np.argmin([np.median(e.distance) for e in aligned]))
    near = aligned[best].distance <= 3 * np.median(aligned[best].distance) + 1e-12
    G = np.eye(4)
    G[:3, :3] = Rotation.from_matrix(each[near, :3, :3]).mean().as_matrix()
    true_centres, estimated = (
        np.einsum("nij,nj->ni", X[near, :3, :3], centres[near]) + X[near, :3, 3] for X in (T_true, T)
    )
    G[:3, 3] = (true_centres - estimated @ G[:3, :3].T).mean(axis=0)
    return _errors(T_true, G @ T, centres)


def _errors(T_true: np.ndarray, T: np.ndarray, centres: np.ndarray) -> Errors:
    rotation = Rotation.from_matrix(np.swapaxes(T_true[:, :3, :3], 1, 2) @ T[:, :3, :3])
    displacement = np.einsum("nij,nj->ni", (T - T_true)[:, :3, :3], centres) + (T - T_true)[:, :3, 3]
    return Errors(np.degrees(rotation.magnitude()), np.linalg.norm(displacement, axis=1))


def count_right(
    truth: dict[str, KnownScan], frames: Sequence[Sequence[str]], T: dict[str, np.ndarray]
) -> int:
    """Count placed scans within 10° and a tenth of their extent of the true pose, relative to their frame."""
    count = 0
    for frame in frames:
        errors = pose_errors([truth[name] for name in frame], [T[name] for name in frame])
        extents = np.array([truth[name].extent for name in frame])
        count += int(((errors.degrees < 10) & (errors.distance < extents / 10)).sum())
    return count


def count_wrong(truth: dict[str, KnownScan], edges: list[EdgeResult]) -> int:
    """Count edges that join places, or with errors above 10° or a tenth of the scan's extent."""
    count = 0
    for edge in edges:
        a, b = truth[edge.source], truth[edge.target]
        if a.place != b.place or a.T_world_scan is None or b.T_world_scan is None:
            count += 1
            continue
        T_true = np.linalg.inv(b.T_world_scan) @ a.T_world_scan
        off = _errors(T_true[None], edge.T_target_source[None], a.centre[None])
        count += bool(off.degrees[0] > 10 or off.distance[0] > a.extent / 10)
    return count


def overlapping(truth: dict[str, KnownScan], distance: float) -> set[frozenset[str]]:
    """Find pairs of scans that each have `MIN_OVERLAP` of their points within a distance of the other."""
    moved = {
        name: transform(k.points, k.T_world_scan) for name, k in truth.items() if k.T_world_scan is not None
    }
    trees = {name: cKDTree(points) for name, points in moved.items()}

    def share(a: str, b: str) -> float:
        sample = moved[a][:: max(1, len(moved[a]) // 500)]
        return float(np.isfinite(trees[b].query(sample, distance_upper_bound=distance)[0]).mean())

    pairs = [(a, b) for a, b in combinations(moved, 2) if truth[a].place == truth[b].place]
    return {frozenset((a, b)) for a, b in pairs if min(share(a, b), share(b, a)) >= MIN_OVERLAP}
