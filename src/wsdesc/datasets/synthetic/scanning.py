"""Scan synthetic rooms with a virtual depth camera."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats
from wsdesc.datasets.synthetic.camera import Camera, Scene, measure_depth
from wsdesc.datasets.synthetic.fusion import fuse, voxel_mean
from wsdesc.datasets.synthetic.room import Room
from wsdesc.datasets.synthetic.walk import look_at, path, stations

RESOLUTION = 0.02
OVERLAP_DISTANCE = 0.0375


@dataclass(frozen=True)
class SyntheticScan:
    """A scan in the frame of its sensor, or of the first camera of several, and its pose."""

    points: NDArray[np.float32]  # (N, 3)
    T_world_scan: Floats  # (4, 4)
    sensor: str = "fused_camera"
    viewpoint: Floats | None = None  # (3,) in the frame of the scan; None: no single viewpoint


@dataclass(frozen=True)
class RoomPair:
    """Two overlapping scans of one room."""

    source: NDArray[np.float32]  # (N, 3)
    target: NDArray[np.float32]  # (M, 3)
    T_target_source: Floats  # (4, 4)
    overlap: float  # share of source points with a target point near


def scan_room(
    room: Room, rng: np.random.Generator, pace: float = 1.0, resolution: float = RESOLUTION
) -> Iterator[SyntheticScan]:
    """Walk through a room endlessly and yield successive scans, each overlapping the previous one.

    Args:
        room: The room.
        rng: Source of all random numbers.
        pace: Factor on the movement of the view between two scans.
        resolution: Distance between points, in metres.
    """
    camera = Camera.draw(rng)
    shakiness, drift = rng.uniform(0.2, 1.0), rng.uniform(0.3, 2.5)
    views_ahead = stations(room, camera, rng, pace)
    chain = list(islice(views_ahead, 4))
    while True:
        frames = int(rng.integers(9, 16))
        views = path(chain, np.linspace(0, rng.uniform(0.4, 1.0), frames))
        views += shakiness * rng.normal(0, 0.004, views.shape)
        yield scan_views(room, camera, views, drift, rng, resolution)
        chain = [*chain[1:], next(views_ahead)]


def scan_views(
    scene: Scene,
    camera: Camera,
    views: Floats,
    drift: float,
    rng: np.random.Generator,
    resolution: float,
) -> SyntheticScan:
    """Fuse the depth images of a hand-held camera.

    Args:
        scene: The room or site.
        camera: The sensor.
        views: Eye, gaze and roll (F, 7) of each image, in metres and radians.
        drift: Factor on the errors of tracking.
        rng: Source of all random numbers.
        resolution: Distance between points, in metres.
    """
    T_world_camera = np.stack([look_at(view[:3], view[3:6], view[6]) for view in views])
    # Images shifted by fractions of a pixel add up to a higher resolution.
    shift = rng.uniform(-0.5, 0.5, (len(views), 2))
    images = measure_depth(scene, camera, T_world_camera, shift, rng)

    T_world_scan = T_world_camera[0]
    tracked = np.einsum("ij,fjk->fik", np.linalg.inv(T_world_scan), T_world_camera)
    tracked = np.einsum("fij,fjk->fik", tracked, _drift(len(views), drift, rng))
    points = fuse(images, camera, tracked, shift, voxel=0.7 * resolution, band=2 * resolution)
    return SyntheticScan(voxel_mean(points, resolution), T_world_scan)


def _drift(frames: int, amount: float, rng: np.random.Generator) -> Floats:
    """Draw the errors of tracking (F, 4, 4): a random walk of millimetres and tenths of a degree."""
    turn = rng.normal(0, 0.0005 * amount, (frames, 3))
    move = rng.normal(0, 0.0008 * amount, (frames, 3))
    turn[0] = move[0] = 0
    error = np.tile(np.eye(4), (frames, 1, 1))
    error[:, :3, :3] = Rotation.from_rotvec(turn.cumsum(axis=0)).as_matrix()
    error[:, :3, 3] = move.cumsum(axis=0)
    return error


def room_scans(seed: int, count: int, resolution: float = RESOLUTION) -> list[SyntheticScan]:
    """Make `count` successive scans of the room with this seed; `resolution` is in metres."""
    if seed < 0 or count < 0 or not 0.005 <= resolution <= 0.2:
        raise InputError(
            f"cannot scan a synthetic room with seed {seed}, count {count}, resolution {resolution}: "
            "seed and count must not be negative, the resolution must be 0.005 to 0.2 m"
        )
    return list(
        islice(scan_room(Room(seed), np.random.default_rng([seed, 0x0B]), resolution=resolution), count)
    )


def room_pair(seed: int, min_overlap: float = 0.3) -> RoomPair:
    """Make two scans of the room with this seed; both directions overlap by `min_overlap` or more."""
    if seed < 0 or not 0 <= min_overlap <= 0.8:
        raise InputError(
            f"cannot make a room pair with seed {seed} and min_overlap {min_overlap}: "
            "the seed must not be negative, and the overlap must be between 0 and 0.8"
        )
    room, pace = Room(seed), 1.0
    rng = np.random.default_rng([seed, 0x0C])
    while True:
        pairs = []
        for a, b in combinations(islice(scan_room(room, rng, pace), 3), 2):
            T_target_source = np.einsum("ij,jk->ik", np.linalg.inv(b.T_world_scan), a.T_world_scan)
            forward = overlap(a.points, b.points, T_target_source)
            backward = overlap(b.points, a.points, np.linalg.inv(T_target_source))
            if min(forward, backward) >= min_overlap and min(len(a.points), len(b.points)) >= 1000:
                pairs.append(RoomPair(a.points, b.points, T_target_source, forward))
        if pairs:
            return pairs[rng.integers(len(pairs))]
        pace *= 0.7  # smaller steps give more overlap


def overlap(
    source: ArrayLike, target: ArrayLike, T_target_source: ArrayLike, distance: float = OVERLAP_DISTANCE
) -> float:
    """Compute the share of source points that have a target point within `distance` under the pose."""
    source, target, T = (np.asarray(a, dtype=np.float64) for a in (source, target, T_target_source))
    if len(source) == 0 or len(target) == 0:
        return 0.0
    transformed = np.einsum("ij,nj->ni", T[:3, :3], source) + T[:3, 3]
    nearest, _ = cKDTree(target).query(transformed, distance_upper_bound=distance)
    return float(np.isfinite(nearest).mean())
