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
from wsdesc.finding.view import FREE, OUT_OF_VIEW, SEEN, View, facing

CONTACT = 2.0  # resolutions: object points this close to the scene with a similar normal are in contact
_AROUND, _TOUCHING = 6.0, 2.5  # resolutions from the object: scene points near it, and touching it
_VIOLATION_WEIGHT = 3.0  # of the share in free space in the rank of a pose, where contacts weigh 1
_EXPLAINED_WEIGHT, _VOTES_WEIGHT = 1.4, 0.09  # of the explained share, and of the votes' logarithm
_FEW_VOTES = 0.05  # relative to the best pose; fewer say no more
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
    found = _contacts_of(thing, surfels, poses, sample)
    violating = np.zeros(len(poses))
    if view is not None:
        points = transform(thing.points[sample][None], poses)  # (H, S, 3)
        violating = ((view.classify(points) == FREE) & ~found.touching).mean(axis=1)
    return _weighted(thing, found, sample), violating


def contact_shares(thing: SearchObject, surfels: Surfels, poses: Floats, sample: NDArray[np.int64]) -> Floats:
    """Return the weighted share (H,) of the object's points in contact with the scene."""
    return _weighted(thing, _contacts_of(thing, surfels, poses, sample), sample)


def _weighted(thing: SearchObject, found: Contacts, sample: NDArray[np.int64]) -> Floats:
    """Return the share (H,) of points in contact; similar normals and rare points weigh more."""
    weights = thing.weights[sample]
    return np.asarray((found.touching * found.cosine) @ (weights / weights.sum()), np.float64)


def _contacts_of(thing: SearchObject, surfels: Surfels, poses: Floats, sample: NDArray[np.int64]) -> Contacts:
    distance = CONTACT * INDOOR_RESOLUTION
    return contacts(surfels, thing.points[sample], thing.normals[sample], poses, distance)


def explained_shares(thing: SearchObject, scene: SearchScene, poses: Floats) -> Floats:
    """Return the share (H,) of the scene's coarse points around the object that touch it."""
    points = scene.surfels.points[scene.coarse]
    grid = NeighbourGrid.of(torch.from_numpy(points))
    centres = torch.from_numpy(transform(thing.centre[None], poses)[:, 0])
    reach = thing.radius + _AROUND * INDOOR_RESOLUTION
    shares = np.zeros(len(poses))
    for start in range(0, len(poses), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        near = grid.within(centres[part], reach)
        run_in_chunks(
            _explain, len(shares[part]), np.ascontiguousarray(poses[part]), points, near.indices.numpy(),
            near.starts.numpy(), *thing.distances, _AROUND * INDOOR_RESOLUTION, _TOUCHING * INDOOR_RESOLUTION,
            shares[part],
        )  # fmt: skip
    return shares


@kernel
def _explain(
    start: int, stop: int, poses: Any, points: Any, near: Any, starts: Any, low: Any, cell: float,
    distances: Any, around: float, touching: float, shares: Any,
) -> None:  # fmt: skip
    """Look up the distances of the scene's points to an object in the poses of a range."""
    for h in range(start, stop):
        T = poses[h]
        beside, in_contact = 0, 0
        for m in range(starts[h], starts[h + 1]):
            k = near[m]
            x, y, z = points[k, 0] - T[0, 3], points[k, 1] - T[1, 3], points[k, 2] - T[2, 3]
            a = int(np.floor((T[0, 0] * x + T[1, 0] * y + T[2, 0] * z - low[0]) / cell))
            b = int(np.floor((T[0, 1] * x + T[1, 1] * y + T[2, 1] * z - low[1]) / cell))
            c = int(np.floor((T[0, 2] * x + T[1, 2] * y + T[2, 2] * z - low[2]) / cell))
            if 0 <= a < distances.shape[0] and 0 <= b < distances.shape[1] and 0 <= c < distances.shape[2]:
                distance = distances[a, b, c]
                beside += distance < around
                in_contact += distance < touching
        shares[h] = in_contact / max(beside, 1)


def rank(contact: Floats, explained: Floats, violating: Floats, votes: Floats, *, improved: bool) -> Floats:
    """Compute the rank (H,) of poses; larger is better.

    Free space weighs more after the poses are `improved`: coarse ones violate it by their errors.

    Args:
        contact: Weighted share of the object's points in contact.
        explained: Share of the scene's points around the object that touch it.
        violating: Share of the object's points in free space.
        votes: Of the pairs of points, relative to the best pose.
        improved: Whether the poses are exact.
    """
    weight = _VIOLATION_WEIGHT if improved else 1.0
    return np.asarray(
        contact
        + _EXPLAINED_WEIGHT * explained
        - weight * violating
        + _VOTES_WEIGHT * np.log(votes + _FEW_VOTES)
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
        front = facing(points, view.viewpoint) & (state != OUT_OF_VIEW)
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
