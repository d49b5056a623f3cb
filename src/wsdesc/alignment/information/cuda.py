"""Contact pairs and information matrices on a GPU: all poses at once.

Sums are taken about the origin on the device. They are moved to the centre of the overlap on the CPU, one
pose at a time, because a few numbers cost less there than operations on a GPU.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsdesc.alignment.information.matrix import (
    SAME_SIDE,
    Information,
    centre_moments,
    information_from_product,
    no_information,
)
from wsdesc.alignment.surface.cuda import CudaSurface, poses_and_inverses, transform_with_normals
from wsdesc.core.devices import has_triton
from wsdesc.core.geometry import Floats


class ContactPairs(NamedTuple):
    """Samples of both surfaces and their partners in H poses; target's frame, normals on one side."""

    source: Tensor  # (H, M, 3) transformed points of the source
    gap: Tensor  # (H, M, 3) from there to their partners
    source_normals: Tensor  # (H, M, 3)
    target_normals: Tensor  # (H, M, 3)
    cosine: Tensor  # (H, M) between the normals, 0 … 1
    share: Tensor  # (H, M) proportional to one over the sample's size within the distance, 0 beyond
    from_source: int  # number of the M pairs that the sample of the source gave; they are the first


def contact_pairs(
    source: CudaSurface, target: CudaSurface, poses: Floats, distance: float, *, coarse: bool = False
) -> ContactPairs:
    """Pair the samples of both surfaces with their nearest points in poses T_target_source (H, 4, 4)."""
    T_target_source, T_source_target = poses_and_inverses(poses, source)
    p_sample, q_sample = (
        surface.coarse_with_normals if coarse else surface.sample_with_normals for surface in (source, target)
    )
    in_target = target.nearest_to(transform_with_normals(p_sample, T_target_source)[..., :3])  # (H, S)
    in_source = source.nearest_to(transform_with_normals(q_sample, T_source_target)[..., :3])
    shape = len(poses), -1, -1
    p = torch.cat([p_sample.expand(shape), source.points_with_normals[in_source]], 1)  # (H, M, 6)
    q = torch.cat([target.points_with_normals[in_target], q_sample.expand(shape)], 1)
    p = transform_with_normals(p, T_target_source)
    gap, n_p, n_q = q[..., :3] - p[..., :3], p[..., 3:], q[..., 3:]
    cosine = (n_p * n_q).sum(-1)
    n_p = torch.where(cosine[..., None] < 0, -n_p, n_p)
    share = (gap.square().sum(-1) < distance * distance).to(gap.dtype)
    if in_target.shape != in_source.shape:  # samples of different sizes have the same total weight
        share[:, in_target.shape[1] :] *= in_target.shape[1] / in_source.shape[1]
    return ContactPairs(p[..., :3], gap, n_p, n_q, cosine.abs(), share, in_target.shape[1])


def plane_weights(pairs: ContactPairs, distance: float) -> tuple[Tensor, Tensor]:
    """Weight pairs (H, M) from 1 where planes coincide to 0 at the distance; and count them (H,).

    Pairs whose normals contradict each other have no weight and are not counted.
    """
    compatible = (pairs.cosine > SAME_SIDE) & (pairs.share > 0)
    first = pairs.from_source  # the plane is that of the partner
    plane_normals = torch.cat([pairs.target_normals[:, :first], pairs.source_normals[:, first:]], 1)
    offset = (pairs.gap * plane_normals).sum(-1) / distance
    weights = (1 - offset.square().clamp(max=1.0)).square()
    return weights * pairs.share * compatible, compatible.sum(1)


def twist_responses(points: Tensor, directions: Tensor) -> Tensor:
    """Return how far twists about the origin move points along directions, both (…, 3): (…, 6)."""
    return torch.cat([directions, torch.linalg.cross(points, directions)], -1)


def weighted_products(weights: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Sum w a bᵀ over pairs, of weights (H, M), a (H, M, A) and b (H, M, B): (H, A, B)."""
    return (weights[..., None] * a).mT @ b


def compute_information(
    source: CudaSurface, target: CudaSurface, poses: Floats, distance: float
) -> list[Information]:
    """See `wsdesc.alignment.information.compute_information`."""
    if len(poses) == 0:
        return []
    return [_information(row) for row in sum_products(source, target, poses, distance).cpu().numpy()]


def sum_products(source: CudaSurface, target: CudaSurface, poses: Floats, distance: float) -> Tensor:
    """Sum products over the pairs of each pose: (H, 53), see `_information`. On CUDA in one kernel."""
    if source.points.is_cuda and has_triton():
        from wsdesc.alignment.information import fused

        return fused.sum_products(source, target, poses, distance)
    return sum_plainly(source, target, poses, distance)


def sum_plainly(source: CudaSurface, target: CudaSurface, poses: Floats, distance: float) -> Tensor:
    """Sum the products of each pose, in plain torch."""
    pairs = contact_pairs(source, target, poses, distance)
    weights, count = plane_weights(pairs, distance)
    middle = pairs.source + pairs.gap / 2
    responses = [twist_responses(middle, normals) for normals in (pairs.source_normals, pairs.target_normals)]
    points = torch.cat([torch.ones_like(middle[..., :1]), middle], -1)
    sums = (
        weighted_products(weights, *responses),
        weighted_products(weights, points, points),
        count[:, None],
    )
    return torch.cat([x.flatten(1) for x in sums], 1)


def _information(row: Floats) -> Information:
    """Build the information from sums: products of responses (36), of (1, point) (16), number of pairs."""
    product, points, count = row[:36].reshape(6, 6), row[36:52].reshape(4, 4), int(row[52])
    total = points[0, 0]
    if count == 0 or not total > 0:
        return no_information()
    centre, extent, covariance, change = centre_moments(points[0, 1:] / total, points[1:, 1:] / total)
    if extent == 0:  # all pairs are at one point, which has no rotation
        return no_information(centre, count)
    least_variance = np.linalg.eigvalsh(covariance)[0]
    return information_from_product(
        change @ (product / total) @ change.T, centre, extent, least_variance, count
    )
