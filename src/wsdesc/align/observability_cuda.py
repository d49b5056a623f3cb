"""Where surfaces on a GPU touch, in many poses at once, and how firmly that holds each pose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsdesc.align.observability import SAME_SIDE, Information, information_from
from wsdesc.align.surface import Floats
from wsdesc.align.surface_cuda import DeviceSurface, contacts, inverses

TINY = 1e-300  # instead of zero, to divide by


class Places(NamedTuple):
    """Both samples and their partners in H poses; target's frame, normals on one side."""

    source: Tensor  # (H, M, 3) points of the moved source
    target: Tensor  # (H, M, 3) their partners
    source_normals: Tensor  # (H, M, 3)
    target_normals: Tensor  # (H, M, 3)
    cosine: Tensor  # (H, M) between these, 0 … 1
    offset: Tensor  # (H, M) between the planes
    share: Tensor  # (H, M) one over the sample's size within the reach, 0 beyond it


def touching(source: DeviceSurface, target: DeviceSurface, T_target_source: Tensor, reach: float) -> Places:
    """Pairs of places, asked from both sides, in poses (H, 4, 4)."""
    forth = contacts(source, target, T_target_source, reach)
    back = contacts(target, source, inverses(T_target_source), reach)
    R, t = T_target_source[:, :3, :3], T_target_source[:, None, :3, 3]
    p = torch.cat([forth.points, source.points[back.partner] @ R.mT + t], 1)
    q = torch.cat([target.points[forth.partner], back.points @ R.mT + t], 1)
    n_p = torch.cat([forth.normals, source.normals[back.partner] @ R.mT], 1)
    n_q = torch.cat([target.normals[forth.partner], back.normals @ R.mT], 1)
    n_p = torch.where((n_p * n_q).sum(-1, keepdim=True) < 0, -n_p, n_p)
    share = torch.cat([c.distance.isfinite().to(p.dtype) / c.distance.shape[1] for c in (forth, back)], 1)
    cosine = torch.cat([forth.cosine, back.cosine], 1)
    return Places(p, q, n_p, n_q, cosine, torch.cat([forth.offset, back.offset], 1), share)


def weights_of(places: Places, reach: float) -> tuple[Tensor, Tensor]:
    """Weights (H, M) adding up to 1 of the places whose normals do not contradict each other: 1 where the
    planes coincide … 0 at the reach; and the number of these places (H,), 0 if none has any weight."""
    on = places.cosine > SAME_SIDE
    weights = (1 - (places.offset / reach).clamp(max=1.0).square()).square()
    weights = torch.where(on, weights * places.share, 0.0)
    total = weights.sum(1)
    return weights / total.clamp(min=TINY)[:, None], on.sum(1) * (total > 0)


def about_centre(points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The centre (H, 3) of points (H, M, 3), their typical distance from it (H,), and the points about the
    centre in units of that distance."""
    centre = (weights[..., None] * points).sum(1)
    arms = points - centre[:, None]
    extent = (weights * arms.square().sum(-1)).sum(1).sqrt()
    return centre, extent, arms / extent.clamp(min=TINY)[:, None, None]


def seen(arms: Tensor, directions: Tensor) -> Tensor:
    """How far twists move points `arms` along `directions`, both (…, 3): (…, 6)."""
    return torch.cat([directions, torch.linalg.cross(arms, directions)], -1)


def informations(
    source: DeviceSurface, target: DeviceSurface, poses: Floats, reach: float
) -> list[Information]:
    """`information` of each of the poses T_target_source (H, 4, 4)."""
    places = touching(source, target, torch.from_numpy(poses).to(source.points.device), reach)
    weights, count = weights_of(places, reach)
    centre, extent, arms = about_centre((places.source + places.target) / 2, weights)
    spread = (weights[..., None] * arms).mT @ arms  # (H, 3, 3)
    product = (weights[..., None] * seen(arms, places.source_normals)).mT @ seen(arms, places.target_normals)
    parts = (product.flatten(1), spread.flatten(1), centre, extent[:, None], count[:, None])
    return [_information(row) for row in torch.cat(parts, 1).cpu().numpy()]


def _information(row: Floats) -> Information:
    """From product (36), spread (9), centre (3), extent and number of places."""
    product, spread, centre = row[:36].reshape(6, 6), row[36:45].reshape(3, 3), row[45:48]
    extent, count = float(row[48]), int(row[49])
    if count == 0:
        return Information(np.zeros((6, 6)), np.zeros(3), 0.0, 0.0, 0)
    if extent == 0:  # all in one place: it cannot turn
        return Information(np.zeros((6, 6)), centre, 0.0, 0.0, count)
    thinnest = extent**2 * np.linalg.eigvalsh(spread)[0]
    return information_from(product, centre, extent, thinnest, count)
