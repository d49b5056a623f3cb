"""Depth images in plain torch on any device: discs are expanded to pixels and scattered with a minimum."""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.peers.lmvd.render.constants import FAR, NEAR, PIXELS, TANGENT

_SIDES = (4, 8, 16, 32, PIXELS)  # sides of the windows that discs are sorted into
_AT_ONCE = 2**25  # projected points, or pixels, in memory at once


def render_depth(points: Tensor, clip: Tensor, radius: float) -> Tensor:
    """Render points (N, 3) with clip matrices (V, 4, 4): depths (V, 64, 64)."""
    step = max(1, _AT_ONCE // max(1, len(points)))
    parts = [_render(points, clip[v : v + step], radius) for v in range(0, len(clip), step)]
    return torch.cat(parts) if parts else points.new_zeros(0, PIXELS, PIXELS)


def _render(points: Tensor, clip: Tensor, radius: float) -> Tensor:
    x, y, depth = (_row(clip[:, row], points) for row in (0, 1, 3))  # (V, N)
    x, y = (x / depth + 1) / 2, (y / depth + 1) / 2
    seen = (depth >= NEAR) & (depth <= FAR) & (x >= 0) & (x <= 1) & (y >= 0) & (y <= 1)
    view = seen.nonzero(as_tuple=True)[0]
    x, y, depth = x[seen], y[seen], depth[seen]
    q = 0.5 * radius / (TANGENT * depth)
    low_i, high_i = _window(x, q)
    low_j, high_j = _window(y, q)
    images = torch.full((len(clip) * PIXELS * PIXELS,), torch.inf, dtype=points.dtype, device=points.device)
    side = torch.maximum(high_i - low_i, high_j - low_j) + 1
    smaller = 0
    for size in _SIDES:
        group = ((side > smaller) & (side <= size)).nonzero(as_tuple=True)[0]
        smaller = size
        steps = torch.arange(size, device=points.device)
        for chosen in group.split(max(1, _AT_ONCE // size**2)):
            i = low_i[chosen, None, None] + steps[None, :, None]  # (n, size, 1)
            j = low_j[chosen, None, None] + steps[None, None, :]  # (n, 1, size)
            dx, dy = i / (PIXELS - 1) - x[chosen, None, None], j / (PIXELS - 1) - y[chosen, None, None]
            covered = dx.square() + dy.square() <= q[chosen, None, None].square()
            covered &= (i <= high_i[chosen, None, None]) & (j <= high_j[chosen, None, None])
            pixel = (view[chosen, None, None] * PIXELS + (PIXELS - 1 - j)) * PIXELS + i
            depths = depth[chosen, None, None].expand_as(covered)
            images.scatter_reduce_(0, pixel[covered], depths[covered], "amin")
    return torch.where(images.isinf(), 0.0, images).view(-1, PIXELS, PIXELS)


def _row(row: Tensor, points: Tensor) -> Tensor:
    """Multiply one row (V, 4) of the clip matrices with points (N, 3), without TF32: (V, N)."""
    x, y, z, w = (row[:, k, None] for k in range(4))
    return x * points[:, 0] + y * points[:, 1] + z * points[:, 2] + w


def _window(position: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and last pixel, clipped to the image, that a disc of radius q is tested against."""
    low = (PIXELS * (position - q)).floor().clamp(min=0).long()
    return low, (PIXELS * (position + q)).ceil().clamp(max=PIXELS - 1).long()
