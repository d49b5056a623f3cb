"""Equations of a similarity transformation on a GPU."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsdesc.alignment.information.cuda import twist_responses
from wsdesc.alignment.information.matrix import SAME_SIDE
from wsdesc.alignment.scale.parts import ContactPairs
from wsdesc.alignment.scale.step import Equations, Iterated, Stages, equations_of
from wsdesc.alignment.surface.cuda import CudaSurface, transform_with_normals
from wsdesc.core.devices import has_triton
from wsdesc.core.geometry import Floats
from wsdesc.core.similarity import factor_of


def compute_equations(
    source: CudaSurface, target: CudaSurface, S: Floats, distance: float, coarse: bool
) -> Equations | None:
    """See `cpu.compute_equations`. On CUDA one kernel computes the sums."""
    poses = torch.from_numpy(np.stack([S, np.linalg.inv(S)])[:, None]).to(source.points.device)
    if source.points.is_cuda and has_triton():
        from wsdesc.alignment.scale import fused

        sums = fused.sum_products(source, target, (poses[0], poses[1]), distance, coarse)
    else:
        sums = sum_plainly(source, target, (poses[0], poses[1]), distance, coarse)
    return equations_of(sums.cpu().numpy())


def run_steps(
    source: CudaSurface, target: CudaSurface, S: Floats, resolution: float, stages: Stages
) -> Iterated | None:
    """Do all steps of a fit but the last in triton kernels; None where there is no triton."""
    if not (source.points.is_cuda and has_triton()):
        return None
    from wsdesc.alignment.scale import device_steps

    done = device_steps.run_steps(source, target, S, resolution, stages)
    return Iterated(done.S_target_source, done.log_scale, equations_of(done.sums) if done.valid else None)


def contact_pairs(source: CudaSurface, target: CudaSurface, S: Floats, distance: float) -> ContactPairs:
    """See `cpu.contact_pairs`."""
    poses = torch.from_numpy(np.stack([S, np.linalg.inv(S)])[:, None]).to(source.points.device)
    pairs = _find_pairs(source, target, (poses[0], poses[1]), distance, coarse=False)
    columns = [pairs.points, pairs.normals, pairs.along[:, None], pairs.weights[:, None]]
    rows = torch.cat(columns, 1)[pairs.used].cpu().numpy()  # (M, 8)
    return ContactPairs(rows[:, :3], rows[:, 3:6], rows[:, 6], rows[:, 7])


def sum_plainly(
    source: CudaSurface, target: CudaSurface, poses: tuple[Tensor, Tensor], distance: float, coarse: bool
) -> Tensor:
    """Sum the products (130,) over contact pairs, in plain torch.

    Args:
        source, target: The surfaces.
        poses: Similarity (1, 4, 4) from the source to the target, and its inverse.
        distance: Within which partners count, in the target's frame.
        coarse: Use the coarse samples.
    """
    pairs = _find_pairs(source, target, poses, distance, coarse)
    points, along, weights = pairs.points, pairs.along[:, None], pairs.weights
    responses, at_source, at_target = (
        torch.cat([twist_responses(points, n), (points * n).sum(1, keepdim=True)], 1)
        for n in (pairs.normals, pairs.source_normals, pairs.target_normals)
    )
    rows = (torch.cat([responses, along], 1), torch.cat([torch.ones_like(along), points], 1))
    sums = [(weights[:, None] * row).T @ row for row in rows]
    sums.append((weights[:, None] * at_source).T @ at_target)
    return torch.cat([*(x.flatten() for x in sums), pairs.used.sum()[None]])


class _Pairs(NamedTuple):
    """Sampled points and their partners, in the target's frame."""

    points: Tensor  # (M, 3) of the source
    source_normals: Tensor  # (M, 3) on the side of the target's
    target_normals: Tensor  # (M, 3)
    normals: Tensor  # (M, 3) mean of both
    along: Tensor  # (M,) gaps along the mean normals
    used: Tensor  # (M,) whether the pair is in contact
    weights: Tensor  # (M,) 0 of pairs that are not used


def _find_pairs(
    source: CudaSurface, target: CudaSurface, poses: tuple[Tensor, Tensor], distance: float, coarse: bool
) -> _Pairs:
    """Find the partners of both samples; arguments as in `sum_plainly`."""
    p_sample, q_sample = (
        x.coarse_with_normals if coarse else x.sample_with_normals for x in (source, target)
    )
    T, back = poses
    p = transform_with_normals(p_sample, T)[0]  # (S, 6)
    q = target.points_with_normals[target.nearest_to(p[None, :, :3])[0]]
    at_p = source.nearest_to(transform_with_normals(q_sample, back)[..., :3])[0]
    p = torch.cat([p, transform_with_normals(source.points_with_normals[at_p], T)[0]])
    q = torch.cat([q, q_sample])
    points, n_p, n_q = p[:, :3], p[:, 3:] / factor_of(T[0].cpu().numpy()), q[:, 3:]
    gap = q[:, :3] - points
    cosine = (n_p * n_q).sum(1)
    used = (gap.square().sum(1) < distance * distance) & (cosine.abs() > SAME_SIDE)
    n_p = torch.where(cosine[:, None] < 0, -n_p, n_p)
    normals = torch.nn.functional.normalize(n_p + n_q, dim=1)
    along = (gap * normals).sum(1)
    weights = (1 - (along / distance).square().clamp(max=1.0)).square() * used
    return _Pairs(points, n_p, n_q, normals, along, used, weights)
