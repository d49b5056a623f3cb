"""Relative scale of two aligned scans, with its uncertainty.

A rigid pose can look right although one scan is a few percent too large. The scale is estimated by fitting a
similarity transformation to the overlap: the point-to-plane problem of the refinement, with the logarithm of
the scale as a seventh unknown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from wsdesc.alignment.information.matrix import MIN_PAIRS, SAME_SIDE
from wsdesc.alignment.refine.result import WEAK
from wsdesc.alignment.surface import CpuSurface, CudaSurface, Surface, for_backend
from wsdesc.alignment.surface.cuda import transform_with_normals
from wsdesc.core.geometry import Floats

# Search distance in resolutions, steps, on the coarse samples or not.
STAGES = ((8.0, 3, True), (3.0, 3, True), (2.0, 5, False))
# Chosen on 251 pairs of indoor training scans, whose scale is 1: their errors have a variance of about 1.
INDEPENDENT = 15  # contact pairs with independent errors
SYSTEMATIC = 0.015  # deviation of scans that fusion has distorted,
SYSTEMATIC_SINGLE = 0.01  # and of scans taken from one viewpoint each
TOLERANCE = 3.0  # standard deviations within which a scale may equal 1,
MAX_DIFFERENCE = 0.05  # but never beyond this logarithm
SUSPICION = 2.0  # standard deviations from which on a success has a warning
UNDETERMINED = 0.002  # determinacy below which rigid motions imitate a growth: that of noisy normals
MAX_STEP = 0.1  # largest change of the logarithm in one step


class RelativeScale(NamedTuple):
    """Size of the source relative to the target, at the best similarity transformation."""

    factor: float  # 1.04: the source is 4 % too large; 1 if the overlap is too small to tell
    deviation: float  # standard deviation of the factor, relative; infinite if the overlap cannot tell
    determinacy: float = 1.0  # as in `SimilarityFit`

    @property
    def determined(self) -> bool:
        """False if the overlap is nearly the same at every scale, as a plane or the corner of a room."""
        return self.determinacy >= UNDETERMINED

    @property
    def differs(self) -> bool:
        """True if the factor differs from 1 by more than its uncertainty allows."""
        return abs(math.log(self.factor)) > min(TOLERANCE * self.deviation, MAX_DIFFERENCE)

    @property
    def suspicious(self) -> bool:
        """True if the factor differs from 1 by more than two standard deviations."""
        return abs(math.log(self.factor)) > SUSPICION * self.deviation


class SimilarityFit(NamedTuple):
    """A similarity transformation that was fitted to an overlap."""

    S_target_source: Floats  # (4, 4) similarity: the rotation times the factor, and the translation
    factor: float
    deviation: float  # standard deviation of the factor, relative, if one contact pair alone determined it
    determinacy: float  # mean square motion along normals by unit growth, less what rigid motions imitate


def estimate_scale(
    source: Surface, target: Surface, T_target_source: Floats, resolution: float, *, single: bool = False
) -> RelativeScale:
    """Estimate the relative scale of two surfaces near a refined pose.

    Args:
        source, target: surfaces of one backend.
        T_target_source: (4, 4) rigid pose to start from.
        resolution: point spacing of the surfaces, in their unit.
        single: both scans were taken from one viewpoint each, so that no fusion has distorted them.

    Raises:
        InputError: the surfaces are on two devices.
    """
    fit = fit_similarity(source, target, T_target_source, resolution)
    if fit is None:
        return RelativeScale(1.0, math.inf, 0.0)
    systematic = SYSTEMATIC_SINGLE if single else SYSTEMATIC
    deviation = math.hypot(fit.deviation / math.sqrt(INDEPENDENT), systematic)
    return RelativeScale(1 / fit.factor, deviation, fit.determinacy)


def fit_similarity(
    source: Surface,
    target: Surface,
    T_target_source: Floats,
    resolution: float,
    stages: Sequence[tuple[float, int, bool]] = STAGES,
) -> SimilarityFit | None:
    """Fit a similarity transformation to the overlap of two surfaces, near a rigid pose.

    Args:
        source, target: surfaces of one backend.
        T_target_source: (4, 4) rigid pose to start from.
        resolution: point spacing of the surfaces, in their unit.
        stages: search distance in resolutions, number of steps, and whether on the coarse samples.

    Returns:
        The similarity; None if the surfaces overlap too little.

    Raises:
        InputError: the surfaces are on two devices.
    """
    find_pairs = for_backend(source, target, cpu=_pairs_on_cpu, cuda=_pairs_on_cuda)
    S = np.array(T_target_source, dtype=np.float64)  # the rotation times exp(log_scale)
    log_scale, step = 0.0, None
    for distance, steps, coarse in stages:
        for _ in range(steps):
            pairs = find_pairs(source, target, S, math.exp(log_scale), distance * resolution, coarse)
            step = _solve(pairs, distance * resolution)
            if step is None:
                return None
            S = step.S_target_target @ S
            log_scale += step.log_scale
    assert step is not None
    return SimilarityFit(S, math.exp(log_scale), step.deviation, step.determinacy)


class _Pairs(NamedTuple):
    """Nearest points of both surfaces, searched from both sides, in the target's frame."""

    source: Floats  # (M, 3)
    target: Floats  # (M, 3)
    normals: Floats  # (M, 3) mean of both unit normals, normalised
    source_normals: Floats  # (M, 3) on the side of the target's
    target_normals: Floats  # (M, 3)


class _Step(NamedTuple):
    S_target_target: Floats  # (4, 4) similarity
    log_scale: float
    deviation: float  # of the logarithm, if one pair alone determined it
    determinacy: float  # as in `SimilarityFit`


def _pairs_on_cpu(
    source: CpuSurface, target: CpuSurface, S: Floats, scale: float, distance: float, coarse: bool
) -> _Pairs:
    A, t = S[:3, :3], S[:3, 3]
    p_sample, q_sample = (x.coarse_sample if coarse else x.full_sample for x in (source, target))
    p = np.einsum("ij,nj->ni", A, p_sample.points) + t  # (S, 3)
    near_p, at_q = target.nearest(p, distance)
    q = q_sample.points
    in_source = np.einsum("ji,nj->ni", A, q - t) / scale**2  # AᵀA = scale² I
    near_q, at_p = source.nearest(in_source, distance / scale)
    forth, back = np.isfinite(near_p), np.isfinite(near_q)
    at_q, at_p = at_q[forth], at_p[back]
    return _compatible(
        np.concatenate([p[forth], np.einsum("ij,nj->ni", A, source.points[at_p]) + t]),
        np.concatenate([target.points[at_q], q[back]]),
        np.einsum(
            "ij,nj->ni",
            A / scale,
            np.concatenate([p_sample.normals[forth], source.normals[at_p]]),
        ),
        np.concatenate([target.normals[at_q], q_sample.normals[back]]),
    )


def _pairs_on_cuda(
    source: CudaSurface, target: CudaSurface, S: Floats, scale: float, distance: float, coarse: bool
) -> _Pairs:
    p_sample, q_sample = (
        x.coarse_with_normals if coarse else x.sample_with_normals for x in (source, target)
    )
    T = torch.from_numpy(S).to(source.points.device)[None]  # (1, 4, 4)
    back = torch.from_numpy(np.linalg.inv(S)).to(source.points.device)[None]
    p = transform_with_normals(p_sample, T)[0]  # (S, 6)
    q = target.points_with_normals[target.nearest_to(p[None, :, :3])[0]]
    at_p = source.nearest_to(transform_with_normals(q_sample, back)[..., :3])[0]
    p = torch.cat([p, transform_with_normals(source.points_with_normals[at_p], T)[0]])
    q = torch.cat([q, q_sample])
    near = (p[:, :3] - q[:, :3]).square().sum(1) < distance * distance
    source_points, target_points = p[near].cpu().numpy(), q[near].cpu().numpy()  # (M, 6)
    return _compatible(
        source_points[:, :3], target_points[:, :3], source_points[:, 3:] / scale, target_points[:, 3:]
    )


def _compatible(p: Floats, q: Floats, n_p: Floats, n_q: Floats) -> _Pairs:
    """Keep pairs whose normals do not contradict each other."""
    cosine = np.einsum("ni,ni->n", n_p, n_q)
    kept = np.abs(cosine) > SAME_SIDE
    n_p, n_q = np.where(cosine[kept, None] < 0, -n_p[kept], n_p[kept]), n_q[kept]
    normals = n_p + n_q
    return _Pairs(p[kept], q[kept], normals / np.linalg.norm(normals, axis=1, keepdims=True), n_p, n_q)


def _solve(pairs: _Pairs, distance: float) -> _Step | None:
    """Solve one Gauss-Newton step of the similarity; None if there are too few pairs."""
    if len(pairs.source) < MIN_PAIRS:
        return None
    gaps = np.einsum("ni,ni->n", pairs.target - pairs.source, pairs.normals)
    weights = np.square(1 - np.square(np.minimum(np.abs(gaps) / distance, 1.0)))
    weights /= max(weights.sum(), 1e-300)
    centre = np.einsum("n,ni->i", weights, pairs.source)
    arms = pairs.source - centre
    extent = math.sqrt(np.einsum("n,ni,ni->", weights, arms, arms))
    if not extent > 0:
        return None
    arms /= extent
    response = _responses(arms, pairs.normals)
    matrix = np.einsum("n,ni,nj->ij", weights, response, response)
    slope = np.einsum("n,ni,n->i", weights, response, gaps)
    values, vectors = np.linalg.eigh(matrix)
    inverse = np.where(values > WEAK * values[-1], 1 / np.maximum(values, 1e-300), 0.0)
    x = np.einsum("ik,k,jk,j->i", vectors, inverse, vectors, slope)
    variance = np.einsum("n,n->", weights, np.square(gaps - np.einsum("ni,i->n", response, x)))
    spread = np.einsum("k,k->", np.square(vectors[6]), 1 / np.maximum(values, 1e-9))
    log_scale = float(np.clip(x[6] / extent, -MAX_STEP, MAX_STEP))
    S = np.eye(4)
    S[:3, :3] = math.exp(log_scale) * Rotation.from_rotvec(x[3:6] / extent).as_matrix()
    S[:3, 3] = centre + x[:3] - S[:3, :3] @ centre
    determinacy = _determinacy(
        weights, *(_responses(arms, n) for n in (pairs.source_normals, pairs.target_normals))
    )
    return _Step(S, log_scale, math.sqrt(variance * spread) / extent, determinacy)


def _responses(arms: Floats, normals: Floats) -> Floats:
    """Return how far points move along their normals (M, 7) by shifts, rotations and growth."""
    growth = np.einsum("ni,ni->n", arms, normals)
    return np.hstack([normals, np.cross(arms, normals), growth[:, None]])


def _determinacy(weights: Floats, p: Floats, q: Floats) -> float:
    """Return the share of growth that no rigid motion imitates, from the responses (M, 7) of both scans.

    The noise of their normals is independent, so it averages out in the product.
    """
    product = np.einsum("n,ni,nj->ij", weights, p, q)
    product = (product + product.T) / 2
    values, vectors = np.linalg.eigh(product[:6, :6])
    inverse = np.where(values > WEAK * values[-1], 1 / np.maximum(values, 1e-300), 0.0)
    imitated = np.einsum("k,k->", inverse, np.square(product[6, :6] @ vectors))
    return float(max(product[6, 6] - imitated, 0.0))
