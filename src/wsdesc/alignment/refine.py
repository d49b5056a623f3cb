"""A rough pose moved to where the surfaces themselves meet best, the same whichever cloud is called source.

First generalised ICP in both directions, wide, then narrower; the two results are met half way. Then
a few steps of one problem in which both clouds have the same part, which settle the last millimetres.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.transform import Rotation

from wsdesc.alignment.observability import FEWEST, Information, Places, contact_pairs, information_of
from wsdesc.alignment.surface import Surface, check_length
from wsdesc.alignment.verify import Agreement, agreement
from wsdesc.core.geometry import Floats, check_rigid, inverse

WIDTHS = (8.0, 3.0)  # resolutions within which generalised ICP looks for partners, one stage after the other
REACH = 2.0  # the same of the last steps, and of what a pose is judged by
STEPS = 12  # of the joint problem, at most
STILL = 3e-4  # resolutions; a step that moves the overlap by less is the last
DOUBT = 0.01  # share of the merit that a sample cannot tell from chance
WEAK = 1e-3  # share of the strongest eigenvalue below which a motion is left as it is


class Refined(NamedTuple):
    """A pose on the spot, and how firmly it stands there."""

    T_target_source: Floats  # (4, 4)
    converged: bool  # the last steps came to rest, and the pose given did not agree better
    rmse: float  # point to plane, of the overlapping points, in their unit; infinite without any
    information: Information  # of the point-to-plane problem at this pose
    agreement: Agreement  # at this pose, within REACH resolutions


def refine(source: Surface, target: Surface, T_target_source: ArrayLike, *, resolution: float) -> Refined:
    """Refine a pose that is off by up to some resolutions; `resolution` is the clouds' point spacing.

    Exchanging the clouds gives the inverse pose, up to 0.05 resolutions where the geometry determines
    it. If the result agrees less with the clouds than the pose given, by a percent of `merit`, that one is
    returned.
    """
    T_given = check_rigid(T_target_source)
    check_length(resolution, "resolution")
    reach = REACH * resolution
    T = T_given
    if min(len(source.points), len(target.points)) >= 5:  # fewer have no covariances
        for width in WIDTHS:
            T = _both_ways(source, target, T, width * resolution, resolution)
    T, still = _settle(source, target, T, reach, STILL * resolution)

    before, after = (agreement(source, target, pose, reach) for pose in (T_given, T))
    kept = merit(after, reach) < (1 - DOUBT) * merit(before, reach)
    T, judged = (T_given, before) if kept else (T, after)
    known = information_of(contact_pairs(source, target, T, reach))
    return Refined(T, still and not kept, judged.rmse_plane, known, judged)


def evaluate_pose(
    source: Surface, target: Surface, T_target_source: ArrayLike, *, resolution: float
) -> Refined:
    """What `refine` says about a pose, without changing it."""
    T = check_rigid(T_target_source)
    reach = REACH * resolution
    judged = agreement(source, target, T, reach)
    return Refined(
        T, False, judged.rmse_plane, information_of(contact_pairs(source, target, T, reach)), judged
    )


def merit(a: Agreement, reach: float) -> float:
    """One number to compare poses of the same pair by: how much overlaps, how tightly, with which normals."""
    overlap = (a.overlap_source + a.overlap_target) / 2
    return overlap * (1 - min(a.rmse_plane / reach, 1.0) ** 2) * a.normals


def _both_ways(source: Surface, target: Surface, T: Floats, width: float, resolution: float) -> Floats:
    """Generalised ICP from either side, met half way; the better one where they went apart."""
    T_forth = _gicp(source, target, T, width, resolution)
    T_back = inverse(_gicp(target, source, inverse(T), width, resolution))
    T_apart = inverse(T_forth) @ T_back
    turn = Rotation.from_matrix(T_apart[:3, :3])
    if turn.magnitude() < 0.05 and np.linalg.norm(T_apart[:3, 3]) < 10 * resolution:
        return _middle(T_forth, T_back)
    reach = REACH * resolution
    return max((T_forth, T_back), key=lambda pose: merit(agreement(source, target, pose, reach), reach))


def _gicp(
    source: Surface, target: Surface, T_target_source: Floats, width: float, resolution: float
) -> Floats:
    import small_gicp

    cloud, tree = target.gicp
    result = small_gicp.align(
        cloud,
        source.gicp_sample,
        tree,
        T_target_source,
        max_correspondence_distance=width,
        num_threads=1,  # sums in another order would give other digits
        max_iterations=20,
        rotation_epsilon=1e-3,
        translation_epsilon=0.03 * resolution,
    )
    return rigid(np.asarray(result.T_target_source))


def _settle(source: Surface, target: Surface, T: Floats, reach: float, still: float) -> tuple[Floats, bool]:
    """Gauss-Newton on the point-to-plane distances of both clouds' samples; and whether it came to rest."""
    for _ in range(STEPS):
        places = contact_pairs(source, target, T, reach)
        T_step, moved = _step(places)
        if T_step is None:
            return T, False
        T = rigid(T_step @ T)
        if moved < still:
            return T, True
    return T, False


def _step(places: Places) -> tuple[Floats | None, float]:
    """The motion T_target_target that brings the planes together, and how far it moves the overlap."""
    if len(places.weights) < FEWEST or not places.weights.sum() > 0:
        return None, 0.0
    weights = places.weights / places.weights.sum()
    normals = places.source_normals + places.target_normals
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    centre = np.einsum("n,ni->i", weights, places.source)
    arms = places.source - centre
    extent = np.sqrt(np.einsum("n,ni,ni->", weights, arms, arms))
    if not extent > 0:
        return None, 0.0
    seen = np.hstack([normals, np.cross(arms / extent, normals)])  # (M, 6)
    gaps = np.einsum("ni,ni->n", places.target - places.source, normals)
    values, vectors = np.linalg.eigh(np.einsum("n,ni,nj->ij", weights, seen, seen))
    slope = np.einsum("ik,n,ni,n->k", vectors, weights, seen, gaps, optimize=True)
    return motion_of(values, vectors, slope, centre, extent)


def motion_of(
    values: Floats, vectors: Floats, slope: Floats, centre: Floats, extent: float, weak: float = WEAK
) -> tuple[Floats, float]:
    """The step (4, 4) about `centre` that a quadratic problem of twists asks for, and how far it moves.

    `values` (6,) ascending and `vectors` (6, 6) decompose its matrix; `slope` (6,) is what pulls along these.
    """
    # What the overlap does not determine stays as it is instead of following the noise.
    twist = vectors @ np.where(values > weak * values[-1], slope / np.maximum(values, 1e-300), 0.0)
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(twist[3:] / extent).as_matrix()
    T[:3, 3] = centre + twist[:3] - T[:3, :3] @ centre
    return T, float(np.linalg.norm(twist))


def _middle(T_a: Floats, T_b: Floats) -> Floats:
    """Half way between two motions that are close to each other."""
    T = np.eye(4)
    turn = Rotation.from_matrix(T_a[:3, :3].T @ T_b[:3, :3]).as_rotvec()
    T[:3, :3] = T_a[:3, :3] @ Rotation.from_rotvec(turn / 2).as_matrix()
    T[:3, 3] = (T_a[:3, 3] + T_b[:3, 3]) / 2
    return T


def rigid(T: Floats) -> Floats:
    """The same motion with its rotation made exact, as products of many lose it."""
    T = T.copy()
    T[:3, :3] = Rotation.from_matrix(T[:3, :3]).as_matrix()
    return T
