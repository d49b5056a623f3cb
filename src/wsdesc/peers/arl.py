"""ARL (Deng et al. 2021): DCP trained without labels, by a robust loss of lines that hit both clouds.

Random lines pass through both clouds. Under the right pose, the points where a line hits the moved source
coincide with those where it hits the target.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from wsdesc.peers.dcp import Dcp
from wsdesc.peers.pose_geometry import gather, move, nearest
from wsdesc.peers.pose_network import WITHOUT_LABELS, NetworkPeer, PoseNetwork

_DRAWS = 10  # rounds in which lines are drawn
_MAX_HITS = 4  # hits of a line on a cloud; lines with more are not used
_SMOOTHING = 2e-4  # added to squared distances from a line
_LINES = 4096  # lines of a pair in training


class Arl(Dcp):
    """DCP with the PointNet embedding and the loss of lines.

    Args:
        lines: Number of lines of a pair in training; the original has 15,000.
    """

    def __init__(self, lines: int = _LINES) -> None:
        super().__init__("pointnet")
        self.lines = lines

    def loss(self, source: Tensor, target: Tensor, T_target_source: Tensor) -> Tensor:
        """Compute the loss of lines under the estimated pose; the true pose is not used."""
        return line_loss(move(source, self(source, target)), target, self.lines).mean()


def line_loss(source: Tensor, target: Tensor, lines: int) -> Tensor:
    """Compare the hits of random lines on the moved source (B, N, 3) and the target (B, M, 3).

    Args:
        source: Source under the estimated pose; the gradient passes through these points.
        target: Target points.
        lines: Number of lines of a pair.

    Returns:
        Losses (B,), between 0 and 2. Pairs that no line hits in both clouds have the loss 0.
    """
    with torch.autocast(source.device.type, enabled=False):
        source, target = source.float(), target.float()
        with torch.no_grad():
            origin, direction = draw_lines(source, target, lines)
            triples_p, triples_q = (nearest(cloud, cloud, 3)[1] for cloud in (source, target))  # (B, N, 3)
            hit_p = hits(source, triples_p, origin, direction)  # (B, L, N)
            hit_q = hits(target, triples_q, origin, direction)
            count_p, count_q = hit_p.sum(2), hit_q.sum(2)
            usable = (count_p > 0) & (count_q > 0) & (count_p <= _MAX_HITS) & (count_q <= _MAX_HITS)
            pair, line = usable.nonzero(as_tuple=True)  # (S,)
            k, j = count_p[pair, line], count_q[pair, line]
            lines_hit = origin[pair, line], direction[pair, line]  # (S, 3)
        p, p_valid = _hit_points(source, triples_p, hit_p[pair, line], lines_hit, pair)  # (S, 4, 3), (S, 4)
        q, q_valid = _hit_points(target, triples_q, hit_q[pair, line], lines_hit, pair)
        square = (p[:, :, None] - q[:, None]).square().sum(-1)  # (S, 4, 4)
        both = p_valid[:, :, None] & q_valid[:, None]
        scale = _medians(square.detach(), both, pair, len(source))[pair, None, None]
        rho = 1 - torch.exp(-square / (2 * scale))
        rho = torch.where(both, rho, 2.0)
        rows = torch.where(p_valid, rho.amin(2), 0.0).sum(1)
        columns = torch.where(q_valid, rho.amin(1), 0.0).sum(1)
        # lines with equal numbers of hits form a group; groups have equal weights
        group = (pair * _MAX_HITS + k - 1) * _MAX_HITS + j - 1
        groups = len(source) * _MAX_HITS**2
        total = torch.zeros(groups, device=source.device)
        sizes_k, sizes_j = total.index_add(0, group, k.float()), total.index_add(0, group, j.float())
        loss = total.index_add(0, group, rows) / sizes_k.clamp_min(1)
        loss = loss + total.index_add(0, group, columns) / sizes_j.clamp_min(1)
        steps = torch.arange(1, _MAX_HITS + 1, device=source.device)
        weight = torch.exp(-(steps[:, None] - steps).abs() / 2).flatten()
        present = (sizes_k > 0).view(len(source), -1).sum(1).clamp_min(1)
        return (loss.view(len(source), -1) * weight).sum(1) / present


def draw_lines(source: Tensor, target: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Draw lines that cross the boxes of both clouds, through two points of a sphere about the target.

    Returns:
        Origins and unit directions (B, `count`, 3). Where too few lines cross both boxes after ten rounds,
        lines that miss one of them fill the rest.
    """
    low, high = target.amin(1), target.amax(1)
    centre, radius = (low + high) / 2, (high - low).norm(dim=-1) / 2
    kept = None
    for _ in range(_DRAWS):
        shape = len(target), 2 * count, 3
        ends = [functional.normalize(torch.randn(shape, device=target.device), dim=-1) for _ in range(2)]
        ends = [centre[:, None] + radius[:, None, None] * end for end in ends]
        direction = functional.normalize(ends[1] - ends[0], dim=-1)
        crosses = _crosses(source, ends[0], direction) & _crosses(target, ends[0], direction)
        drawn = torch.cat([ends[0], direction, crosses[..., None].float()], -1)
        kept = drawn if kept is None else torch.cat([kept, drawn], 1)
        best = kept[..., 6].topk(count).indices
        kept = gather(kept, best)
        if bool((kept[..., 6] > 0).all()):
            break
    assert kept is not None
    return kept[..., :3], kept[..., 3:6]


def _crosses(cloud: Tensor, origin: Tensor, direction: Tensor) -> Tensor:
    """Check which lines (B, L, 3) cross the bounding box of a cloud (B, N, 3): (B, L)."""
    step = torch.where(direction.abs() < 1e-9, 1e-9, direction)
    a, b = ((corner[:, None] - origin) / step for corner in (cloud.amin(1), cloud.amax(1)))
    return torch.minimum(a, b).amax(-1) <= torch.maximum(a, b).amin(-1)


def hits(points: Tensor, triples: Tensor, origin: Tensor, direction: Tensor) -> Tensor:
    """Find the triples of points (B, N, 3) that lines (B, L, 3) hit: (B, L, N).

    A triple (B, N, 3) is a point with its two nearest points. It is hit if all three are nearer to the line
    than √3/2 of the mean edge.
    """
    corners = gather(points, triples)  # (B, N, 3, 3)
    edge = (corners - corners.roll(1, 2)).norm(dim=-1).mean(-1)  # (B, N)
    distance = _line_distances(points, origin, direction)
    farthest = torch.stack(
        [distance.gather(2, triples[:, None, :, i].expand_as(distance)) for i in range(triples.shape[2])]
    ).amax(0)
    hit: Tensor = farthest < math.sqrt(3) / 2 * edge[:, None]
    return hit


def _line_distances(points: Tensor, origin: Tensor, direction: Tensor) -> Tensor:
    """Compute smoothed distances (B, L, N) of points (B, N, 3) from lines (B, L, 3)."""
    middle = points.mean(1, keepdim=True)
    points, origin = points - middle, origin - middle
    along = direction @ points.mT - (origin * direction).sum(-1, keepdim=True)  # (B, L, N)
    square = points.square().sum(-1)[:, None] - 2 * origin @ points.mT + origin.square().sum(-1)[..., None]
    return (square - along.square()).clamp_min(0).add(_SMOOTHING).sqrt()


def _hit_points(
    points: Tensor, triples: Tensor, hit: Tensor, lines: tuple[Tensor, Tensor], pair: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the points (S, 4, 3) where lines hit triples, and which of the four exist (S, 4).

    Args:
        points: Clouds (B, N, 3).
        triples: Indices of the corners (B, N, 3).
        hit: Triples that each line hits (S, N).
        lines: Origins and directions (S, 3).
        pair: Cloud of each line (S,).
    """
    valid, centre = hit.half().topk(min(_MAX_HITS, hit.shape[1]), dim=-1)  # (S, 4)
    corners = triples[pair[:, None], centre]  # (S, 4, 3)
    hit_corners = points[pair[:, None, None], corners]  # (S, 4, 3, 3)
    with torch.no_grad():
        origin, direction = (x[:, None, None] for x in lines)
        offset = hit_corners - origin
        along = (offset * direction).sum(-1)
        distance = (offset.square().sum(-1) - along.square()).clamp_min(0).add(_SMOOTHING).sqrt()
        weight = distance / distance.sum(-1, keepdim=True)
    return (weight[..., None] * hit_corners).sum(2), valid > 0


def _medians(values: Tensor, valid: Tensor, pair: Tensor, count: int) -> Tensor:
    """Compute the median of the valid values (S, 4, 4) of each of `count` pairs: (count,), above 0."""
    kept, owner = values[valid], pair[:, None, None].expand_as(valid)[valid]
    order = torch.argsort(kept)
    order = order[torch.argsort(owner[order], stable=True)]  # by pair, ascending within it
    sizes = torch.bincount(owner, minlength=count)
    middle = sizes.cumsum(0) - sizes + sizes // 2
    if not len(kept):
        return values.new_ones(count)
    medians = kept[order][middle.clamp_max(len(kept) - 1)]
    return torch.where(sizes > 0, medians, 1.0).clamp_min(1e-8)


class ArlPeer(NetworkPeer):
    """ARL on DCP with the PointNet embedding."""

    SOURCE = f"ARL, {WITHOUT_LABELS}"
    FILES = ("arl.safetensors",)

    @staticmethod
    def build() -> PoseNetwork:
        """Create the network with random weights."""
        return Arl()
