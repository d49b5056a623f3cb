"""Fragments of synthetic rooms, as scanning real ones gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic.camera import Camera, measure
from wsdesc.datasets.synthetic.fusion import fuse, voxel_mean
from wsdesc.datasets.synthetic.room import Room
from wsdesc.datasets.synthetic.walk import look_at, path, stations

RESOLUTION = 0.02
OVERLAP_DISTANCE = 0.0375


@dataclass(frozen=True)
class SyntheticScan:
    """What a second or two of scanning saw, in the frame of its first camera."""

    points: NDArray[np.float32]  # (N, 3)
    T_world_scan: NDArray[np.float64]  # (4, 4)


@dataclass(frozen=True)
class RoomPair:
    """Two fragments of one room that see partly the same."""

    source: NDArray[np.float32]  # (N, 3)
    target: NDArray[np.float32]  # (M, 3)
    T_target_source: NDArray[np.float64]  # (4, 4)
    overlap: float  # the share of source points that the target has too


def scan(
    room: Room, rng: np.random.Generator, pace: float = 1.0, resolution: float = RESOLUTION
) -> Iterator[SyntheticScan]:
    """Walk through a room for ever; one fragment after another, each overlapping the one before.

    `pace` scales how far the view moves from one fragment to the next.
    """
    camera = Camera.draw(rng)
    shakiness, drift = rng.uniform(0.2, 1.0), rng.uniform(0.3, 2.5)
    chain_of = stations(room, camera, rng, pace)
    chain = list(islice(chain_of, 4))
    while True:
        frames = int(rng.integers(9, 16))
        views = path(chain, np.linspace(0, rng.uniform(0.4, 1.0), frames))
        views += shakiness * rng.normal(0, 0.004, views.shape)
        yield _fragment(room, camera, views, drift, rng, resolution)
        chain = [*chain[1:], next(chain_of)]


def _fragment(
    room: Room,
    camera: Camera,
    views: NDArray[np.float64],
    drift: float,
    rng: np.random.Generator,
    resolution: float,
) -> SyntheticScan:
    T_world_camera = np.stack([look_at(view[:3], view[3:6], view[6]) for view in views])
    # Low-resolution images shifted by parts of a pixel see together what a fine image sees.
    shift = rng.uniform(-0.5, 0.5, (len(views), 2))
    images = measure(room, camera, T_world_camera, shift, rng)

    T_world_scan = T_world_camera[0]
    believed = np.einsum("ij,fjk->fik", np.linalg.inv(T_world_scan), T_world_camera)
    believed = np.einsum("fij,fjk->fik", believed, _drift(len(views), drift, rng))
    points = fuse(images, camera, believed, shift, voxel=0.7 * resolution, band=2 * resolution)
    return SyntheticScan(voxel_mean(points, resolution), T_world_scan)


def _drift(frames: int, amount: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """The error of tracking, (F, 4, 4): a random walk of millimetres and tenths of a degree from none."""
    turn = rng.normal(0, 0.0005 * amount, (frames, 3))
    move = rng.normal(0, 0.0008 * amount, (frames, 3))
    turn[0] = move[0] = 0
    error = np.tile(np.eye(4), (frames, 1, 1))
    error[:, :3, :3] = Rotation.from_rotvec(turn.cumsum(axis=0)).as_matrix()
    error[:, :3, 3] = move.cumsum(axis=0)
    return error


def room_scans(seed: int, count: int, resolution: float = RESOLUTION) -> list[SyntheticScan]:
    """`count` successive fragments of the room that belongs to `seed`."""
    if seed < 0 or count < 0 or not 0.005 <= resolution <= 0.2:
        raise InputError(
            f"cannot scan a synthetic room with seed {seed}, count {count}, resolution {resolution}: "
            "seed and count must not be negative, and the resolution lies in 0.005 … 0.2 m"
        )
    return list(islice(scan(Room(seed), np.random.default_rng([seed, 0x0B]), resolution=resolution), count))


def room_pair(seed: int, min_overlap: float = 0.3) -> RoomPair:
    """Two fragments of the room that belongs to `seed`, at least `min_overlap` of each seen by the other."""
    if seed < 0 or not 0 <= min_overlap <= 0.8:
        raise InputError(
            f"no room pair with seed {seed} and min_overlap {min_overlap}: "
            "the seed must not be negative, and the overlap lies in 0 … 0.8"
        )
    room, pace = Room(seed), 1.0
    rng = np.random.default_rng([seed, 0x0C])
    while True:
        found = []
        for a, b in combinations(islice(scan(room, rng, pace), 3), 2):
            T_target_source = np.einsum("ij,jk->ik", np.linalg.inv(b.T_world_scan), a.T_world_scan)
            forth = overlap(a.points, b.points, T_target_source)
            back = overlap(b.points, a.points, np.linalg.inv(T_target_source))
            if min(forth, back) >= min_overlap and min(len(a.points), len(b.points)) >= 1000:
                found.append(RoomPair(a.points, b.points, T_target_source, forth))
        if found:
            return found[rng.integers(len(found))]
        pace *= 0.7  # smaller steps share more


def overlap(
    source: ArrayLike, target: ArrayLike, T_target_source: ArrayLike, distance: float = OVERLAP_DISTANCE
) -> float:
    """The share of source points that, moved by `T_target_source`, have a target point within `distance`."""
    source, target, T = (np.asarray(a, dtype=np.float64) for a in (source, target, T_target_source))
    if len(source) == 0 or len(target) == 0:
        return 0.0
    moved = np.einsum("ij,nj->ni", T[:3, :3], source) + T[:3, 3]
    nearest, _ = cKDTree(target).query(moved, distance_upper_bound=distance)
    return float(np.isfinite(nearest).mean())
