"""Consensus on a GPU: all matches, cliques and poses at once, in triton kernels or in plain torch.

The steps are those of the CPU. Comparisons with a threshold are in float32, fits in float64. Poses equal
those of the CPU up to rounding and ties between cliques.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from wsdesc.alignment.consensus.compatibility import MAX_PARTNERS
from wsdesc.alignment.consensus.constants import DECISIVE_SIZE, MIN_EDGE, STARTS, refitted_poses
from wsdesc.alignment.correspondences import most_weighted
from wsdesc.alignment.hypotheses import (
    MAX_REFITS,
    SAME_ANGLE,
    SAME_DISTANCE,
    WIDE_BAND,
    Filter,
    Hypothesis,
    centred_filter,
    distinct,
    uncentre,
)
from wsdesc.alignment.rigid import rigid_from_moments
from wsdesc.cloud.nearest import squared_distances
from wsdesc.core.devices import has_triton

_VOTES_AT_ONCE = 1 << 22  # residuals, to limit memory
_CHECK_INTERVAL = 8  # steps between two checks whether any clique still grows


def consensus(
    source: Tensor,
    target: Tensor,
    weights: Tensor,
    threshold: float,
    hypotheses: int,
    limit: int,
    allow: Filter | None = None,
) -> list[Hypothesis]:
    """Solve matches (M, 3) with weights (M,) on any device; see `wsdesc.alignment.consensus.consensus`."""
    p, q, w = source.double(), target.double(), weights.double()
    chosen = most_weighted(w.cpu().numpy(), limit)
    if len(chosen) < 3:
        return []
    mean_p, mean_q = p.mean(0), q.mean(0)
    p, q = p - mean_p, q - mean_q
    means = [mean[:, None].cpu().numpy() for mean in (mean_p, mean_q)]
    allow = centred_filter(allow, *means)
    proposing = (p, q, w)
    if len(chosen) < len(w):
        used = torch.from_numpy(chosen).to(p.device)
        proposing = (p[used], q[used], w[used])
    poses = _clique_poses(*proposing, threshold, refitted_poses(hypotheses), allow)
    best = _best_distinct(poses, *proposing, threshold, hypotheses, allow)
    if best and len(chosen) < len(w):  # all matches vote, but only on the best poses
        poses = torch.stack([hypothesis.T_target_source for hypothesis in best]).to(p.device)
        best = _best_distinct(poses, p, q, w, threshold, hypotheses, allow)
    return [uncentre(hypothesis, *means) for hypothesis in best]


def _clique_poses(
    p: Tensor, q: Tensor, w: Tensor, threshold: float, count: int, allow: Filter | None
) -> Tensor:
    """Fit distinct poses (S, 4, 4), at most `count`, to cliques; most votes first."""
    length_p, length_q = (squared_distances(x, x).sqrt_() for x in (p.float(), q.float()))  # (M, M)
    stretch = ((length_p - length_q) / threshold).square_()
    edge = (stretch <= 1) & (torch.minimum(length_p, length_q) >= MIN_EDGE * threshold)
    common = edge.float() @ edge.float()
    rank_value = (common - 0.5 * stretch).masked_fill_(~edge, -torch.inf)
    value, partners = rank_value.topk(min(MAX_PARTNERS, len(p)))  # (M, C)
    if p.is_cuda and has_triton():
        from wsdesc.alignment.consensus import fused

        poses, votes = fused.fit_cliques(p, q, w, edge, stretch, partners, value > -torch.inf, threshold)
        return poses[_choose_fused(poses, votes, votes >= 0, p, q, threshold, count, allow)]
    members = _cliques(edge, stretch, partners, value > -torch.inf)  # (M, C)

    sizes = 1 + members.sum(1)
    means, arms = [], []
    for x in (p, q):
        clique = torch.cat([x[:, None], x[partners]], 1)  # (M, 1 + C, 3)
        inside = torch.cat([torch.ones_like(members[:, :1]), members], 1)[..., None] / sizes[:, None, None]
        mean = (inside * clique).sum(1)
        means.append(mean)
        arms.append((clique - mean[:, None]) * inside.sqrt())
    cross = arms[1].mT @ arms[0]
    determined = (sizes >= 3) & (torch.linalg.svdvals(cross)[:, 1] >= threshold * threshold)
    poses = rigid_from_moments(means[0], means[1], cross)
    if allow is not None:
        determined &= torch.from_numpy(allow(poses.cpu().numpy())).to(determined.device)
    votes = _votes(poses, p, q, w, threshold).masked_fill(~determined, -1.0)
    order = votes.argsort(descending=True, stable=True)
    return _distinct(poses[order], votes[order] >= 0, p, q, threshold, count)


def _cliques(edge: Tensor, stretch: Tensor, partners: Tensor, valid: Tensor) -> Tensor:
    """Grow cliques around each match; return which of its partners (M, C) are in the best one: (M, C) bool.

    `valid` (M, C) tells which partners exist.
    """
    pairs = (partners[:, :, None], partners[:, None, :])
    links = edge[pairs] & valid[:, :, None] & valid[:, None, :]  # (M, C, C), symmetric
    strain = stretch[pairs] * links
    counted = links.float()
    starts = min(STARTS, partners.shape[1])
    growing = valid[:, :starts]  # (M, S)
    newest = torch.arange(starts, device=edge.device).expand_as(growing)
    candidates = links[:, :starts]  # (M, S, C)
    cost = stretch.gather(1, partners)[:, None].repeat(1, starts, 1)
    members = torch.zeros_like(candidates)
    slot = torch.arange(partners.shape[1], device=edge.device)
    size, total = torch.ones_like(cost[..., 0]), torch.zeros_like(cost[..., 0])  # (M, S)
    for step in range(partners.shape[1]):
        row = newest[..., None]
        total = total + growing * cost.gather(2, row)[..., 0]
        size = size + growing
        members = members | ((slot == row) & growing[..., None])
        row = row.expand_as(cost)
        cost = cost + strain.gather(1, row)
        value = candidates.float() @ counted - cost / (size[..., None] + 1)
        best, newest = value.masked_fill_(~candidates, -torch.inf).max(2)
        growing = growing & (best > -torch.inf)
        candidates = candidates & links.gather(1, newest[..., None].expand_as(candidates))
        if step % _CHECK_INTERVAL == _CHECK_INTERVAL - 1 and not bool(growing.any()):
            break
    large = size >= DECISIVE_SIZE
    tried = valid[:, :starts] & (large.cumsum(1) - large.long() == 0)  # no start before it was decisive
    chosen = (size - total / size.square()).masked_fill(~tried, -1.0).argmax(1)  # (M,)
    return members.gather(1, chosen[:, None, None].expand(-1, 1, members.shape[2]))[:, 0]


def _votes(poses: Tensor, p: Tensor, q: Tensor, w: Tensor, threshold: float) -> Tensor:
    """Sum w (1 − r² / threshold²) over the inliers of each pose: (S,)."""
    poses, p, q, w = poses.float(), p.float(), q.float(), w.float()
    parts = []
    for T in poses.split(max(1, _VOTES_AT_ONCE // len(p))):
        squared = (T[:, :3, :3] @ p.T + T[:, :3, 3:] - q.T).square_().sum(1)  # (s, M)
        parts.append((w * (1 - squared / threshold**2).clamp_(min=0)).sum(1))
    return torch.cat(parts)


def _distinct(poses: Tensor, remaining: Tensor, p: Tensor, q: Tensor, threshold: float, count: int) -> Tensor:
    """See `hypotheses.distinct`; of poses (S, 4, 4), best first, where `remaining` (S,) is True."""
    R, t = poses[:, :3, :3], poses[:, :3, 3]
    ends = (R @ p.mean(0) + t, ((q.mean(0) - t)[:, None] @ R)[:, 0])
    rotations = R.flatten(1).float()
    same = (rotations @ rotations.T - 1) / 2 >= math.cos(SAME_ANGLE)  # (S, S)
    for moved in ends:
        same &= squared_distances(moved.float(), moved.float()) <= (SAME_DISTANCE * threshold) ** 2
    chosen, valid = [], []
    for _ in range(count):
        best = remaining.long().argmax(0, keepdim=True)  # the first that remains
        valid.append(remaining[best])
        chosen.append(best)
        remaining = remaining & ~same.index_select(0, best)[0]
        remaining = remaining.index_fill(0, best, False)
    return poses[torch.cat(chosen)[torch.cat(valid)]]


def _best_distinct(
    poses: Tensor,
    p: Tensor,
    q: Tensor,
    weights: Tensor,
    threshold: float,
    count: int,
    allow: Filter | None,
) -> list[Hypothesis]:
    """See `hypotheses.best_distinct`."""
    if len(poses) == 0:
        return []
    poses, votes = _refit(poses, p, q, weights, threshold)
    inliers = _squared_residuals(poses, p, q) <= threshold * threshold  # (S, M)
    enough = (inliers & (weights > 0)).sum(1) >= 3
    if p.is_cuda and has_triton():
        chosen = _choose_fused(poses, votes, enough, p, q, threshold, count, allow)
        rows = zip(poses[chosen].cpu(), inliers[chosen].cpu(), votes[chosen].tolist(), strict=True)
        return [Hypothesis(*row) for row in rows]
    poses, votes, inliers = poses.cpu(), votes.cpu(), inliers.cpu()
    order = np.argsort(-votes.numpy(), kind="stable")
    order = order[enough.cpu().numpy()[order]]
    order = order if allow is None else order[allow(poses.numpy()[order])]
    mean_p, mean_q = (x.mean(0)[:, None].cpu().numpy() for x in (p, q))
    order = order[distinct(poses.numpy()[order], mean_p, mean_q, threshold, count)]
    return [Hypothesis(poses[k], inliers[k], float(votes[k])) for k in order]


def _choose_fused(
    poses: Tensor,
    votes: Tensor,
    valid: Tensor,
    p: Tensor,
    q: Tensor,
    threshold: float,
    count: int,
    allow: Filter | None,
) -> Tensor:
    """Choose the indices of at most `count` distinct valid poses (S, 4, 4), most votes first, by a kernel."""
    from wsdesc.alignment.consensus import fused

    if allow is not None:
        valid = valid & torch.from_numpy(allow(poses.cpu().numpy())).to(p.device)
    order = votes.argsort(descending=True, stable=True)
    means = torch.stack([p.mean(0), q.mean(0)])
    chosen = fused.choose_distinct(poses[order], valid[order], means, threshold, count)
    return order[chosen[chosen >= 0]]


def _refit(poses: Tensor, p: Tensor, q: Tensor, weights: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """See `hypotheses._refit`."""
    if p.is_cuda and has_triton():
        from wsdesc.alignment.consensus import fused

        return fused.refit(poses, p, q, weights, threshold)
    best, best_votes = poses, torch.full_like(poses[:, 0, 0], -torch.inf)
    for step in range(MAX_REFITS + 1):
        squared = _squared_residuals(poses, p, q)
        votes = (weights * (1 - squared / threshold**2).clamp(min=0)).sum(1)
        better = votes > best_votes
        best = torch.where(better[:, None, None], poses, best)
        best_votes = torch.where(better, votes, best_votes)
        band = threshold * max(1.0, WIDE_BAND - step / 2)
        if step == MAX_REFITS or (band == threshold and not bool(better.any())):
            break
        share = weights * (1 - squared / band**2).clamp(min=0)
        total = share.sum(1, keepdim=True)
        share = share / torch.where(total > 0, total, 1)
        mean_p, mean_q = share @ p, share @ q
        cross = (share[..., None] * q).mT @ p - mean_q[:, :, None] * mean_p[:, None, :]
        poses = rigid_from_moments(mean_p, mean_q, cross)
    return best, best_votes


def _squared_residuals(poses: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """Compute squared residuals (S, M) of poses (S, 4, 4) and matches (M, 3)."""
    return (p @ poses[:, :3, :3].mT + poses[:, None, :3, 3] - q).square().sum(-1)
