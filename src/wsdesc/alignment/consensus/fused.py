"""Triton kernels of the consensus: a program grows the cliques of one match, or refits one pose.

Plain torch needs more than a thousand launches for the same, which take longer than the work.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from wsdesc.alignment.consensus.compatibility import MAX_PARTNERS
from wsdesc.alignment.consensus.constants import DECISIVE_SIZE, STARTS
from wsdesc.alignment.hypotheses import MAX_REFITS, SAME_ANGLE, SAME_DISTANCE, WIDE_BAND
from wsdesc.core.triton_eigen import nearest_rotation
from wsdesc.core.triton_poses import store_pose

_MATCHES = 128  # matches that a program sums at once


def fit_cliques(
    p: Tensor, q: Tensor, w: Tensor, edge: Tensor, stretch: Tensor, partners: Tensor, valid: Tensor,
    threshold: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Fit a pose to the best clique of each match, and let all matches vote on it.

    Args:
        p, q: Centred matches (M, 3), float64.
        w: Their weights (M,), float64.
        edge: Which matches are compatible, (M, M) bool.
        stretch: Squared changes of lengths, (M, M) float32.
        partners: Best partners of each match, (M, C), C ≤ 64.
        valid: Which of them exist, (M, C) bool.
        threshold: Distance of an inlier.

    Returns:
        Poses (M, 4, 4), and their votes (M,), −1 where a clique determines no pose.
    """
    matches, width = partners.shape
    poses = torch.zeros(matches, 4, 4, dtype=torch.float64, device=p.device)
    votes = torch.empty(matches, dtype=torch.float64, device=p.device)
    _fit_cliques[(matches,)](
        p, q, w, edge.view(torch.uint8), stretch, partners, valid.view(torch.uint8), poses, votes, matches,
        width, threshold * threshold, STARTS=STARTS, DECISIVE=DECISIVE_SIZE, C=MAX_PARTNERS, BLOCK=_MATCHES,
        num_warps=4,
    )  # fmt: skip
    return poses, votes


def choose_distinct(poses: Tensor, valid: Tensor, means: Tensor, threshold: float, count: int) -> Tensor:
    """Choose indices of poses, best first, as `hypotheses.distinct`.

    Args:
        poses: (S, 4, 4) float64, best first.
        valid: Which of them may be chosen, (S,) bool.
        means: (2, 3) float64, means of the matches in both scans, where poses are compared.
        threshold: Distance of an inlier.
        count: Largest number of indices.

    Returns:
        (count,) int64, −1 where there are no more.
    """
    chosen = torch.empty(count, dtype=torch.int64, device=poses.device)
    block = max(64, triton.next_power_of_2(len(poses)))
    _choose_distinct[(1,)](
        poses, valid.view(torch.uint8), means, chosen, len(poses), count, math.cos(SAME_ANGLE),
        (SAME_DISTANCE * threshold) ** 2, BLOCK=block, num_warps=4 if block <= 1024 else 16,
    )  # fmt: skip
    return chosen


def refit(poses: Tensor, p: Tensor, q: Tensor, w: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Refit poses (S, 4, 4) to their inliers, as `hypotheses._refit`: best state, and its votes (S,)."""
    best, votes = poses.contiguous().clone(), poses.new_empty(len(poses))
    _refit[(len(poses),)](
        best, p, q, w, votes, len(p), threshold, REFITS=MAX_REFITS, WIDE=WIDE_BAND, BLOCK=_MATCHES,
        num_warps=4,
    )  # fmt: skip
    return best, votes


@triton.jit
def _load(x, k, exists):
    """Load points k of x (N, 3)."""
    at = x + 3 * k
    return tl.load(at, exists, 0.0), tl.load(at + 1, exists, 0.0), tl.load(at + 2, exists, 0.0)


@triton.jit
def _squared_residuals(px, py, pz, qx, qy, qz, a, b, c, d, e, f, g, h, i, x, y, z):
    """Compute squared residuals of matches in the pose with the rows (a, b, c), … and the translation."""
    u = a * px + b * py + c * pz + x - qx
    v = d * px + e * py + f * pz + y - qy
    w = g * px + h * py + i * pz + z - qz
    return u * u + v * v + w * w


@triton.jit(do_not_specialize=["matches", "width", "limit"])
def _fit_cliques(
    p, q, weights, edge, stretch, partners, valid, poses, votes, matches, width, limit,
    STARTS: tl.constexpr, DECISIVE: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    seed = tl.program_id(0)
    slot = tl.arange(0, C)
    exists = slot < width
    exists = exists & (tl.load(valid + seed * width + slot, exists, 0) > 0)
    partner = tl.load(partners + seed * width + slot, exists, 0)
    both = exists[:, None] & exists[None, :]
    links = tl.load(edge + partner[:, None] * matches + partner[None, :], both, 0).to(tl.float32)  # (C, C)
    own = tl.load(stretch + seed * matches + partner, exists, 0.0)
    best = tl.zeros((C,), tl.float32)  # 1 for members of the best clique
    best_size, best_value = 0.0, 0.0
    for start in range(STARTS):
        if (tl.sum(tl.where(exists & (slot == start), 1, 0), 0) > 0) & (best_size < DECISIVE):
            newest = start
            candidates = tl.sum(tl.where(slot[:, None] == newest, links, 0.0), 0)  # 1 for each
            members = tl.zeros((C,), tl.float32)
            cost = own
            size, total, growing = 1.0, 0.0, 1
            while growing > 0:
                total += tl.sum(tl.where(slot == newest, cost, 0.0), 0)
                members = tl.where(slot == newest, 1.0, members)
                size += 1.0
                row = tl.sum(tl.where(slot == newest, partner, 0), 0)
                cost += tl.load(stretch + row * matches + partner, exists & (candidates > 0), 0.0)
                value = tl.sum(links * candidates[None, :], 1) - cost / (size + 1)
                value = tl.where(candidates > 0, value, float("-inf"))
                largest = tl.max(value, 0)
                growing = (largest > float("-inf")).to(tl.int32)
                newest = tl.min(tl.where(value == largest, slot, C), 0)
                candidates *= tl.sum(tl.where(slot[:, None] == newest, links, 0.0), 0)
            value = size - total / (size * size)
            if value > best_value:
                best, best_size, best_value = members, size, value

    inside = best.to(tl.float64) / tl.maximum(best_size, 1.0)
    share = 1 / tl.maximum(best_size, 1.0).to(tl.float64)  # of the match itself
    px, py, pz = _load(p, partner, exists)
    qx, qy, qz = _load(q, partner, exists)
    sx, sy, sz = tl.load(p + 3 * seed), tl.load(p + 3 * seed + 1), tl.load(p + 3 * seed + 2)
    tx, ty, tz = tl.load(q + 3 * seed), tl.load(q + 3 * seed + 1), tl.load(q + 3 * seed + 2)
    mx = tl.sum(inside * px, 0) + share * sx
    my = tl.sum(inside * py, 0) + share * sy
    mz = tl.sum(inside * pz, 0) + share * sz
    nx = tl.sum(inside * qx, 0) + share * tx
    ny = tl.sum(inside * qy, 0) + share * ty
    nz = tl.sum(inside * qz, 0) + share * tz
    px, py, pz, sx, sy, sz = px - mx, py - my, pz - mz, sx - mx, sy - my, sz - mz
    qx, qy, qz, tx, ty, tz = qx - nx, qy - ny, qz - nz, tx - nx, ty - ny, tz - nz
    a, b, c, d, e, f, g, h, i, across = nearest_rotation(
        tl.sum(inside * qx * px, 0) + share * tx * sx,
        tl.sum(inside * qx * py, 0) + share * tx * sy,
        tl.sum(inside * qx * pz, 0) + share * tx * sz,
        tl.sum(inside * qy * px, 0) + share * ty * sx,
        tl.sum(inside * qy * py, 0) + share * ty * sy,
        tl.sum(inside * qy * pz, 0) + share * ty * sz,
        tl.sum(inside * qz * px, 0) + share * tz * sx,
        tl.sum(inside * qz * py, 0) + share * tz * sy,
        tl.sum(inside * qz * pz, 0) + share * tz * sz,
    )
    x, y, z = nx - a * mx - b * my - c * mz, ny - d * mx - e * my - f * mz, nz - g * mx - h * my - i * mz
    T = poses + 16 * seed
    store_pose(T, a, b, c, x, d, e, f, y, g, h, i, z)
    tl.store(T + 15, 1.0)
    total_votes = tl.zeros((BLOCK,), tl.float64)
    for first in range(0, matches, BLOCK):
        k = first + tl.arange(0, BLOCK)
        is_match = k < matches
        ux, uy, uz = _load(p, k, is_match)
        vx, vy, vz = _load(q, k, is_match)
        squared = _squared_residuals(ux, uy, uz, vx, vy, vz, a, b, c, d, e, f, g, h, i, x, y, z)
        total_votes += tl.load(weights + k, is_match, 0.0) * tl.maximum(1 - squared / limit, 0.0)
    # Members on a line do not determine the rotation about it; within a threshold of a line, noise would.
    determined = (best_size >= 3) & (across >= limit)
    tl.store(votes + seed, tl.where(determined, tl.sum(total_votes, 0), -1.0))


@triton.jit(do_not_specialize=["count", "keep", "cosine", "limit"])
def _choose_distinct(poses, valid, means, chosen, count, keep, cosine, limit, BLOCK: tl.constexpr):
    s = tl.arange(0, BLOCK)
    exists = s < count
    T = poses + 16 * s
    a, b, c = tl.load(T, exists, 0.0), tl.load(T + 1, exists, 0.0), tl.load(T + 2, exists, 0.0)
    d, e, f = tl.load(T + 4, exists, 0.0), tl.load(T + 5, exists, 0.0), tl.load(T + 6, exists, 0.0)
    g, h, i = tl.load(T + 8, exists, 0.0), tl.load(T + 9, exists, 0.0), tl.load(T + 10, exists, 0.0)
    x, y, z = tl.load(T + 3, exists, 0.0), tl.load(T + 7, exists, 0.0), tl.load(T + 11, exists, 0.0)
    mx, my, mz = tl.load(means), tl.load(means + 1), tl.load(means + 2)
    nx, ny, nz = tl.load(means + 3) - x, tl.load(means + 4) - y, tl.load(means + 5) - z
    # Where poses bring the mean of the source, and their inverses that of the target.
    px, py, pz = a * mx + b * my + c * mz + x, d * mx + e * my + f * mz + y, g * mx + h * my + i * mz + z
    qx, qy, qz = a * nx + d * ny + g * nz, b * nx + e * ny + h * nz, c * nx + f * ny + i * nz
    remaining = (exists & (tl.load(valid + s, exists, 0) > 0)).to(tl.int32)
    for k in range(keep):
        best = tl.min(tl.where(remaining > 0, s, BLOCK), 0)
        tl.store(chosen + k, tl.where(best < BLOCK, best, -1).to(tl.int64))
        it = s == best
        product = a * _pick(it, a) + b * _pick(it, b) + c * _pick(it, c)
        product += d * _pick(it, d) + e * _pick(it, e) + f * _pick(it, f)
        product += g * _pick(it, g) + h * _pick(it, h) + i * _pick(it, i)
        u, v, w = px - _pick(it, px), py - _pick(it, py), pz - _pick(it, pz)
        same = ((product - 1) / 2 >= cosine) & (u * u + v * v + w * w <= limit)
        u, v, w = qx - _pick(it, qx), qy - _pick(it, qy), qz - _pick(it, qz)
        same = same & (u * u + v * v + w * w <= limit)
        remaining = tl.where(same | it, 0, remaining)


@triton.jit
def _pick(it, x):
    """Return the number of x where `it` is True, or 0."""
    return tl.sum(tl.where(it, x, 0.0), 0)


@triton.jit(do_not_specialize=["matches", "threshold"])
def _refit(
    poses, p, q, weights, votes, matches, threshold,
    REFITS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    T = poses + 16 * tl.program_id(0)
    a, b, c, x = tl.load(T), tl.load(T + 1), tl.load(T + 2), tl.load(T + 3)
    d, e, f, y = tl.load(T + 4), tl.load(T + 5), tl.load(T + 6), tl.load(T + 7)
    g, h, i, z = tl.load(T + 8), tl.load(T + 9), tl.load(T + 10), tl.load(T + 11)
    limit = threshold * threshold
    best_votes = a * 0 - 1
    for step in range(REFITS + 1):
        band = threshold * tl.maximum(WIDE - step * 0.5, 1.0)
        total = tl.zeros((BLOCK,), tl.float64)
        count, ux, uy, uz, vx, vy, vz = total, total, total, total, total, total, total
        xx, xy, xz, yx, yy, yz, zx, zy, zz = total, total, total, total, total, total, total, total, total
        for first in range(0, matches, BLOCK):
            k = first + tl.arange(0, BLOCK)
            exists = k < matches
            px, py, pz = _load(p, k, exists)
            qx, qy, qz = _load(q, k, exists)
            weight = tl.load(weights + k, exists, 0.0)
            squared = _squared_residuals(px, py, pz, qx, qy, qz, a, b, c, d, e, f, g, h, i, x, y, z)
            total += weight * tl.maximum(1 - squared / limit, 0.0)
            share = weight * tl.maximum(1 - squared / (band * band), 0.0)
            count += share
            ux += share * px
            uy += share * py
            uz += share * pz
            vx += share * qx
            vy += share * qy
            vz += share * qz
            xx += share * qx * px
            xy += share * qx * py
            xz += share * qx * pz
            yx += share * qy * px
            yy += share * qy * py
            yz += share * qy * pz
            zx += share * qz * px
            zy += share * qz * py
            zz += share * qz * pz
        sum_votes = tl.sum(total, 0)
        if sum_votes > best_votes:
            best_votes = sum_votes
            store_pose(T, a, b, c, x, d, e, f, y, g, h, i, z)
        n = tl.sum(count, 0)
        n = tl.where(n > 0, n, 1.0)
        mx, my, mz = tl.sum(ux, 0) / n, tl.sum(uy, 0) / n, tl.sum(uz, 0) / n
        nx, ny, nz = tl.sum(vx, 0) / n, tl.sum(vy, 0) / n, tl.sum(vz, 0) / n
        a, b, c, d, e, f, g, h, i, _across = nearest_rotation(
            tl.sum(xx, 0) / n - nx * mx, tl.sum(xy, 0) / n - nx * my, tl.sum(xz, 0) / n - nx * mz,
            tl.sum(yx, 0) / n - ny * mx, tl.sum(yy, 0) / n - ny * my, tl.sum(yz, 0) / n - ny * mz,
            tl.sum(zx, 0) / n - nz * mx, tl.sum(zy, 0) / n - nz * my, tl.sum(zz, 0) / n - nz * mz,
        )  # fmt: skip
        x, y, z = nx - a * mx - b * my - c * mz, ny - d * mx - e * my - f * mz, nz - g * mx - h * my - i * mz
    tl.store(votes + tl.program_id(0), best_votes)
