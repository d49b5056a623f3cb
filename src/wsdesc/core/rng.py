"""Random numbers that depend only on given seeds, not on the order of calls."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def generator_of(*numbers: int) -> torch.Generator:
    """Return a CPU generator that depends only on these integers, such as a seed and a step."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def random_rotation(generator: torch.Generator) -> Tensor:
    """Return a uniformly distributed rotation matrix (3, 3) float32."""
    w, x, y, z = torch.nn.functional.normalize(torch.randn(4, generator=generator), dim=0).tolist()
    return torch.tensor(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
