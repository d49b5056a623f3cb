"""Verification of poses from the side of the object: which of its points the scene shows.

An object that is half visible covers half of its own surface and a thousandth of the scene. So shares are
those of the object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from wsdesc.alignment.refine import orthonormalise
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, rotate, transform
from wsdesc.finding.prepare import SearchCloud, SearchObject

CONTACT = 3.0  # resolutions: object points this close to the scene with a similar normal are in contact
_SIMILAR = np.cos(np.radians(35))  # angle between similar normals
_MARGIN = 3.0  # resolutions in front of or behind the surface that the scanner saw
_BESIDE = 3.0  # resolutions between a point's direction and that of a measured point
_AROUND, _TOUCHING = 6.0, 2.5  # resolutions from the object: scene points near it, and touching it
_VIOLATION_WEIGHT = 3.0  # of the share in free space in the rank of a pose
_WEAK = 0.01  # eigenvalues below this share of the largest leave their motion as it is
_CONVERGED = 0.005  # resolutions by which the last step moves the contacts
_DIRECTIONS = 4  # nearest directions that must all be farther for a point to be in free space
_PRIOR = 10.0  # points at the surface that are added, so that few points are no evidence


class View:
    """What the scanner of the scene saw: the range of the first surface in each direction."""

    def __init__(self, points: Floats, viewpoint: Floats) -> None:
        self.viewpoint = viewpoint
        offsets = points - viewpoint
        self.ranges = np.linalg.norm(offsets, axis=1)
        seen = self.ranges > 0
        self.ranges = self.ranges[seen]
        self.tree = cKDTree(offsets[seen] / self.ranges[:, None])

    def classify(self, points: Floats, nearest: int = 1) -> NDArray[np.int8]:
        """Classify points (…, 3): 1 in front of the seen surface, 0 at it, -1 behind it, 2 not in view.

        With several `nearest` directions, a point is in front only if it is in front of all of them.
        """
        offsets = points.reshape(-1, 3) - self.viewpoint
        distance = np.maximum(np.linalg.norm(offsets, axis=1), 1e-9)
        angle, index = self.tree.query(offsets / distance[:, None], nearest, workers=torch.get_num_threads())
        angle, index = angle.reshape(len(offsets), -1), index.reshape(len(offsets), -1)
        margin = _MARGIN * INDOOR_RESOLUTION
        in_view = angle[:, 0] * distance < _BESIDE * INDOOR_RESOLUTION
        ranges = self.ranges[index]
        state = np.zeros(len(offsets), np.int8)
        state[ranges.min(axis=1) > distance + margin] = 1
        state[ranges.max(axis=1) < distance - margin] = -1
        state[~in_view] = 2
        return state.reshape(points.shape[:-1])


def quick_features(
    thing: SearchObject, scene: SearchCloud, view: View | None, poses: Floats, sample: NDArray[np.int64]
) -> Floats:
    """Measure poses (H, 4, 4) on a sample of the object's points and on the scene's coarse points.

    Returns:
        (H, 3): share of the object's points near the scene, weighted by the similarity of the normals; share
        in space that the scanner saw through, 0 without a viewpoint; and share of the scene's points around
        the object that touch it.
    """
    points = transform(thing.points[sample][None], poses)  # (H, S, 3)
    normals = rotate(thing.normals[sample][None], poses)
    _, cosine, contact = _contacts(scene, points.reshape(-1, 3), normals.reshape(-1, 3), CONTACT)
    contact, cosine = contact.reshape(points.shape[:2]), cosine.reshape(points.shape[:2])
    violating = np.zeros(len(poses))
    if view is not None:
        violating = ((view.classify(points) == 1) & ~contact).mean(axis=1)
    return np.column_stack([cosine.mean(axis=1), violating, _explained(thing, scene, poses)])


def _explained(thing: SearchObject, scene: SearchCloud, poses: Floats) -> Floats:
    """Return the share (H,) of the scene's coarse points around the object that touch it."""
    points = scene.points[scene.coarse]
    centres = transform(thing.centre[None], poses)[:, 0]
    reach = thing.radius + _AROUND * INDOOR_RESOLUTION
    near = NeighbourGrid.of(torch.from_numpy(points)).within(torch.from_numpy(centres), reach)
    pose = np.repeat(np.arange(len(poses)), np.diff(near.starts.numpy()))
    offsets = points[near.indices.numpy()] - poses[pose, :3, 3]
    local = np.einsum("nji,nj->ni", poses[pose, :3, :3], offsets)
    distance, _ = thing.tree.query(
        local, distance_upper_bound=_AROUND * INDOOR_RESOLUTION, workers=torch.get_num_threads()
    )
    around = np.bincount(pose, np.isfinite(distance), len(poses))
    touching = np.bincount(pose, distance < _TOUCHING * INDOOR_RESOLUTION, len(poses))
    return np.asarray(touching / np.maximum(around, 1))


def rank(features: Floats, *, improved: bool = True) -> Floats:
    """Compute the rank (H,) of poses from their quick features; larger is better.

    Free space weighs more after the poses are `improved`: coarse ones violate it by their errors.
    """
    contact, violating, explained = features.T
    return np.asarray(contact - (_VIOLATION_WEIGHT if improved else 1.0) * violating + explained)


class Measured(NamedTuple):
    """Figures of one refined pose."""

    visible: float  # share of the object's points in contact with the scene
    explained: float  # share of the scene's points near the object that touch it
    violation: float | None  # share of the visible points in free space; None without a viewpoint


def measure(
    thing: SearchObject, scene: SearchCloud, view: View | None, T: Floats, sample: NDArray[np.int64]
) -> Measured:
    """Measure one pose (4, 4) with all points of the scene around it."""
    points, normals = transform(thing.points[sample], T), rotate(thing.normals[sample], T)
    _, _, contact = _contacts(scene, points, normals, CONTACT)
    violation = None
    if view is not None:
        state = view.classify(points, nearest=_DIRECTIONS)
        violating = ((state == 1) & ~contact).sum()
        violation = float(violating / (violating + (state == 0).sum() + _PRIOR))
    reach = thing.radius + _AROUND * INDOOR_RESOLUTION
    near = scene.points[scene.tree.query_ball_point(transform(thing.centre[None], T)[0], reach)]
    local = (near - T[:3, 3]) @ T[:3, :3]
    distance, _ = thing.tree.query(local, distance_upper_bound=_AROUND * INDOOR_RESOLUTION)
    around = max(int(np.isfinite(distance).sum()), 1)
    explained = float((distance < _TOUCHING * INDOOR_RESOLUTION).sum() / around)
    return Measured(float(contact.mean()), explained, violation)


def improve(
    thing: SearchObject,
    scene: SearchCloud,
    T: Floats,
    sample: NDArray[np.int64],
    distances: Sequence[float] = (5, 5, 4, 4, 3, 3, 2, 2),
) -> Floats:
    """Move a pose (4, 4) by point-to-plane steps of the points in contact.

    Only contacts with similar normals count, and hidden parts of the object have none: clutter beside the
    object then has little influence.

    Args:
        thing: The object.
        scene: The scene.
        T: T_scene_object.
        sample: Points of the object that are used.
        distances: Largest distance of a contact in each step, in resolutions.
    """
    for distance in distances:
        points = transform(thing.points[sample], T)
        partner, _, contact = _contacts(scene, points, rotate(thing.normals[sample], T), distance)
        if contact.sum() < 6:
            return T
        p, q, n = points[contact], scene.points[partner[contact]], scene.normals[partner[contact]]
        T_step, moved = _point_to_plane(p, q, n)
        T = orthonormalise(T_step @ T)
        if moved < _CONVERGED * INDOOR_RESOLUTION and distance == distances[-1]:
            break
    return T


def _point_to_plane(p: Floats, q: Floats, normals: Floats) -> tuple[Floats, float]:
    """Compute the step (4, 4) that moves points (C, 3) to planes at q, and how far it moves them."""
    centre = p.mean(axis=0)
    arms = p - centre
    extent = max(float(np.sqrt((arms**2).sum(axis=1).mean())), 1e-9)
    responses = np.hstack([normals, np.cross(arms / extent, normals)])  # (C, 6)
    gaps = np.einsum("ni,ni->n", q - p, normals)
    values, vectors = np.linalg.eigh(responses.T @ responses)
    slope = vectors.T @ (responses.T @ gaps)
    # Motions that the contacts do not determine stay as they are.
    twist = vectors @ np.where(values > _WEAK * values[-1], slope / np.maximum(values, 1e-300), 0.0)
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(twist[3:] / extent).as_matrix()
    T[:3, 3] = centre + twist[:3] - T[:3, :3] @ centre
    return T, float(np.linalg.norm(twist))


def _contacts(
    scene: SearchCloud, points: Floats, normals: Floats, resolutions: float
) -> tuple[NDArray[np.int64], Floats, NDArray[np.bool_]]:
    """Find the nearest scene point of each point, the cosine of both normals, and whether they touch."""
    bound = resolutions * INDOOR_RESOLUTION
    distance, partner = scene.tree.query(points, distance_upper_bound=bound, workers=torch.get_num_threads())
    near = np.isfinite(distance)
    partner = np.where(near, partner, 0)
    cosine = np.abs(np.einsum("ni,ni->n", normals, scene.normals[partner]))
    return partner, np.where(near, cosine, 0.0), near & (cosine > _SIMILAR)
