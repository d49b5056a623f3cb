"""Pairs of partial views of a shape, by the protocols of PRNet and RPM-Net.

`shape_pairs` makes such pairs in batches, on the device where networks train.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.cloud import as_points
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, make_pose, transform

_MAX_ANGLE, _MAX_SHIFT = 45.0, 0.5  # of a random pose: degrees about each axis, translation along each axis


@dataclass(frozen=True)
class ShapePair:
    """Two clouds of one shape, and the pose of the source in the frame of the target."""

    source: NDArray[np.float32]  # (K, 3)
    target: NDArray[np.float32]  # (K, 3)
    T_target_source: Floats  # (4, 4)


def item_generator(seed: int, item: int) -> np.random.Generator:
    """Create the generator of one item: the item does not depend on the order in which items are made."""
    return np.random.default_rng((seed, item))


def partial_pair(
    shape: Any,
    generator: np.random.Generator,
    *,
    points: int = 1024,
    keep: int = 768,
    noise: float = 0.0,
) -> ShapePair:
    """Make two partial clouds with the same samples (PRNet protocol).

    Both clouds are permutations of the same points; the target is transformed by a random pose. Each cloud
    keeps the points nearest, in its own frame, to one far point: ±(500, 500, 500) plus U[0, 1]³, the same for
    both. The pose has the rotation Rx Ry Rz.

    Args:
        shape: Points (N, 3).
        generator: Source of all random numbers.
        points: Number of points before the crop.
        keep: Number of points of each cloud.
        noise: Standard deviation of the noise before the crop, clipped at five times that. The protocol's
            noisy set has 0.01.
    """
    shape = _shape_points(shape, points)
    if not 1 <= keep <= points:
        raise InputError(f"keep must be between 1 and points ({points}), not {keep}")
    source = shape[generator.permutation(len(shape))[:points]]
    T_target_source = _random_pose(generator, _MAX_ANGLE)
    target = transform(source, T_target_source)[generator.permutation(points)]
    source, target = (_add_noise(cloud, noise, generator) for cloud in (source, target))
    far = generator.choice((-1, 1)) * np.full(3, 500.0) + generator.random(3)
    source, target = (
        _nearest(cloud, np.linalg.norm(cloud - far, axis=1), keep) for cloud in (source, target)
    )
    return ShapePair(source.astype(np.float32), target.astype(np.float32), T_target_source)


def independent_pair(
    shape: Any,
    generator: np.random.Generator,
    *,
    points: int = 1024,
    keep: float = 0.7,
    noise: float = 0.01,
    max_angle: float = _MAX_ANGLE,
) -> ShapePair:
    """Make two partial clouds with independent samples (RPM-Net protocol).

    Each cloud is an own sample of the shape. It keeps a share of the points on one side of a plane, whose
    normal is uniform over all directions and drawn for each cloud. The source is transformed by a random pose
    with the rotation Rx Ry Rz; `T_target_source` is its inverse.

    Args:
        shape: Points (N, 3), N ≥ 2 `points`.
        generator: Source of all random numbers.
        points: Number of points of a sample.
        keep: Share of the points that each cloud keeps.
        noise: Standard deviation of the noise, added last and clipped at five times that.
        max_angle: Largest angle about each axis, in degrees: 45, or 180 for all rotations.
    """
    shape = _shape_points(shape, points)
    if len(shape) < 2 * points:  # smaller shapes would give samples with common points
        raise InputError(
            f"two independent samples of {points} points need a shape of {2 * points}, this has {len(shape)}"
        )
    if not 0 < keep <= 1:
        raise InputError(f"keep must be above 0 and at most 1, not {keep}")
    clouds = []
    for _ in range(2):
        cloud = shape[generator.permutation(len(shape))[:points]]
        normal = generator.normal(size=3)  # of arbitrary length
        clouds.append(_nearest(cloud, cloud @ normal, math.ceil(keep * points)))
    source, target = clouds
    T_source_target = _random_pose(generator, max_angle)
    source = _add_noise(transform(source, T_source_target), noise, generator)
    target = _add_noise(target, noise, generator)
    R_target_source = T_source_target[:3, :3].T
    T_target_source = make_pose(R_target_source, -R_target_source @ T_source_target[:3, 3])
    return ShapePair(source.astype(np.float32), target.astype(np.float32), T_target_source)


def _shape_points(shape: Any, points: int) -> np.ndarray:
    array = as_points(shape).astype(np.float64)
    if not 1 <= points <= len(array):
        raise InputError(f"cannot choose {points} points from a shape of {len(array)}")
    return array


def _random_pose(generator: np.random.Generator, max_angle: float) -> Floats:
    """Draw a pose (4, 4): Rx Ry Rz, angles U[0, max_angle] in degrees, shift U[−0.5, 0.5]³."""
    angles = np.radians(generator.uniform(0, max_angle, 3))
    (sx, sy, sz), (cx, cy, cz) = np.sin(angles), np.cos(angles)
    T = np.eye(4)
    T[:3, :3] = (
        np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
        @ np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
        @ np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    )
    T[:3, 3] = generator.uniform(-_MAX_SHIFT, _MAX_SHIFT, 3)
    return T


def _add_noise(points: np.ndarray, noise: float, generator: np.random.Generator) -> np.ndarray:
    return points + np.clip(generator.normal(0, noise, points.shape), -5 * noise, 5 * noise)


def _nearest(points: np.ndarray, distance: np.ndarray, keep: int) -> np.ndarray:
    """Select the `keep` points with the smallest distances, in their order."""
    nearest: np.ndarray = points[np.sort(np.argsort(distance, kind="stable")[:keep])]
    return nearest
