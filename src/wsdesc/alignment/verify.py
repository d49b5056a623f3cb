"""Does a pose agree with the clouds themselves? Evidence for it, and evidence against it.

Nobody knows where the scanners stood, so what they saw through is unknown. What a wrong pose cannot hide:
it lays bent places onto flat ones, crosses surfaces at an angle, and lets one scan hover just in front of
or behind the other, where a scanner that saw the one surface would have seen the other instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from wsdesc.alignment.surface import Contact, Surface, check_length, contact
from wsdesc.core.geometry import check_rigid, inverse

ALIGNED = np.cos(np.radians(30))  # normals that agree
CROSSED = np.cos(np.radians(50))  # normals that contradict each other
FACING = np.cos(np.radians(45))  # in front of a surface rather than beside its border
MISS = 4.0  # reaches up to which a point hovers over a surface instead of belonging to another one
FLAT = 0.06  # bend of a place whose normal can be trusted


class Agreement(NamedTuple):
    """What the clouds say about a pose. All but the last three lie in 0 … 1, and more speaks for the pose.

    Swapping the clouds and inverting the pose swaps what has two sides and leaves the rest. Where nothing
    overlaps, everything is 0.
    """

    overlap_source: float  # share of source points with a target point within the reach
    overlap_target: float
    informative_source: float  # the same, with every direction of normals given the same say
    informative_target: float
    normals: float  # share of the overlapping points whose normals agree, signs aside, within 30°
    uncrossed: float  # 1 less the share of overlapping flat places that meet at more than 50°
    clear: float  # overlapping points over these and those that hover before or behind the other surface
    relief: float  # how well bent places lie on bent ones: Σ min / Σ max of both bends
    details: float  # the same where either place is bent, each bent place that hovers counted against it
    tight: float  # 1 less the point-to-plane error in units of what chance would give within the reach
    rmse_plane: float  # of the overlapping points, in the unit of the points; infinite without any
    rmse_point: float
    misfit: float  # how far flat places typically are from each other's plane; infinite without any


def agreement(source: Surface, target: Surface, T_target_source: ArrayLike, reach: float) -> Agreement:
    """Measure how well the clouds agree under a pose.

    `reach`, in the unit of the points, is the distance up to which two points are the same place: twice the
    working resolution suits clouds downsampled to it.
    """
    T = check_rigid(T_target_source)
    check_length(reach, "reach")
    forth = _side(contact(source, target, T, MISS * reach), source, target, reach)
    back = _side(contact(target, source, inverse(T), MISS * reach), target, source, reach)
    return agreement_of(forth, back, reach)


def agreement_of(forth: Side, back: Side, reach: float) -> Agreement:
    """The agreement from what was counted on either side."""
    both = Side(*(a + b for a, b in zip(forth, back, strict=True)))
    return Agreement(
        overlap_source=_share(forth.on, forth.asked),
        overlap_target=_share(back.on, back.asked),
        informative_source=float(forth.informative),
        informative_target=float(back.informative),
        normals=_share(both.aligned, both.on),
        uncrossed=_share(both.flat - both.crossed, both.flat),
        clear=_share(both.on, both.on + both.hovering),
        relief=_share(both.bend_min, both.bend_max),
        details=_share(both.detail_min, both.detail_max),
        # Offsets that are spread evenly over 0 … reach have a mean square of a third of its square.
        tight=max(0.0, 1 - _root(3 * both.offset_squared / reach**2, both.on)) if both.on else 0.0,
        rmse_plane=_root(both.offset_squared, both.on),
        rmse_point=_root(both.distance_squared, both.on),
        misfit=float(both.level_offset / both.level) ** 2 if both.level > 0 else float("inf"),
    )


def quality(a: Agreement) -> float:
    """One number to rank poses of the same pair by: all evidence has to be there, so it is multiplied."""
    overlap = (a.overlap_source + a.overlap_target) / 2
    return overlap * a.normals * a.uncrossed * a.clear * a.relief * max(a.tight, 0.01)


def plausibility(a: Agreement) -> float:
    """One number to choose among refined poses that all overlap well. How much overlaps is left out, and the
    details have the most to say: where bays or rooms repeat, a wrong pose overlaps more than the right one,
    and only what stands in them tells."""
    return a.normals * a.uncrossed * a.clear * max(a.tight, 0.01) * a.details**3


class Side(NamedTuple):
    """Sums over one cloud's sample, so that both sides can be added."""

    asked: float
    on: float  # within the reach
    informative: float
    aligned: float
    flat: float  # within the reach, and both places flat
    crossed: float
    level: float  # within the reach, both places flat, and their normals agree; every direction the same say
    level_offset: float  # the square roots of their distances from the plane
    hovering: float
    bend_min: float
    bend_max: float
    detail_min: float
    detail_max: float
    offset_squared: float
    distance_squared: float


def _side(c: Contact, asking: Surface, other: Surface, reach: float) -> Side:
    on = c.distance <= reach
    bend, bend_there = asking.bend[asking.sample], other.bend[c.partner]
    known = on & asking.normals[asking.sample].any(axis=1) & other.normals[c.partner].any(axis=1)
    flat = known & (np.maximum(bend, bend_there) < FLAT)
    hovering = np.isfinite(c.distance) & ~on & (c.offset > FACING * c.distance)
    low, high = np.minimum(bend, bend_there), np.maximum(bend, bend_there)
    bent = on & (high >= FLAT)
    level = asking.rarity * (flat & (c.cosine > ALIGNED))
    return Side(
        asked=len(on),
        on=on.sum(),
        informative=asking.rarity[on].sum(),
        aligned=(known & (c.cosine > ALIGNED)).sum(),
        flat=flat.sum(),
        crossed=(flat & (c.cosine < CROSSED)).sum(),
        level=level.sum(),
        level_offset=np.where(level > 0, level * np.sqrt(np.where(on, c.offset, 0.0)), 0.0).sum(),
        hovering=hovering.sum(),
        bend_min=low[known].sum(),
        bend_max=high[known].sum(),
        detail_min=low[bent].sum(),
        detail_max=high[bent].sum() + (hovering & (bend >= FLAT)).sum(),
        offset_squared=np.square(c.offset[on]).sum(),
        distance_squared=np.square(c.distance[on]).sum(),
    )


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else 0.0


def _root(squares: float, count: float) -> float:
    return float(np.sqrt(squares / count)) if count > 0 else float("inf")
