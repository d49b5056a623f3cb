"""Share a training among several processes: each has its own pairs, and gradients are averaged.

Processes are started by torchrun. Without it, there is one process and the functions have no effect.
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
    """Join the processes that torchrun started; yields (rank, number of processes), (0, 1) outside of it."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield 0, 1
        return
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


def is_main_process() -> bool:
    """Return True in the first process that torchrun started, and without torchrun."""
    return os.environ.get("RANK", "0") == "0"


def average_gradients(model: nn.Module) -> None:
    """Replace each gradient by its mean over the processes; None counts as zero."""
    if not dist.is_initialized():
        return
    parameters = [p for p in model.parameters() if p.requires_grad]
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        p.grad = part.view_as(p)


def agree(flags: Tensor) -> Tensor:
    """Return the minimum of each flag over the processes: 1 only if it is 1 in all of them."""
    if dist.is_initialized():
        dist.all_reduce(flags, op=dist.ReduceOp.MIN)
    return flags
