"""Where surfaces on a GPU touch, in many poses at once, and how firmly that holds each pose.

Sums are taken about the origin and brought about the centre of the overlap afterwards, a pose at a time: that
is a handful of numbers, and every operation on a GPU costs as much as many of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsdesc.alignment.observability import SAME_SIDE, Information, information_from
from wsdesc.alignment.surface_cuda import DeviceSurface, laid, on_device
from wsdesc.core.geometry import Floats


class Places(NamedTuple):
    """Both samples and their partners in H poses; target's frame, normals on one side."""

    source: Tensor  # (H, M, 3) points of the moved source
    gap: Tensor  # (H, M, 3) from there to their partners
    source_normals: Tensor  # (H, M, 3)
    target_normals: Tensor  # (H, M, 3)
    cosine: Tensor  # (H, M) between these, 0 … 1
    share: Tensor  # (H, M) in proportion to one over the sample's size within the reach, 0 beyond it
    asked: int  # how many of M the source asked for; the rest the target did


def contact_pairs(source: DeviceSurface, target: DeviceSurface, poses: Floats, reach: float) -> Places:
    """Pairs of places, asked from both sides, in poses T_target_source (H, 4, 4)."""
    T_target_source, T_source_target = on_device(poses, source)
    forth = source.partners_in(target, laid(source.asking, T_target_source)[..., :3])  # (H, S)
    back = target.partners_in(source, laid(target.asking, T_source_target)[..., :3])
    many = len(poses), -1, -1
    p = torch.cat([source.asking.expand(many), source.placed[back]], 1)  # (H, M, 6)
    q = torch.cat([target.placed[forth], target.asking.expand(many)], 1)
    p = laid(p, T_target_source)
    gap, n_p, n_q = q[..., :3] - p[..., :3], p[..., 3:], q[..., 3:]
    cosine = (n_p * n_q).sum(-1)
    n_p = torch.where(cosine[..., None] < 0, -n_p, n_p)
    share = (gap.square().sum(-1) < reach * reach).to(gap.dtype)
    if forth.shape != back.shape:  # small clouds have smaller samples, but the same part
        share[:, forth.shape[1] :] *= forth.shape[1] / back.shape[1]
    return Places(p[..., :3], gap, n_p, n_q, cosine.abs(), share, forth.shape[1])


def weights_of(places: Places, reach: float) -> tuple[Tensor, Tensor]:
    """Weights (H, M) of the places whose normals do not contradict each other, 1 where planes coincide … 0 at
    the reach; and the number of these places (H,)."""
    on = (places.cosine > SAME_SIDE) & (places.share > 0)
    asked = places.asked  # the plane is that of who was found
    across = torch.cat([places.target_normals[:, :asked], places.source_normals[:, asked:]], 1)
    offset = (places.gap * across).sum(-1) / reach
    weights = (1 - offset.square().clamp(max=1.0)).square()
    return weights * places.share * on, on.sum(1)


def views_of(points: Tensor, directions: Tensor) -> Tensor:
    """How far twists about the origin move points along directions, both (…, 3): (…, 6)."""
    return torch.cat([directions, torch.linalg.cross(points, directions)], -1)


def moments(weights: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Σ w a bᵀ over places, of weights (H, M), a (H, M, A) and b (H, M, B): (H, A, B)."""
    return (weights[..., None] * a).mT @ b


def about_centre(first: Floats, second: Floats) -> tuple[Floats, float, Floats, Floats]:
    """What moments of points say: first (3,), the mean, and second (3, 3), the mean of outer products.

    Returns the centre (3,), the typical distance from it, the covariance (3, 3), and what turns twists about
    the origin into those about the centre in units of that distance (6, 6).
    """
    spread = second - np.outer(first, first)
    extent = float(np.sqrt(max(np.trace(spread), 0.0)))
    x, y, z = first
    change = np.eye(6)
    change[3:, :3] = [[0, z, -y], [-z, 0, x], [y, -x, 0]]  # − c ×
    change[3:] /= extent or 1.0
    return first, extent, spread, change


def informations(
    source: DeviceSurface, target: DeviceSurface, poses: Floats, reach: float
) -> list[Information]:
    """`information` of each of the poses T_target_source (H, 4, 4)."""
    places = contact_pairs(source, target, poses, reach)
    weights, count = weights_of(places, reach)
    middle = places.source + places.gap / 2
    seen = [views_of(middle, normals) for normals in (places.source_normals, places.target_normals)]
    points = torch.cat([torch.ones_like(middle[..., :1]), middle], -1)
    sums = (moments(weights, *seen), moments(weights, points, points), count[:, None])
    return [_information(row) for row in torch.cat([x.flatten(1) for x in sums], 1).cpu().numpy()]


def _information(row: Floats) -> Information:
    """From Σ w of products of views (36), of points with a one before them (16), and the number of places."""
    product, points, count = row[:36].reshape(6, 6), row[36:52].reshape(4, 4), int(row[52])
    total = points[0, 0]
    if count == 0 or not total > 0:
        return Information(np.zeros((6, 6)), np.zeros(3), 0.0, 0.0, 0)
    centre, extent, spread, change = about_centre(points[0, 1:] / total, points[1:, 1:] / total)
    if extent == 0:  # all in one place: it cannot turn
        return Information(np.zeros((6, 6)), centre, 0.0, 0.0, count)
    thinnest = np.linalg.eigvalsh(spread)[0]
    return information_from(change @ (product / total) @ change.T, centre, extent, thinnest, count)
