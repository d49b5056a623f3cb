"""Covariance of a pose: how exact it is, if it is right.

The covariance is of the twist (v, ω) that moves the estimated pose to the true one: a point x of the target's
frame moves to centre + v + R(ω) (x − centre). v is a translation, ω a rotation vector in radians, and the
centre is that of the overlap. About this point both parts are as small and as independent as they can be.

The inverse of the information matrix is far too small: neighbouring residuals are correlated, and scans are
distorted. The covariance has two parts instead.

1. Random errors: H⁻¹ B H⁻¹. H is the Hessian of the point-to-plane problem, and B the covariance of its
   gradient. B is measured: it is the power of the gradient field at long wavelengths, which neighbouring
   residuals of the same sign increase.
2. Distortion: errors of tracking and fusion that move whole scans. Residuals show it only indirectly: those
   of fused scans are smooth, those of laser scans are not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from wsdesc.alignment.information import cpu, cuda
from wsdesc.alignment.information.degeneracy import find_degeneracy
from wsdesc.alignment.information.matrix import MIN_PAIRS
from wsdesc.alignment.refine.result import OVERLAP_DISTANCE, RefinedPose
from wsdesc.alignment.surface import CpuSurface, CudaSurface, Surface, for_backend
from wsdesc.core.devices import has_triton
from wsdesc.core.geometry import Floats

SMOOTH = 1.5  # smoothness of residuals up to which scans are not distorted; of 1 … 2.5 the most likely
ROTATION_SHARE = 0.5  # rotation by distortion, in radians times the extent, over its translation
ISOTROPIC = 0.1  # share of the mean variance of random errors that each direction has at least

NEAR, FAR = 2.0, 0.2  # wavelengths over 2π: in resolutions, in extents of the overlap
MIN_EIGENVALUE = 2e-3  # of the Hessian: smaller ones are noise of normals
MIN_OVERLAP = 0.05  # lower overlaps count as this
MIN_DEVIATION = 1e-3  # resolutions: least deviation in any direction, where refinement ends
_WAVES = np.random.default_rng(0).normal(size=(64, 3))  # directions and wave numbers


class NoiseModel(NamedTuple):
    """Factors on the deviations of a pose.

    `python -m benchmarks.covariance --fit` fitted them to pairs of synthetic rooms, synthetic floors and
    indoor training scans, each set with the same weight.
    """

    random: float = 1.1  # factor on random errors
    distortion: float = 2.6  # distortion over rmse² / resolution, at a smoothness of one above SMOOTH


class PoseCovariance(NamedTuple):
    """Covariance of the twist (v, ω) about `centre` that moves a pose to the true one; target's frame."""

    matrix: Floats  # (6, 6) symmetric, positive definite
    centre: Floats  # (3,)

    def at(self, point: ArrayLike) -> Floats:
        """Return the covariance (6, 6) of the twist about another point (3,) of the target's frame.

        v is then the error of the position of this point.
        """
        return move_covariance(self.matrix, np.asarray(point, dtype=np.float64) - self.centre)

    def in_frame(self, T: Floats, unit: float = 1.0) -> PoseCovariance:
        """Express it in another frame of the target: lengths times `unit`, then the pose T (4, 4)."""
        change = np.zeros((6, 6))
        change[:3, :3], change[3:, 3:] = unit * T[:3, :3], T[:3, :3]
        matrix = change @ self.matrix @ change.T
        return PoseCovariance((matrix + matrix.T) / 2, unit * T[:3, :3] @ self.centre + T[:3, 3])


def move_covariance(covariance: ArrayLike, shift: ArrayLike) -> Floats:
    """Move the covariance (6, 6) of a twist (v, ω) from its centre to the centre plus `shift` (3,)."""
    covariance, (x, y, z) = np.asarray(covariance, dtype=np.float64), np.asarray(shift, dtype=np.float64)
    change = np.eye(6)
    change[:3, 3:] = [[0, z, -y], [-z, 0, x], [y, -x, 0]]  # v + ω × shift
    moved = change @ covariance @ change.T
    return np.asarray((moved + moved.T) / 2)


def largest_deviations(covariance: ArrayLike) -> tuple[float, float]:
    """Return the standard deviations of v and of ω (radians) in the directions where they are largest."""
    covariance = np.asarray(covariance, dtype=np.float64)
    v, w = (float(np.linalg.eigvalsh(block)[-1]) for block in (covariance[:3, :3], covariance[3:, 3:]))
    return float(np.sqrt(max(v, 0.0))), float(np.sqrt(max(w, 0.0)))


def estimate_covariance(
    source: Surface, target: Surface, refined: RefinedPose, resolution: float
) -> PoseCovariance | None:
    """Estimate the covariance of a refined pose, about the centre of its information.

    Motions that the overlap does not determine have the overlap's extent as their standard deviation, which
    stands for "unknown".

    Args:
        source, target: Surfaces of one backend.
        refined: Pose with its information and score.
        resolution: Point spacing of the surfaces, in their unit.

    Returns:
        The covariance, in the unit of the surfaces; None if they hardly overlap.

    Raises:
        InputError: The surfaces are on two devices.
    """
    if refined.information.pairs < MIN_PAIRS or not refined.information.extent > 0:
        return None
    problem = linearise(source, target, refined, resolution)
    return PoseCovariance(covariance_of(problem, refined, resolution), refined.information.centre)


class LinearProblem(NamedTuple):
    """The point-to-plane problem for twists (v, ω · extent), all sums with weights of total 1."""

    hessian: Floats  # (6, 6)
    gradient: Floats  # (6,)
    noise: Floats  # (6, 6) covariance of the gradient if residuals were independent
    near: Floats  # (6, 6) the same, with correlation between neighbours
    far: Floats  # (6, 6) the same, with correlation within a part of the overlap
    mean_square: float  # of the residuals


def linearise(source: Surface, target: Surface, refined: RefinedPose, resolution: float) -> LinearProblem:
    """Linearise the point-to-plane problem at a pose; arguments as in `estimate_covariance`."""
    find_residuals = for_backend(source, target, cpu=_residuals_on_cpu, cuda=_residuals_on_cuda)
    distance, (_, centre, extent, *_) = OVERLAP_DISTANCE * resolution, refined.information
    points, normals, gaps, weights = find_residuals(source, target, refined.T_target_source, distance)
    arms = points - torch.as_tensor(centre).to(points)
    responses = torch.cat([normals, torch.linalg.cross(arms / extent, normals)], 1)  # (M, 6)
    terms = responses * (weights * gaps)[:, None]
    gradient = terms.sum(0)
    terms = terms - weights[:, None] * gradient
    sums = (
        responses.mT @ (weights[:, None] * responses),
        gradient,
        terms.mT @ terms,
        _power(terms, arms, NEAR * resolution),
        _power(terms, arms, FAR * extent),
        (weights * gaps.square()).sum(),
    )
    flat = torch.cat([x.double().flatten() for x in sums]).cpu().numpy()  # one transfer
    parts = np.split(flat, np.cumsum([x.numel() for x in sums[:-1]]))
    hessian, noise, near, far = (parts[k].reshape(6, 6) for k in (0, 2, 3, 4))
    return LinearProblem(hessian, parts[1], noise, near, far, float(parts[5][0]))


def covariance_of(
    problem: LinearProblem,
    refined: RefinedPose,
    resolution: float,
    model: NoiseModel = NoiseModel(),  # noqa: B008 - immutable
) -> Floats:
    """Compute the covariance (6, 6) of the twist (v, ω) from the problem at a pose."""
    values, vectors = np.linalg.eigh(problem.hessian)
    inverse = np.einsum("ik,k,jk->ij", vectors, 1 / np.maximum(values, MIN_EIGENVALUE), vectors)
    random, near, noise = (inverse @ power @ inverse for power in (problem.far, problem.near, problem.noise))
    smoothness = np.trace(near) / np.trace(noise) if np.trace(noise) > 0 else 1.0
    random = model.random**2 * (random + ISOTROPIC * np.trace(random) / 6 * np.eye(6))
    distortion = (model.distortion * problem.mean_square / resolution) ** 2 * max(smoothness - SMOOTH, 0.0)
    covariance = random + distortion * np.diag([1, 1, 1] + 3 * [ROTATION_SHARE**2])
    # A small overlap is at the border of both scans, where they are least exact.
    score = refined.score
    covariance /= max(min(score.overlap_source, score.overlap_target), MIN_OVERLAP)
    step = inverse @ problem.gradient  # to the nearest minimum: zero after refinement
    covariance += np.outer(step, step) + (MIN_DEVIATION * resolution) ** 2 * np.eye(6)
    extent = refined.information.extent
    twists = find_degeneracy(refined.information, OVERLAP_DISTANCE * resolution).twists
    covariance += extent**2 * twists.T @ twists
    scale = np.array([1, 1, 1] + 3 * [1 / extent])
    covariance *= np.outer(scale, scale)
    return np.asarray((covariance + covariance.T) / 2)


class _Residuals(NamedTuple):
    """Contact pairs in the target's frame."""

    points: Tensor  # (M, 3) of the source
    normals: Tensor  # (M, 3) unit vectors
    gaps: Tensor  # (M,) to the partner, along the normal
    weights: Tensor  # (M,) sum 1


def _residuals_on_cpu(source: CpuSurface, target: CpuSurface, T: Floats, distance: float) -> _Residuals:
    pairs = cpu.contact_pairs(source, target, T, distance)
    arrays = (pairs.source, pairs.source_normals + pairs.target_normals, pairs.target - pairs.source)
    points, normals, gaps = map(torch.from_numpy, arrays)
    return _weighted(points, normals, gaps, torch.from_numpy(pairs.weights))


def _residuals_on_cuda(source: CudaSurface, target: CudaSurface, T: Floats, distance: float) -> _Residuals:
    if source.points.is_cuda and has_triton():
        from wsdesc.alignment.information import fused

        rows = fused.list_pairs(source, target, T, distance)
        return _Residuals(
            rows[:, :3], rows[:, 3:6], rows[:, 6], rows[:, 7] / rows[:, 7].sum().clamp(min=1e-300)
        )
    pairs = cuda.contact_pairs(source, target, T[None], distance)
    weights, _ = cuda.plane_weights(pairs, distance)
    return _weighted(
        pairs.source[0], (pairs.source_normals + pairs.target_normals)[0], pairs.gap[0], weights[0]
    )


def _weighted(points: Tensor, normals: Tensor, gaps: Tensor, weights: Tensor) -> _Residuals:
    normals = torch.nn.functional.normalize(normals, dim=1)
    return _Residuals(points, normals, (gaps * normals).sum(1), weights / weights.sum().clamp(min=1e-300))


def _power(terms: Tensor, points: Tensor, length: float) -> Tensor:
    """Sum kᵢⱼ tᵢ tⱼᵀ over all pairs of terms (M, 6), where kᵢⱼ = exp(−|xᵢ − xⱼ|² / 2 length²).

    A Gaussian is a mean of waves, so that M · W operations suffice for W waves: the power of the terms.
    """
    waves = torch.as_tensor(_WAVES / length).to(points)
    phases = (points @ waves.mT).float()  # (M, W)
    terms = terms.float()
    amplitudes = torch.cat([terms.mT @ phases.cos(), terms.mT @ phases.sin()], 1)  # (6, 2W)
    return amplitudes @ amplitudes.mT / len(waves)
