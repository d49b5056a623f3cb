"""Equations of a similarity transformation on the CPU."""

from __future__ import annotations

import math

import numpy as np

from wsdesc.alignment.information.matrix import SAME_SIDE
from wsdesc.alignment.scale.parts import ContactPairs
from wsdesc.alignment.scale.step import SUMS, Equations, equations_of
from wsdesc.alignment.surface.cpu import CpuSurface, load_pair, move_points
from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import kernel
from wsdesc.core.similarity import factor_of


def compute_equations(
    source: CpuSurface, target: CpuSurface, S: Floats, distance: float, coarse: bool
) -> Equations | None:
    """Sum over the nearest points of both surfaces, searched from both sides.

    Args:
        source, target: The surfaces.
        S: (4, 4) similarity from the source to the target.
        distance: Within which partners are searched, in the target's frame.
        coarse: Use the coarse samples.

    Returns:
        The equations; None if there are too few pairs.
    """
    scale, sums = factor_of(S), np.zeros(SUMS)
    p, q = (x.coarse_sample if coarse else x.full_sample for x in (source, target))
    _, at_q = target.nearest(p.points, distance, S)
    _add_pairs(p.points, p.normals, at_q, target.points, target.normals, S, scale, True, distance, sums)
    _, at_p = source.nearest(q.points, distance / scale, _inverse(S, scale))
    _add_pairs(q.points, q.normals, at_p, source.points, source.normals, S, scale, False, distance, sums)
    return equations_of(sums)


def contact_pairs(source: CpuSurface, target: CpuSurface, S: Floats, distance: float) -> ContactPairs:
    """Return the pairs over which `compute_equations` sums, of the full samples."""
    scale = factor_of(S)
    p, q = source.full_sample, target.full_sample
    _, at_q = target.nearest(p.points, distance, S)
    _, at_p = source.nearest(q.points, distance / scale, _inverse(S, scale))
    p_near, q_near = (index < len(x.points) for index, x in ((at_q, target), (at_p, source)))
    at_q, at_p = at_q[p_near], at_p[q_near]
    points = move_points(np.concatenate([p.points[p_near], source.points[at_p]]), S)
    n_p = np.concatenate([p.normals[p_near], source.normals[at_p]])
    n_p = np.einsum("ij,mj->mi", S[:3, :3] / scale, n_p)
    gap = np.concatenate([target.points[at_q], q.points[q_near]]) - points
    n_q = np.concatenate([target.normals[at_q], q.normals[q_near]])
    cosine = np.einsum("mi,mi->m", n_p, n_q)
    used = np.abs(cosine) > SAME_SIDE
    normals = np.sign(cosine[used, None]) * n_p[used] + n_q[used]
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    along = np.einsum("mi,mi->m", gap[used], normals)
    weights = np.square(1 - np.minimum(np.square(along / distance), 1.0))
    return ContactPairs(points[used], normals, along, weights)


def _inverse(S: Floats, scale: float) -> Floats:
    """Invert a similarity (4, 4) of a scale."""
    inverse = np.eye(4)
    inverse[:3, :3] = S[:3, :3].T / scale**2
    inverse[:3, 3] = -inverse[:3, :3] @ S[:3, 3]
    return inverse


@kernel(
    types="float64[:, ::1], float64[:, ::1], int64[::1], float64[:, ::1], float64[:, ::1], "
    "float64[:, ::1], float64, boolean, float64, float64[::1]",
)
def _add_pairs(  # type: ignore[no-untyped-def]
    points, normals, partner, other_points, other_normals, S, scale, from_source, distance, sums
):
    """Add the pairs of a sample and its partners to the sums, see `step.SUMS`."""
    p, q, n_p, n_q = np.empty(3), np.empty(3), np.empty(3), np.empty(3)
    place, response, at_source, at_target = np.empty(4), np.empty(8), np.empty(7), np.empty(7)
    place[0] = 1.0
    for m in range(len(points)):
        j = partner[m]
        if j == len(other_points):  # no point is near
            continue
        cosine = load_pair(
            m, points, normals, j, other_points, other_normals, S, scale, from_source, p, q, n_p, n_q
        )
        if not abs(cosine) > SAME_SIDE:
            continue
        sign, length = -1.0 if cosine < 0 else 1.0, math.sqrt(2 + 2 * min(abs(cosine), 1.0))
        along = 0.0
        for a in range(3):
            at_source[a], at_target[a] = sign * n_p[a], n_q[a]
            response[a] = (at_source[a] + n_q[a]) / length
            along += (q[a] - p[a]) * response[a]
            place[1 + a] = p[a]
        for row in (response, at_source, at_target):
            row[6] = 0.0
            for a in range(3):
                b, c = (a + 1) % 3, (a + 2) % 3
                row[3 + a] = p[b] * row[c] - p[c] * row[b]
                row[6] += p[a] * row[a]
        response[7] = along
        weight = (1 - min((along / distance) ** 2, 1.0)) ** 2
        for a in range(8):
            for b in range(8):
                sums[8 * a + b] += weight * response[a] * response[b]
        for a in range(4):
            for b in range(4):
                sums[64 + 4 * a + b] += weight * place[a] * place[b]
        for a in range(7):
            for b in range(7):
                sums[80 + 7 * a + b] += weight * at_source[a] * at_target[b]
        sums[129] += 1
