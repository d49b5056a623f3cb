"""Triton kernel for instance normalization and ReLU: one launch that reads and writes each number twice.

Plain torch needs eight launches, some of them on copies in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 4096  # numbers that a program normalizes at once


def fits(x: Tensor) -> bool:
    """Return whether the kernel can normalize x (K, C, h, h, h): channels are last, and few."""
    return x.is_contiguous(memory_format=torch.channels_last_3d) and x.shape[1] <= 256


def instance_norm_relu(x: Tensor, epsilon: float) -> Tensor:
    """Normalize the channels of x (K, C, h, h, h) in place, set what is negative to 0, and return x."""
    voxels, channels = x[0, 0].numel(), x.shape[1]
    width = triton.next_power_of_2(channels)
    rows = max(1, min(_TILE // width, triton.next_power_of_2(voxels)))
    if len(x):
        _normalize[(len(x),)](x, voxels, channels, epsilon, ROWS=rows, WIDTH=width, num_warps=8)
    return x


@triton.jit(do_not_specialize=["voxels", "epsilon"])
def _normalize(x, voxels, channels, epsilon, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Normalize the grids (voxels, channels) of one keypoint."""
    grid = x + tl.program_id(0).to(tl.int64) * voxels * channels
    row, channel = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    square = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(0, voxels, ROWS):
        v = first + row
        exists = (v < voxels)[:, None] & (channel < channels)[None, :]
        value = tl.load(grid + v[:, None] * channels + channel[None, :], exists, 0.0).to(tl.float32)
        total += value
        square += value * value
    mean = tl.sum(total, 0) / voxels
    variance = tl.maximum(tl.sum(square, 0) / voxels - mean * mean, 0.0)
    scale = 1 / tl.sqrt(variance + epsilon)
    shift = -mean * scale
    for first in range(0, voxels, ROWS):
        v = first + row
        exists = (v < voxels)[:, None] & (channel < channels)[None, :]
        at = grid + v[:, None] * channels + channel[None, :]
        value = tl.load(at, exists, 0.0).to(tl.float32) * scale[None, :] + shift[None, :]
        tl.store(at, tl.maximum(value, 0.0).to(x.dtype.element_ty), exists)
