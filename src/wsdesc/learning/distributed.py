"""Several processes on one training: each learns from its own pair, all take the mean of the gradients.

Start them with torchrun; without it there is one process and nothing here does anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn


@contextmanager
def process_group() -> Iterator[tuple[int, int]]:
    """Join what torchrun started; yields (rank, number of processes), (0, 1) outside of it."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield 0, 1
        return
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


def average_gradients(model: nn.Module) -> None:
    """Replace each gradient by its mean over the processes, in one exchange; None counts as zero."""
    if not dist.is_initialized():
        return
    parameters = [p for p in model.parameters() if p.requires_grad]
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        p.grad = part.view_as(p)


def agree(flags: Tensor) -> Tensor:
    """The smallest value of each flag over the processes: true only where it is true for all."""
    if dist.is_initialized():
        dist.all_reduce(flags, op=dist.ReduceOp.MIN)
    return flags
