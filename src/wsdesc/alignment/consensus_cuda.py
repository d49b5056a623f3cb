"""`consensus` on a GPU: all matches, all cliques and all motions at once, in plain torch.

The same steps in the same order as on the CPU. What is compared with a threshold is found in float32, what is
fitted in float64; motions agree with those of the CPU but for rounding, and for ties among cliques.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from wsdesc.alignment.compatibility import CLOSEST
from wsdesc.alignment.consensus import CANDIDATES, DECISIVE_SIZE, SHORTEST, STARTS, most_trusted
from wsdesc.alignment.hypotheses import (
    ROUNDS,
    SAME_ANGLE,
    SAME_THRESHOLDS,
    WIDE,
    Hypothesis,
    distinct,
    uncentre,
)
from wsdesc.alignment.rigid import rigid_from_moments
from wsdesc.cloud.nearest import squared_distances

_VOTES_AT_ONCE = 1 << 22  # residuals: bounds the memory
_LOOK = 8  # members added to cliques between two looks at whether any still grows


def consensus(
    source: Tensor, target: Tensor, weights: Tensor, threshold: float, hypotheses: int, limit: int
) -> list[Hypothesis]:
    """Motions of matched points source[i] ↔ target[i], (M, 3) on any device; see `consensus` on the CPU."""
    p, q, w = source.double(), target.double(), weights.double()
    trusted = most_trusted(w.cpu().numpy(), limit)
    if len(trusted) < 3:
        return []
    middle_p, middle_q = p.mean(0), q.mean(0)
    p, q = p - middle_p, q - middle_q
    some = (p, q, w)
    if len(trusted) < len(w):
        used = torch.from_numpy(trusted).to(p.device)
        some = (p[used], q[used], w[used])
    poses = _candidates(*some, threshold, CANDIDATES * hypotheses)
    best = _best_distinct(poses, *some, threshold, hypotheses)
    if best and len(trusted) < len(w):  # all are counted, but only for motions that are worth it
        poses = torch.stack([hypothesis.T_target_source for hypothesis in best]).to(p.device)
        best = _best_distinct(poses, p, q, w, threshold, hypotheses)
    middles = [middle[:, None].cpu().numpy() for middle in (middle_p, middle_q)]
    return [uncentre(hypothesis, *middles) for hypothesis in best]


def _candidates(p: Tensor, q: Tensor, w: Tensor, threshold: float, most: int) -> Tensor:
    """Distinct motions (S, 4, 4) of cliques, those with most votes first, not yet refitted."""
    here, there = (squared_distances(x, x).sqrt_() for x in (p.float(), q.float()))  # (M, M)
    stretch = ((here - there) / threshold).square_()
    edge = (stretch <= 1) & (torch.minimum(here, there) >= SHORTEST * threshold)
    common = edge.float() @ edge.float()
    worth = (common - 0.5 * stretch).masked_fill_(~edge, -torch.inf)
    value, partners = worth.topk(min(CLOSEST, len(p)))  # (M, C)
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
    firm = (sizes >= 3) & (torch.linalg.svdvals(cross)[:, 1] >= threshold * threshold)
    poses = rigid_from_moments(means[0], means[1], cross)
    votes = _votes(poses, p, q, w, threshold).masked_fill(~firm, -1.0)
    order = votes.argsort(descending=True, stable=True)
    return _distinct(poses[order], votes[order] >= 0, p, q, threshold, most)


def _cliques(edge: Tensor, stretch: Tensor, partners: Tensor, there: Tensor) -> Tensor:
    """Which of its partners (M, C) are in the best clique that was grown around each match: (M, C) bool."""
    pairs = (partners[:, :, None], partners[:, None, :])
    links = edge[pairs] & there[:, :, None] & there[:, None, :]  # (M, C, C), symmetric
    strain = stretch[pairs] * links
    counted = links.float()
    starts = min(STARTS, partners.shape[1])
    alive = there[:, :starts]  # (M, S)
    newest = torch.arange(starts, device=edge.device).expand_as(alive)
    candidates = links[:, :starts]  # (M, S, C)
    cost = stretch.gather(1, partners)[:, None].repeat(1, starts, 1)
    members = torch.zeros_like(candidates)
    slot = torch.arange(partners.shape[1], device=edge.device)
    size, total = torch.ones_like(cost[..., 0]), torch.zeros_like(cost[..., 0])  # (M, S)
    for step in range(partners.shape[1]):
        row = newest[..., None]
        total = total + alive * cost.gather(2, row)[..., 0]
        size = size + alive
        members = members | ((slot == row) & alive[..., None])
        row = row.expand_as(cost)
        cost = cost + strain.gather(1, row)
        value = candidates.float() @ counted - cost / (size[..., None] + 1)
        best, newest = value.masked_fill_(~candidates, -torch.inf).max(2)
        alive = alive & (best > -torch.inf)
        candidates = candidates & links.gather(1, newest[..., None].expand_as(candidates))
        if step % _LOOK == _LOOK - 1 and not bool(alive.any()):
            break
    large = size >= DECISIVE_SIZE
    tried = there[:, :starts] & (large.cumsum(1) - large.long() == 0)  # none before it was large
    chosen = (size - total / size.square()).masked_fill(~tried, -1.0).argmax(1)  # (M,)
    return members.gather(1, chosen[:, None, None].expand(-1, 1, members.shape[2]))[:, 0]


def _votes(poses: Tensor, p: Tensor, q: Tensor, w: Tensor, threshold: float) -> Tensor:
    """Each motion's sum of w (1 − r² / threshold²) over its inliers: (S,)."""
    poses, p, q, w = poses.float(), p.float(), q.float(), w.float()
    parts = []
    for T in poses.split(max(1, _VOTES_AT_ONCE // len(p))):
        squared = (T[:, :3, :3] @ p.T + T[:, :3, 3:] - q.T).square_().sum(1)  # (s, M)
        parts.append((w * (1 - squared / threshold**2).clamp_(min=0)).sum(1))
    return torch.cat(parts)


def _distinct(poses: Tensor, left: Tensor, p: Tensor, q: Tensor, threshold: float, most: int) -> Tensor:
    """See `hypotheses.distinct`; of poses (S, 4, 4), best first, where `left` (S,) says so."""
    R, t = poses[:, :3, :3], poses[:, :3, 3]
    ends = (R @ p.mean(0) + t, ((q.mean(0) - t)[:, None] @ R)[:, 0])
    turned = R.flatten(1).float()
    alike = (turned @ turned.T - 1) / 2 >= math.cos(SAME_ANGLE)  # (S, S)
    for moved in ends:
        alike &= squared_distances(moved.float(), moved.float()) <= (SAME_THRESHOLDS * threshold) ** 2
    chosen, good = [], []
    for _ in range(most):
        best = left.long().argmax(0, keepdim=True)  # the first that is left
        good.append(left[best])
        chosen.append(best)
        left = left & ~alike.index_select(0, best)[0]
        left = left.index_fill(0, best, False)
    return poses[torch.cat(chosen)[torch.cat(good)]]


def _best_distinct(
    poses: Tensor, p: Tensor, q: Tensor, weights: Tensor, threshold: float, most: int
) -> list[Hypothesis]:
    """See `hypotheses.best_distinct`."""
    if len(poses) == 0:
        return []
    poses, scores = _polish(poses, p, q, weights, threshold)
    agree = _squared_residuals(poses, p, q) <= threshold * threshold  # (S, M)
    enough = ((agree & (weights > 0)).sum(1) >= 3).cpu().numpy()
    poses, scores, agree = poses.cpu(), scores.cpu(), agree.cpu()
    order = np.argsort(-scores.numpy(), kind="stable")
    order = order[enough[order]]
    middle_p, middle_q = (x.mean(0)[:, None].cpu().numpy() for x in (p, q))
    order = order[distinct(poses.numpy()[order], middle_p, middle_q, threshold, most)]
    return [Hypothesis(poses[k], agree[k], float(scores[k])) for k in order]


def _polish(poses: Tensor, p: Tensor, q: Tensor, weights: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Refit each motion on what it brings together, first within a wider band; its best state and score."""
    best, best_scores = poses, torch.full_like(poses[:, 0, 0], -torch.inf)
    for step in range(ROUNDS + 1):
        squared = _squared_residuals(poses, p, q)
        scores = (weights * (1 - squared / threshold**2).clamp(min=0)).sum(1)
        better = scores > best_scores
        best = torch.where(better[:, None, None], poses, best)
        best_scores = torch.where(better, scores, best_scores)
        band = threshold * max(1.0, WIDE - step / 2)
        if step == ROUNDS or (band == threshold and not bool(better.any())):
            break
        share = weights * (1 - squared / band**2).clamp(min=0)
        total = share.sum(1, keepdim=True)
        share = share / torch.where(total > 0, total, 1)
        mean_p, mean_q = share @ p, share @ q
        cross = (share[..., None] * q).mT @ p - mean_q[:, :, None] * mean_p[:, None, :]
        poses = rigid_from_moments(mean_p, mean_q, cross)
    return best, best_scores


def _squared_residuals(poses: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """(S, M) of motions (S, 4, 4) and matches (M, 3)."""
    return (p @ poses[:, :3, :3].mT + poses[:, None, :3, 3] - q).square().sum(-1)
