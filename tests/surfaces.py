"""Surfaces that tests of descriptors look at, and normals found the plain way."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def hills(count: int = 500, seed: int = 0) -> Tensor:
    """A bumpy, noisy surface (N, 3), in float64, so that hardly anything falls on the border of two bins."""
    generator = torch.Generator().manual_seed(seed)
    xy = 2 * torch.rand(count, 2, generator=generator, dtype=torch.float64)
    z = 0.3 * torch.sin(3 * xy[:, 0]) * torch.cos(2 * xy[:, 1])
    z += 0.01 * torch.randn(count, generator=generator, dtype=torch.float64)
    return torch.cat([xy, z[:, None]], 1)


def waves(count: int = 4000, seed: int = 0) -> Tensor:
    """A wavy surface (N, 3) around (0, 0, 2), seen from the origin."""
    xy = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) - 0.5
    z = 2 + 0.05 * (6 * xy[:, 0]).sin() + 0.03 * (9 * xy[:, 1]).cos()
    return torch.cat([xy, z[:, None]], dim=1)


def plain_normal(points: NDArray, at: NDArray, radius: float) -> NDArray:
    """Direction (3,) in which the points within `radius` of a place are thinnest, away from their mean."""
    near = points[np.linalg.norm(points - at, axis=1) <= radius]
    normal = np.linalg.eigh(np.cov(near.T))[1][:, 0]
    return normal if normal @ (at - near.mean(0)) >= 0 else -normal
