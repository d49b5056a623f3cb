"""Random choices of a training: each from a generator that belongs to its place in the run."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def generator_of(*numbers: int) -> torch.Generator:
    """Random numbers that belong to these whole numbers (a seed, a step, …) and to nothing else."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def random_rotation(generator: torch.Generator) -> Tensor:
    """A rotation (3, 3), uniform over all of them, from a generator on the CPU."""
    w, x, y, z = torch.nn.functional.normalize(torch.randn(4, generator=generator), dim=0).tolist()
    return torch.tensor(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
