"""Verification of poses: the share of the object's points that the scene shows.

Shares refer to the object. A half-visible object covers half of its own surface, but perhaps a thousandth of
the scene.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, transform
from wsdesc.core.kernels import kernel, run_in_chunks
from wsdesc.finding.prepare import SearchObject, SearchScene
from wsdesc.finding.surfels import Contacts, Surfels, contacts
from wsdesc.finding.view import FREE, SEEN, View, facing

CONTACT = 2.0  # resolutions: object points this close to the scene with a similar normal are in contact
_NEAR, _TOUCHING = 6.0, 2.5  # resolutions: scene points this close to the object are near it, or touch it
_PLANE_DISTANCE = 1.5  # resolutions: scene points this close to the plane of a surface continue it
_LIMITS = np.array([_NEAR, _TOUCHING, _PLANE_DISTANCE])
_PARALLEL_COSINE = np.cos(np.radians(20))  # smallest cosine between normals of a surface and its continuation
# Weights in the rank of a pose, where contacts weigh 1: the free space of coarse and of improved poses, the
# explained and the continued share, and the logarithm of the votes.
_ROUGH_VIOLATION, _VIOLATION, _EXPLAINED, _CONTINUED, _VOTES = 1.2, 3.0, 2.1, 2.5, 0.27
_MAX_CONTINUED = 0.6  # larger shares count as this one
_VOTES_OFFSET = 0.05  # added to relative votes, so that the logarithm of few votes is bounded
_DIRECTIONS = 4  # a point in free space is closer than the surface in this many nearest directions
_POSES_PER_BATCH = 4000  # limits the memory of neighbours
_PRIOR_POINTS = 10.0  # added at the surface, so that few points are weak evidence


def quick_features(
    obj: SearchObject,
    surfels: Surfels,
    view: View | None,
    poses: Floats,
    sample: NDArray[np.int64],
) -> tuple[Floats, Floats]:
    """Measure poses (H, 4, 4) on a sample of the object's points.

    Returns:
        (H,) weighted share of the object's points in contact with the scene, and (H,) share in free space: 0
        without a viewpoint.
    """
    at_scene = _contacts_of(obj, surfels, poses, sample)
    violating = np.zeros(len(poses))
    if view is not None:
        points = transform(obj.points[sample][None], poses)  # (H, S, 3)
        violating = ((view.classify(points, _DIRECTIONS) == FREE) & ~at_scene.touching).mean(axis=1)
    return _weighted(obj, at_scene, sample), violating


def contact_shares(obj: SearchObject, surfels: Surfels, poses: Floats, sample: NDArray[np.int64]) -> Floats:
    """Return the weighted share (H,) of the object's points in contact with the scene."""
    return _weighted(obj, _contacts_of(obj, surfels, poses, sample), sample)


def _weighted(obj: SearchObject, at_scene: Contacts, sample: NDArray[np.int64]) -> Floats:
    """Return the share (H,) of points in contact; similar normals and rare points weigh more."""
    weights = obj.weights[sample]
    return np.asarray((at_scene.touching * at_scene.cosine) @ (weights / weights.sum()), np.float64)


def _contacts_of(obj: SearchObject, surfels: Surfels, poses: Floats, sample: NDArray[np.int64]) -> Contacts:
    distance = CONTACT * INDOOR_RESOLUTION
    return contacts(surfels, obj.points[sample], obj.normals[sample], poses, distance)


class Surroundings(NamedTuple):
    """Shares of the scene's points around an object in several poses, (H,) each."""

    explained: Floats  # share of the points near the object that touch it
    continued: Floats  # points beside the object in the plane of its surface, relative to those that touch it


def surroundings(obj: SearchObject, points: Floats, normals: Floats, poses: Floats) -> Surroundings:
    """Compare the scene's points (N, 3) around an object in poses (H, 4, 4) with the object.

    Scene points that continue the object's surface beyond its border contradict a pose. Without them, a box
    on a wall would have as many contacts as at its right pose.
    """
    grid = NeighbourGrid.of(torch.from_numpy(points))
    centres = torch.from_numpy(transform(obj.centre[None], poses)[:, 0])
    radius = obj.radius + _NEAR * INDOOR_RESOLUTION
    result = Surroundings(np.zeros(len(poses)), np.zeros(len(poses)))
    for start in range(0, len(poses), _POSES_PER_BATCH):
        part = slice(start, start + _POSES_PER_BATCH)
        near = grid.within(centres[part], radius)
        run_in_chunks(
            _compare, len(result.explained[part]), np.ascontiguousarray(poses[part]), points, normals,
            near.indices.numpy(), near.starts.numpy(), obj.points, obj.normals, *obj.distances,
            _LIMITS * INDOOR_RESOLUTION, result.explained[part], result.continued[part],
        )  # fmt: skip
    return result


@kernel
def _compare(
    start: int, stop: int, poses: Any, points: Any, normals: Any, near: Any, starts: Any, object_points: Any,
    object_normals: Any, low: Any, cell: float, distances: Any, nearest: Any, limits: Any, explained: Any,
    continued: Any,
) -> None:  # fmt: skip
    """Look up the distances of the scene's points to an object in the poses of a range."""
    p, n = np.empty(3), np.empty(3)
    for h in range(start, stop):
        T = poses[h]
        beside, touching, continuing = 0, 0, 0
        for m in range(starts[h], starts[h + 1]):
            k = near[m]
            x, y, z = points[k, 0] - T[0, 3], points[k, 1] - T[1, 3], points[k, 2] - T[2, 3]
            for i in range(3):
                p[i] = T[0, i] * x + T[1, i] * y + T[2, i] * z
            a = int(np.floor((p[0] - low[0]) / cell))
            b = int(np.floor((p[1] - low[1]) / cell))
            c = int(np.floor((p[2] - low[2]) / cell))
            if not (
                0 <= a < distances.shape[0] and 0 <= b < distances.shape[1] and 0 <= c < distances.shape[2]
            ):
                continue
            distance = distances[a, b, c]
            if distance < limits[1]:
                touching += 1
            elif distance < limits[0]:
                j = nearest[a, b, c]
                for i in range(3):
                    n[i] = T[0, i] * normals[k, 0] + T[1, i] * normals[k, 1] + T[2, i] * normals[k, 2]
                height, cosine = 0.0, 0.0
                for i in range(3):
                    height += (p[i] - object_points[j, i]) * object_normals[j, i]
                    cosine += n[i] * object_normals[j, i]
                continuing += abs(height) < limits[2] and abs(cosine) > _PARALLEL_COSINE
            beside += distance < limits[0]
        explained[h] = touching / max(beside, 1)
        continued[h] = continuing / max(touching, 1)


class QuickScore(NamedTuple):
    """Figures of poses, (H,) each, by which they are ranked."""

    contact: Floats  # weighted share of the object's points in contact
    violating: Floats  # share of the object's points in free space
    explained: Floats  # share of the scene's points around the object that touch it
    continued: Floats  # points that continue the object's surface, relative to those that touch it
    votes: Floats  # votes of pairs of points, relative to the best pose

    def rank(self, *, improved: bool) -> Floats:
        """Compute the rank (H,) of poses; larger is better.

        Free space weighs more after the poses are `improved`: coarse ones violate it by their errors.
        """
        return np.asarray(
            self.contact
            + _EXPLAINED * self.explained
            - _CONTINUED * np.minimum(self.continued, _MAX_CONTINUED)
            - (_VIOLATION if improved else _ROUGH_VIOLATION) * self.violating
            + _VOTES * np.log(self.votes + _VOTES_OFFSET)
        )


class Figures(NamedTuple):
    """Figures of one refined pose."""

    visible: float  # share of the object's points in contact with the scene
    side: float  # largest share in contact of the points that can be seen from one direction
    explained: float  # share of the scene's points near the object that touch it
    violation: float | None  # share of the visible points in free space; None without a viewpoint
    shown: float | None  # share of the points that face the viewpoint in contact with the scene


def measure(obj: SearchObject, scene: SearchScene, part: Surfels, view: View | None, T: Floats) -> Figures:
    """Measure one pose (4, 4) with all points of the scene around it (`part`)."""
    sample = obj.fine
    points = transform(obj.points[sample], T)
    contact = _contacts_of(obj, part, T[None], sample).touching[0]
    violation = shown = None
    if view is not None:
        state = view.classify(points, nearest=_DIRECTIONS)
        front = facing(points, view.viewpoint) & ((state == SEEN) | (state == FREE))
        shown = float((front & contact).sum() / (front.sum() + _PRIOR_POINTS))
        violating = ((state == FREE) & ~contact).sum()
        violation = float(violating / (violating + (state == SEEN).sum() + _PRIOR_POINTS))
    radius = obj.radius + _NEAR * INDOOR_RESOLUTION
    near = scene.points[scene.tree.query_ball_point(transform(obj.centre[None], T)[0], radius)]
    local = (near - T[:3, 3]) @ T[:3, :3]
    distance, _ = obj.tree.query(local, distance_upper_bound=_NEAR * INDOOR_RESOLUTION)
    around = max(int(np.isfinite(distance).sum()), 1)
    explained = float((distance < _TOUCHING * INDOOR_RESOLUTION).sum() / around)
    side = float(((obj.sides & contact).sum(axis=1) / (obj.sides.sum(axis=1) + _PRIOR_POINTS)).max())
    return Figures(float(contact.mean()), side, explained, violation, shown)
