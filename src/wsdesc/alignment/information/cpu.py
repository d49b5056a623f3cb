"""Contact pairs and information matrices on the CPU: one pose per thread."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wsdesc.alignment.information.matrix import (
    SAME_SIDE,
    Information,
    information_from_product,
    no_information,
)
from wsdesc.alignment.surface.cpu import CpuSurface, find_contacts
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.kernels import run_each


class ContactPairs(NamedTuple):
    """Points of both surfaces that touch, searched from both sides; target's frame, normals on one side."""

    source: Floats  # (M, 3) transformed points of the source
    target: Floats  # (M, 3) their partners
    source_normals: Floats  # (M, 3)
    target_normals: Floats  # (M, 3)
    weights: Floats  # (M,) from 1 where the planes coincide to 0 at the distance, over the sample's size


def compute_information(
    source: CpuSurface, target: CpuSurface, poses: Floats, distance: float
) -> list[Information]:
    """See `wsdesc.alignment.information.compute_information`."""
    return run_each(
        lambda T: information_of(contact_pairs(source, target, T, distance)),
        list(poses),
    )


def contact_pairs(
    source: CpuSurface, target: CpuSurface, T_target_source: Floats, distance: float
) -> ContactPairs:
    """Find pairs of points within `distance` whose normals do not contradict each other."""
    T_source_target = inverse(T_target_source)
    from_source = find_contacts(source, target, T_target_source, distance)
    from_target = find_contacts(target, source, T_source_target, distance)
    R, t = T_target_source[:3, :3], T_target_source[:3, 3]
    sides = []
    for c, searched, swapped in ((from_source, target, False), (from_target, source, True)):
        compatible = c.cosine > SAME_SIDE
        points, normals = c.points[compatible], c.normals[compatible]
        partner = c.partner[compatible]
        partners, partner_normals = searched.points[partner], searched.normals[partner]
        weights = np.square(1 - np.square(np.minimum(c.plane_distance[compatible] / distance, 1.0)))
        pair = (points, partners, normals, partner_normals)
        if swapped:  # these are in the source's frame
            pair = tuple(np.einsum("ij,nj->ni", R, x) for x in (partners, points, partner_normals, normals))
            pair = (pair[0] + t, pair[1] + t, *pair[2:])
        sides.append((*pair, weights / len(c.points)))
    p, q, n_p, n_q, weights = (np.concatenate(x) for x in zip(*sides, strict=True))
    sign = np.where(np.einsum("ni,ni->n", n_p, n_q) < 0, -1.0, 1.0)
    return ContactPairs(p, q, sign[:, None] * n_p, n_q, weights)


def information_of(pairs: ContactPairs) -> Information:
    """Compute the information of contact pairs."""
    count, total = len(pairs.weights), pairs.weights.sum()
    if count == 0 or not total > 0:
        return no_information()
    weights = pairs.weights / total
    middle = (pairs.source + pairs.target) / 2
    centre = np.einsum("n,ni->i", weights, middle)
    arms = middle - centre
    variances = np.linalg.eigvalsh(np.einsum("n,ni,nj->ij", weights, arms, arms))  # ascending
    extent = float(np.sqrt(max(variances.sum(), 0.0)))
    if extent == 0:  # all pairs are at one point, which has no rotation
        return no_information(centre, count)
    responses = [
        np.hstack([n, np.cross(arms / extent, n)]) for n in (pairs.source_normals, pairs.target_normals)
    ]
    product = np.einsum("n,ni,nj->ij", weights, *responses)
    return information_from_product(product, centre, extent, variances[0], count)
