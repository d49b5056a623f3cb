"""Verification of poses from the side of the object: which of its points the scene shows.

An object that is half visible covers half of its own surface and a thousandth of the scene. So shares are
those of the object.
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
_AROUND, _TOUCHING = 6.0, 2.5  # resolutions from the object: scene points near it, and touching it
_LEVEL = 1.5  # resolutions from the plane of the object's surface: points that continue it
_LIMITS = np.array([_AROUND, _TOUCHING, _LEVEL])
_PARALLEL = np.cos(np.radians(20))  # angle between the normals of a surface and of its continuation
# Weights in the rank of a pose, where contacts weigh 1: the free space of coarse and of improved poses, the
# explained and the continued share, and the logarithm of the votes.
_ROUGH_VIOLATION, _VIOLATION, _EXPLAINED, _CONTINUED, _VOTES = 1.2, 3.0, 2.1, 2.5, 0.27
_MOST_CONTINUED = 0.6  # a larger share has no more weight
_FEW_VOTES = 0.05  # relative to the best pose; fewer have no less weight
_DIRECTIONS = 4  # nearest directions that must all be farther for a point to be in free space
_AT_ONCE = 4000  # poses whose neighbours are in memory
_PRIOR = 10.0  # points at the surface that are added, so that few points are no evidence


def quick_features(
    thing: SearchObject,
    surfels: Surfels,
    view: View | None,
    poses: Floats,
    sample: NDArray[np.int64],
) -> tuple[Floats, Floats]:
    """Measure poses (H, 4, 4) on a sample of the object's points.

    Returns:
        (H,) weighted share of the object's points in contact with the scene, and (H,) share in space that the
        scanner saw through, 0 without a viewpoint.
    """
    at_scene = _contacts_of(thing, surfels, poses, sample)
    violating = np.zeros(len(poses))
    if view is not None:
        points = transform(thing.points[sample][None], poses)  # (H, S, 3)
        violating = ((view.classify(points, _DIRECTIONS) == FREE) & ~at_scene.touching).mean(axis=1)
    return _weighted(thing, at_scene, sample), violating


def contact_shares(thing: SearchObject, surfels: Surfels, poses: Floats, sample: NDArray[np.int64]) -> Floats:
    """Return the weighted share (H,) of the object's points in contact with the scene."""
    return _weighted(thing, _contacts_of(thing, surfels, poses, sample), sample)


def _weighted(thing: SearchObject, at_scene: Contacts, sample: NDArray[np.int64]) -> Floats:
    """Return the share (H,) of points in contact; similar normals and rare points weigh more."""
    weights = thing.weights[sample]
    return np.asarray((at_scene.touching * at_scene.cosine) @ (weights / weights.sum()), np.float64)


def _contacts_of(thing: SearchObject, surfels: Surfels, poses: Floats, sample: NDArray[np.int64]) -> Contacts:
    distance = CONTACT * INDOOR_RESOLUTION
    return contacts(surfels, thing.points[sample], thing.normals[sample], poses, distance)


class Surroundings(NamedTuple):
    """Shares of the scene's points around an object in several poses, (H,) each."""

    explained: Floats  # of the points near the object that touch it
    continued: Floats  # points beside the object in the plane of its surface, relative to those that touch it


def surroundings(
    thing: SearchObject, points: Floats, normals: Floats, poses: Floats, grid: NeighbourGrid | None = None
) -> Surroundings:
    """Compare the scene's points (N, 3) around an object in poses (H, 4, 4) with the object.

    A scene that continues the object's surface beyond its border is a larger thing: a pose of a box on a wall
    has as many contacts as the right one.
    """
    grid = grid or NeighbourGrid.of(torch.from_numpy(points))
    centres = torch.from_numpy(transform(thing.centre[None], poses)[:, 0])
    reach = thing.radius + _AROUND * INDOOR_RESOLUTION
    result = Surroundings(np.zeros(len(poses)), np.zeros(len(poses)))
    for start in range(0, len(poses), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        near = grid.within(centres[part], reach)
        run_in_chunks(
            _compare, len(result.explained[part]), np.ascontiguousarray(poses[part]), points, normals,
            near.indices.numpy(), near.starts.numpy(), thing.points, thing.normals, *thing.distances,
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
                continuing += abs(height) < limits[2] and abs(cosine) > _PARALLEL
            beside += distance < limits[0]
        explained[h] = touching / max(beside, 1)
        continued[h] = continuing / max(touching, 1)


class QuickScore(NamedTuple):
    """Figures of poses, (H,) each, by which they are ranked."""

    contact: Floats  # weighted share of the object's points in contact
    violating: Floats  # share of the object's points in free space
    explained: Floats  # share of the scene's points around the object that touch it
    continued: Floats  # points that continue the object's surface, relative to those that touch it
    votes: Floats  # of pairs of points, relative to the best pose

    def rank(self, *, improved: bool) -> Floats:
        """Compute the rank (H,) of poses; larger is better.

        Free space weighs more after the poses are `improved`: coarse ones violate it by their errors.
        """
        return np.asarray(
            self.contact
            + _EXPLAINED * self.explained
            - _CONTINUED * np.minimum(self.continued, _MOST_CONTINUED)
            - (_VIOLATION if improved else _ROUGH_VIOLATION) * self.violating
            + _VOTES * np.log(self.votes + _FEW_VOTES)
        )


class Measured(NamedTuple):
    """Figures of one refined pose."""

    visible: float  # share of the object's points in contact with the scene
    side: float  # largest share in contact of the points that can be seen from one direction
    explained: float  # share of the scene's points near the object that touch it
    violation: float | None  # share of the visible points in free space; None without a viewpoint
    shown: float | None  # share of the points that face the viewpoint in contact with the scene


def measure(thing: SearchObject, scene: SearchScene, part: Surfels, view: View | None, T: Floats) -> Measured:
    """Measure one pose (4, 4) with all points of the scene around it (`part`)."""
    sample = thing.fine
    points = transform(thing.points[sample], T)
    contact = _contacts_of(thing, part, T[None], sample).touching[0]
    violation = shown = None
    if view is not None:
        state = view.classify(points, nearest=_DIRECTIONS)
        front = facing(points, view.viewpoint) & ((state == SEEN) | (state == FREE))
        shown = float((front & contact).sum() / (front.sum() + _PRIOR))
        violating = ((state == FREE) & ~contact).sum()
        violation = float(violating / (violating + (state == SEEN).sum() + _PRIOR))
    reach = thing.radius + _AROUND * INDOOR_RESOLUTION
    near = scene.points[scene.tree.query_ball_point(transform(thing.centre[None], T)[0], reach)]
    local = (near - T[:3, 3]) @ T[:3, :3]
    distance, _ = thing.tree.query(local, distance_upper_bound=_AROUND * INDOOR_RESOLUTION)
    around = max(int(np.isfinite(distance).sum()), 1)
    explained = float((distance < _TOUCHING * INDOOR_RESOLUTION).sum() / around)
    side = float(((thing.sides & contact).sum(axis=1) / (thing.sides.sum(axis=1) + _PRIOR)).max())
    return Measured(float(contact.mean()), side, explained, violation, shown)
