"""Poses, neighbours and the rigid fit of pose networks, for batches and with gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import functional

from wsdesc.core.eigen import symmetric_eigen

_NORMAL_NEIGHBOURS = 16  # nearest points that a normal is fitted to
_SPREAD = 1e-6  # added to the diagonal: equal singular values have no gradient
_MAX_GRADIENT = 10.0  # gradient of a cross moment: nearly equal singular values have huge ones


Function = TypeVar("Function", bound=Callable[..., Any])


def exact(function: Function) -> Function:
    """Let a function compute in float32 where autocast is on: bfloat16 would round coordinates to 0.4 %."""

    @wraps(function)
    def in_float32(*arguments: Any) -> Any:
        device = next(x.device.type for x in arguments if isinstance(x, Tensor))
        with torch.autocast(device, enabled=False):
            is_float = (isinstance(x, Tensor) and x.is_floating_point() for x in arguments)
            return function(*(x.float() if f else x for x, f in zip(arguments, is_float, strict=True)))

    return cast(Function, in_float32)


@exact
def product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices (..., I, J) and (..., J, K) in float32."""
    return a @ b


@exact
def fit_pose(source: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Fit poses (B, 4, 4) to matched points (B, N, 3) with weights (B, N); differentiable."""
    share = torch.ones_like(source[..., 0]) if weights is None else weights
    share = (share / share.sum(-1, keepdim=True).clamp_min(1e-12))[..., None]  # (B, N, 1)
    mean_source, mean_target = (share * source).sum(1), (share * target).sum(1)  # (B, 3)
    cross = (source - mean_source[:, None]).mT @ (share * (target - mean_target[:, None]))  # (B, 3, 3)
    return pose_of_moments(cross, mean_source, mean_target)


@exact
def pose_of_moments(cross: Tensor, mean_source: Tensor, mean_target: Tensor) -> Tensor:
    """Compute poses (B, 4, 4) from cross moments (B, 3, 3), Σ s gᵀ, and means (B, 3)."""
    scale = cross.detach().abs().amax((-2, -1), keepdim=True).clamp_min(1e-20)
    spread = _SPREAD * torch.diag(torch.tensor([1.0, 2.0, 3.0], device=cross.device))
    normed = cross / scale + spread
    if normed.requires_grad:
        normed.register_hook(_limit)  # type: ignore[no-untyped-call]
    U, _, Vh = torch.linalg.svd(normed)
    flip = torch.ones_like(mean_source)
    flip[:, 2] = torch.det(U.detach() @ Vh.detach()).sign()
    R = Vh.mT @ (flip[..., None] * U.mT)
    return poses(R, mean_target - (R @ mean_source[..., None]).squeeze(-1))


def _limit(gradient: Tensor) -> Tensor:
    """Shorten the gradients (B, 3, 3) of single pairs; those that are not finite become zero."""
    gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
    length: Tensor = gradient.norm(dim=(1, 2), keepdim=True)
    return gradient * (_MAX_GRADIENT / length.clamp_min(_MAX_GRADIENT))


def poses(R: Tensor, t: Tensor) -> Tensor:
    """Join rotations (B, 3, 3) and translations (B, 3) to poses (B, 4, 4)."""
    last = torch.tensor([0.0, 0.0, 0.0, 1.0], device=R.device, dtype=R.dtype).expand(len(R), 1, 4)
    return torch.cat([torch.cat([R, t[..., None]], -1), last], 1)


@exact
def move(points: Tensor, T: Tensor) -> Tensor:
    """Transform points (B, N, 3) by poses (B, 4, 4)."""
    return points @ T[:, :3, :3].mT + T[:, None, :3, 3]


@exact
def invert(T: Tensor) -> Tensor:
    """Invert poses (B, 4, 4)."""
    R = T[:, :3, :3].mT
    return poses(R, -(R @ T[:, :3, 3:]).squeeze(-1))


@exact
def pose_loss(estimate: Tensor, truth: Tensor) -> Tensor:
    """Compare poses (B, 4, 4): mean squares of R_estᵀ R − I and of the difference of translations."""
    identity = torch.eye(3, device=truth.device)
    turn = estimate[:, :3, :3].mT @ truth[:, :3, :3] - identity
    return turn.square().mean() + (estimate[:, :3, 3] - truth[:, :3, 3]).square().mean()


def nearest(queries: Tensor, points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the nearest points (B, N, 3) of queries (B, Q, 3), at most `count`: distances and indices."""
    square = torch.zeros((), device=points.device)
    for a, b in zip(queries.float().unbind(-1), points.float().unbind(-1), strict=True):
        square = square + (a[:, :, None] - b[:, None]).square()  # (B, Q, N)
    near = square.topk(min(count, points.shape[1]), largest=False)
    return near.values.sqrt(), near.indices


@torch.no_grad()
@exact
def feature_graph(features: Tensor, count: int) -> Tensor:
    """Find the `count` nearest features (B, N, K) of features (B, N, C), by their scalar products."""
    x = features - features.mean(1, keepdim=True)  # no digits are lost on a common offset
    closeness = 2 * (x @ x.mT) - x.square().sum(-1)[:, None]  # (B, N, N)
    return closeness.topk(min(count, x.shape[1])).indices


def gather(values: Tensor, indices: Tensor) -> Tensor:
    """Select rows of values (B, N, C) by indices (B, ...): (B, ..., C)."""
    flat = indices.flatten(1)
    rows = flat + values.shape[1] * torch.arange(len(values), device=values.device)[:, None]
    return values.flatten(0, 1)[rows.flatten()].view(*indices.shape, values.shape[-1])


@torch.no_grad()
@exact
def estimate_normals(points: Tensor) -> Tensor:
    """Estimate unit normals (B, N, 3) without a sign, from the nearest points."""
    local = gather(points, nearest(points, points, _NORMAL_NEIGHBOURS)[1])  # (B, N, K, 3)
    local = local - local.mean(2, keepdim=True)
    covariance = local.mT @ local
    return symmetric_eigen(covariance.flatten(0, 1))[1][..., 0].view_as(points)


def rotation_of_quaternion(q: Tensor) -> Tensor:
    """Convert quaternions (B, 4), w first, of any length above 0 to rotations (B, 3, 3)."""
    w, x, y, z = functional.normalize(q, dim=-1).unbind(-1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
    ]
    return torch.stack(rows, 1)
