"""Verification of poses from the side of the object: which of its points the scene shows.

An object that is half visible covers half of its own surface and a thousandth of the scene. So shares are
those of the object.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, transform
from wsdesc.finding.prepare import SearchObject, SearchScene
from wsdesc.finding.surfels import Contacts, Surfels, contacts
from wsdesc.finding.view import FREE, OUT_OF_VIEW, SEEN, View, facing

CONTACT = 2.0  # resolutions: object points this close to the scene with a similar normal are in contact
_AROUND, _TOUCHING = 6.0, 2.5  # resolutions from the object: scene points near it, and touching it
_VIOLATION_WEIGHT = 3.0  # of the share in free space in the rank of a pose
_DIRECTIONS = 4  # nearest directions that must all be farther for a point to be in free space
_PRIOR = 10.0  # points at the surface that are added, so that few points are no evidence


def quick_features(
    thing: SearchObject,
    scene: SearchScene,
    surfels: Surfels,
    view: View | None,
    poses: Floats,
    sample: NDArray[np.int64],
) -> Floats:
    """Measure poses (H, 4, 4) on a sample of the object's points and on the scene's coarse points.

    Returns:
        (H, 3): share of the object's points near the scene, weighted by the similarity of the normals; share
        in space that the scanner saw through, 0 without a viewpoint; and share of the scene's points around
        the object that touch it.
    """
    found = _contacts_of(thing, surfels, poses, sample)
    contact = (found.touching * found.cosine).mean(axis=1)
    violating = np.zeros(len(poses))
    if view is not None:
        points = transform(thing.points[sample][None], poses)  # (H, S, 3)
        violating = ((view.classify(points) == FREE) & ~found.touching).mean(axis=1)
    return np.column_stack([contact, violating, _explained(thing, scene, poses)])


def contact_shares(thing: SearchObject, surfels: Surfels, poses: Floats, sample: NDArray[np.int64]) -> Floats:
    """Return the share (H,) of the object's points near the scene, weighted by the similarity of normals."""
    found = _contacts_of(thing, surfels, poses, sample)
    return np.asarray((found.touching * found.cosine).mean(axis=1))


def _contacts_of(thing: SearchObject, surfels: Surfels, poses: Floats, sample: NDArray[np.int64]) -> Contacts:
    distance = CONTACT * INDOOR_RESOLUTION
    return contacts(surfels, thing.points[sample], thing.normals[sample], poses, distance)


def _explained(thing: SearchObject, scene: SearchScene, poses: Floats) -> Floats:
    """Return the share (H,) of the scene's coarse points around the object that touch it."""
    points = scene.surfels.points[scene.coarse]
    centres = transform(thing.centre[None], poses)[:, 0]
    reach = thing.radius + _AROUND * INDOOR_RESOLUTION
    near = NeighbourGrid.of(torch.from_numpy(points)).within(torch.from_numpy(centres), reach)
    pose = np.repeat(np.arange(len(poses)), np.diff(near.starts.numpy()))
    offsets = points[near.indices.numpy()] - poses[pose, :3, 3]
    local = np.einsum("nji,nj->ni", poses[pose, :3, :3], offsets)
    distance = thing.distances.at(local)
    around = np.bincount(pose, distance < _AROUND * INDOOR_RESOLUTION, len(poses))
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
