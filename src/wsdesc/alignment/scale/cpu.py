"""Equations of a similarity transformation on the CPU."""

from __future__ import annotations

import math

import numpy as np

from wsdesc.alignment.information.matrix import MIN_PAIRS, SAME_SIDE
from wsdesc.alignment.scale.step import Equations
from wsdesc.alignment.surface import CpuSurface
from wsdesc.core.geometry import Floats
from wsdesc.core.similarity import factor_of


def compute_equations(
    source: CpuSurface, target: CpuSurface, S: Floats, distance: float, coarse: bool
) -> Equations | None:
    """Sum over the nearest points of both surfaces, searched from both sides.

    Args:
        source, target: the surfaces.
        S: (4, 4) similarity from the source to the target.
        distance: within which partners are searched, in the target's frame.
        coarse: use the coarse samples.

    Returns:
        The equations; None if there are too few pairs.
    """
    A, t, scale = S[:3, :3], S[:3, 3], factor_of(S)
    p_sample, q_sample = (x.coarse_sample if coarse else x.full_sample for x in (source, target))
    p = np.einsum("ij,nj->ni", A, p_sample.points) + t  # (S, 3)
    near_p, at_q = target.nearest(p, distance)
    q = q_sample.points
    in_source = np.einsum("ji,nj->ni", A, q - t) / scale**2  # AᵀA = scale² I
    near_q, at_p = source.nearest(in_source, distance / scale)
    forth, back = np.isfinite(near_p), np.isfinite(near_q)
    at_q, at_p = at_q[forth], at_p[back]
    n_p = np.concatenate([p_sample.normals[forth], source.normals[at_p]])
    return _equations(
        np.concatenate([p[forth], np.einsum("ij,nj->ni", A, source.points[at_p]) + t]),
        np.concatenate([target.points[at_q], q[back]]),
        np.einsum("ij,nj->ni", A / scale, n_p),
        np.concatenate([target.normals[at_q], q_sample.normals[back]]),
        distance,
    )


def _equations(p: Floats, q: Floats, n_p: Floats, n_q: Floats, distance: float) -> Equations | None:
    """Sum over pairs (M, 3) of points and unit normals whose normals do not contradict each other."""
    cosine = np.einsum("ni,ni->n", n_p, n_q)
    kept = np.abs(cosine) > SAME_SIDE
    if kept.sum() < MIN_PAIRS:
        return None
    p, q, n_q = p[kept], q[kept], n_q[kept]
    n_p = np.where(cosine[kept, None] < 0, -n_p[kept], n_p[kept])
    normals = n_p + n_q
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    gaps = np.einsum("ni,ni->n", q - p, normals)
    weights = np.square(1 - np.square(np.minimum(np.abs(gaps) / distance, 1.0)))
    weights /= max(weights.sum(), 1e-300)
    centre = np.einsum("n,ni->i", weights, p)
    arms = p - centre
    extent = math.sqrt(np.einsum("n,ni,ni->", weights, arms, arms))
    if not extent > 0:
        return None
    arms /= extent
    response = _responses(arms, normals)
    weighted = weights[:, None] * response
    return Equations(
        centre,
        extent,
        np.einsum("ni,nj->ij", weighted, response),
        np.einsum("ni,n->i", weighted, gaps),
        float(np.einsum("n,n,n->", weights, gaps, gaps)),
        np.einsum("ni,nj->ij", weights[:, None] * _responses(arms, n_p), _responses(arms, n_q)),
    )


def _responses(arms: Floats, normals: Floats) -> Floats:
    """Return how far points move along their normals (M, 7) by shifts, rotations and growth."""
    growth = np.einsum("ni,ni->n", arms, normals)
    return np.hstack([normals, np.cross(arms, normals), growth[:, None]])
