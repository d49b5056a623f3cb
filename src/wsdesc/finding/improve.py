"""Improve poses of an object by point-to-plane steps, many poses at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from wsdesc.core.geometry import Floats, rotate, transform
from wsdesc.finding.prepare import SearchCloud, SearchObject
from wsdesc.finding.verify import contacts

_WEAK = 0.01  # eigenvalues below this share of the largest leave their motion as it is
_FEWEST = 6  # contacts of a step
_AT_ONCE = 100_000  # points of all poses that are in memory


def improve(
    thing: SearchObject,
    scene: SearchCloud,
    poses: Floats,
    sample: NDArray[np.int64],
    distances: Sequence[float] = (5, 5, 4, 4, 3, 3, 2, 2),
) -> Floats:
    """Move poses (H, 4, 4) by point-to-plane steps of the points in contact.

    Only contacts with similar normals count, and hidden parts of the object have none: clutter beside the
    object then has little influence.

    Args:
        thing: The object.
        scene: The scene.
        poses: T_scene_object of each pose.
        sample: Points of the object that are used.
        distances: Largest distance of a contact in each step, in resolutions.
    """
    chunk = max(1, _AT_ONCE // max(1, len(sample)))
    improved = np.array(poses)
    for start in range(0, len(poses), chunk):
        part = improved[start : start + chunk]
        for distance in distances:
            part = _step(thing, scene, part, sample, distance)
        improved[start : start + chunk] = part
    return improved


def _step(
    thing: SearchObject, scene: SearchCloud, poses: Floats, sample: NDArray[np.int64], distance: float
) -> Floats:
    """Move each pose by one step. A pose with few contacts stays as it is."""
    p = transform(thing.points[sample][None], poses)  # (H, S, 3)
    turned = rotate(thing.normals[sample][None], poses)
    partner, _, touching = contacts(scene, p.reshape(-1, 3), turned.reshape(-1, 3), distance)
    weight = touching.reshape(p.shape[:2]).astype(np.float64)
    count = weight.sum(axis=1)
    q, normals = (x[partner].reshape(p.shape) for x in (scene.points, scene.normals))
    centre = np.einsum("hs,hsi->hi", weight, p) / np.maximum(count, 1)[:, None]
    arms = p - centre[:, None]
    extent = np.sqrt(np.einsum("hs,hsi,hsi->h", weight, arms, arms, optimize=True) / np.maximum(count, 1))
    extent = np.maximum(extent, 1e-9)
    responses = np.concatenate([normals, np.cross(arms / extent[:, None, None], normals)], axis=2)
    responses *= weight[..., None]  # (H, S, 6)
    gaps = np.einsum("hsi,hsi->hs", q - p, normals)
    values, vectors = np.linalg.eigh(responses.transpose(0, 2, 1) @ responses)
    slope = np.einsum("hij,hsi,hs->hj", vectors, responses, gaps, optimize=True)
    # Motions that the contacts do not determine stay as they are.
    certain = (values > _WEAK * values[:, -1:]) & (count >= _FEWEST)[:, None]
    twist = np.einsum("hij,hj->hi", vectors, np.where(certain, slope / np.maximum(values, 1e-300), 0.0))
    T = np.zeros_like(poses)
    T[:, :3, :3] = Rotation.from_rotvec(twist[:, 3:] / extent[:, None]).as_matrix()
    T[:, :3, 3] = centre + twist[:, :3] - np.einsum("hij,hj->hi", T[:, :3, :3], centre)
    T[:, 3, 3] = 1
    moved = T @ poses
    moved[:, :3, :3] = Rotation.from_matrix(moved[:, :3, :3]).as_matrix()  # products lose orthogonality
    return moved
