"""Random numbers and rotations that depend only on a seed."""

from __future__ import annotations

import torch
from scipy.spatial.transform import Rotation
from torch import Tensor


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw normally distributed numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def rotation(seed: int) -> Tensor:
    """Draw a rotation matrix (3, 3) float64."""
    return torch.from_numpy(Rotation.random(random_state=seed).as_matrix())
