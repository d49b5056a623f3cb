"""Which motions an overlap leaves open: a plane slides, a cylinder turns, a corridor has no end.

A small motion is a twist (v, ω): a shift v and a turn ω about the centre of the overlap, ω in units that let
a point at the overlap's typical distance from the centre move by 1. A point with normal n at p sees
the part n·v + (p × n)·ω of it. Two scans see a place with noise that is their own, so the product of what
both see has the noise averaged out, and a plane stays a plane however rough the scanner made it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wsdesc.alignment.surface import Surface, check_length, contact
from wsdesc.core.geometry import Floats, check_rigid, inverse

SAME_SIDE = np.cos(np.radians(45))  # normals further apart belong to different surfaces
# A motion is open if it moves the places across their surfaces by less than this, as mean square: so much
# is left of the noise of normals in M places of scans half as noisy as their resolution (measured: a third).
OPEN, OPEN_NOISE = 0.002, 0.08  # OPEN + OPEN_NOISE / √M
FEWEST = 30  # places in the overlap below which nothing is said
THIN = 2.0  # reaches between parallel planes above which they are several


class Places(NamedTuple):
    """Where two surfaces touch, asked from both sides, in the target's frame; normals on one side."""

    source: Floats  # (M, 3) points of the moved source
    target: Floats  # (M, 3) their partners
    source_normals: Floats  # (M, 3)
    target_normals: Floats  # (M, 3)
    weights: (
        Floats  # (M,) 1 where the planes coincide … 0 at the reach; adding up to 1 for each side's sample
    )


class Information(NamedTuple):
    """The Hessian of the point-to-plane problem a place, of twists (v, ω) in the target's frame.

    The turn ω is about `centre` and in radians times `extent`, which makes all six comparable: the trace
    of the first block is 1 if both scans agree. For turns in plain radians, multiply the rows and
    columns of ω by `extent`; for the sum over all places, multiply by `places`.
    """

    matrix: Floats  # (6, 6) symmetric, no negative eigenvalues
    centre: Floats  # (3,) of the overlap
    extent: float  # typical distance of its points from there
    height: float  # typical distance from the plane through the centre that fits the overlap best
    places: int  # that were counted


class Degeneracy(NamedTuple):
    """What the geometry leaves open."""

    kind: str | None  # None where the pose is determined
    conditioning: float  # least over greatest eigenvalue of the information, 0 … 1
    motions: Floats  # (F, 6) the undetermined twists, in the units of `Information`
    warning: str | None  # a sentence for the user


_WARNINGS = {
    "empty": "the scans do not overlap: nothing determines the pose",
    "plane": "the overlap is one plane: the scans can slide along it and turn on it",
    "parallel planes": "the overlap is parallel planes: the scans can slide along them and turn on them",
    "corridor": "nothing in the overlap stops the scans from sliding along one direction, as in a corridor",
    "cylinder": "the overlap is a cylinder: the scans can slide along its axis and turn about it",
    "sphere": "the overlap is a sphere: the scans can turn about its centre",
    "revolution": "the overlap is round: the scans can turn about its axis",
    "screw": "the scans can be screwed along the overlap",
    "other": "the overlap leaves several motions open",
}


def contact_pairs(source: Surface, target: Surface, T_target_source: Floats, reach: float) -> Places:
    """Pairs of places within `reach` whose normals do not contradict each other."""
    T_source_target = inverse(T_target_source)
    forth = contact(source, target, T_target_source, reach)
    back = contact(target, source, T_source_target, reach)
    R, t = T_target_source[:3, :3], T_target_source[:3, 3]
    sides = []
    for c, other, flip in ((forth, target, False), (back, source, True)):
        on = c.cosine > SAME_SIDE
        mine, mine_normals = c.points[on], c.normals[on]
        yours, yours_normals = other.points[c.partner[on]], other.normals[c.partner[on]]
        weights = np.square(1 - np.square(np.minimum(c.offset[on] / reach, 1.0)))
        pair = (mine, yours, mine_normals, yours_normals)
        if flip:  # asked by the target, in the source's frame: move it back
            pair = tuple(np.einsum("ij,nj->ni", R, x) for x in (yours, mine, yours_normals, mine_normals))
            pair = (pair[0] + t, pair[1] + t, *pair[2:])
        sides.append((*pair, weights / len(c.points)))
    p, q, n_p, n_q, weights = (np.concatenate(x) for x in zip(*sides, strict=True))
    side = np.where(np.einsum("ni,ni->n", n_p, n_q) < 0, -1.0, 1.0)
    return Places(p, q, side[:, None] * n_p, n_q, weights)


def information(source: Surface, target: Surface, T_target_source: ArrayLike, reach: float) -> Information:
    """How firmly the overlap under a pose holds each motion; `reach` as for `agreement`."""
    T = check_rigid(T_target_source)
    check_length(reach, "reach")
    return information_of(contact_pairs(source, target, T, reach))


def information_of(places: Places) -> Information:
    count, total = len(places.weights), places.weights.sum()
    if count == 0 or not total > 0:
        return Information(np.zeros((6, 6)), np.zeros(3), 0.0, 0.0, 0)
    weights = places.weights / total
    middle = (places.source + places.target) / 2
    centre = np.einsum("n,ni->i", weights, middle)
    arms = middle - centre
    spread = np.linalg.eigvalsh(np.einsum("n,ni,nj->ij", weights, arms, arms))  # ascending
    extent = float(np.sqrt(max(spread.sum(), 0.0)))
    if extent == 0:  # all in one place: it cannot turn
        return Information(np.zeros((6, 6)), centre, 0.0, 0.0, count)
    seen = [
        np.hstack([n, np.cross(arms / extent, n)]) for n in (places.source_normals, places.target_normals)
    ]
    product = np.einsum("n,ni,nj->ij", weights, *seen)
    return information_from(product, centre, extent, spread[0], count)


def information_from(
    product: Floats, centre: Floats, extent: float, thinnest: float, count: int
) -> Information:
    """From the mean product (6, 6) of what both scans see of twists, and the overlap's least variance."""
    values, vectors = np.linalg.eigh((product + product.T) / 2)
    matrix = np.einsum("ik,k,jk->ij", vectors, np.maximum(values, 0.0), vectors)
    return Information(matrix, centre, extent, float(np.sqrt(max(thinnest, 0.0))), count)


def degeneracy(known: Information, reach: float) -> Degeneracy:
    """Name the motions that are not determined. `reach` is the one the information was found with."""
    check_length(reach, "reach")
    values, vectors = np.linalg.eigh(known.matrix)  # ascending
    if known.places < FEWEST or known.extent < reach:
        return Degeneracy("empty", 0.0, np.eye(6), _WARNINGS["empty"])
    open_ = vectors[:, values < OPEN + OPEN_NOISE / np.sqrt(known.places)].T  # (F, 6)
    kind = _kind(open_, known.height, reach) if len(open_) else None
    conditioning = float(np.clip(values[0] / values[-1], 0.0, 1.0))
    return Degeneracy(kind, conditioning, open_, _WARNINGS[kind] if kind else None)


def _kind(motions: Floats, height: float, reach: float) -> str:
    """The shape that has these motions (F, 6), F ≥ 1. The only ones that have any are those named here."""
    shifts = len(motions) - _rank(motions[:, 3:])  # combinations of them that do not turn
    match len(motions), shifts:
        case (1, 1):
            return "corridor"
        case (1, 0):
            shift, turn = motions[0, :3], motions[0, 3:]
            along = abs(shift @ turn) / (turn @ turn)  # the pitch, in extents a radian
            return "revolution" if along < 0.3 else "screw"
        case (2, 1):
            return "cylinder"
        case (2 | 3, 2):
            return "parallel planes" if height > THIN * reach else "plane"
        case (3, 0):
            return "sphere"
        case _:
            return "other"


def _rank(turns: Floats) -> int:
    """How many independent turns there are among unit twists whose turning parts are given (F, 3)."""
    return int((np.linalg.svd(turns, compute_uv=False) > 0.35).sum())
