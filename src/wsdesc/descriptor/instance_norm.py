"""Triton kernels for instance normalization and ReLU: one launch that reads each number twice.

Plain torch needs eight launches, some of them on copies in float32, and more for the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 4096  # numbers that a program normalizes at once


def fits(x: Tensor) -> bool:
    """Return whether the kernels can normalize x (K, C, h, h, h): channels are last, and few."""
    return x.is_contiguous(memory_format=torch.channels_last_3d) and x.shape[1] <= 256


def instance_norm_relu(x: Tensor, epsilon: float) -> Tensor:
    """Normalize the channels of x (K, C, h, h, h), and set negative values to 0.

    Without a gradient this changes x, and returns it.
    """
    if x.requires_grad:
        y: Tensor = _NormalizeWithGradient.apply(x, epsilon)
        return y
    _launch(x, x, epsilon, None)
    return x


class _NormalizeWithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float) -> Tensor:
        y = torch.empty_like(x)
        moments = x.new_empty(len(x), 2, x.shape[1], dtype=torch.float32)  # scale and shift
        _launch(x, y, epsilon, moments)
        ctx.save_for_backward(x, moments)
        return y

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        x, moments = ctx.saved_tensors
        above = upstream[0].contiguous(memory_format=torch.channels_last_3d)
        gradient = torch.empty_like(x)
        if len(x):
            _differentiate[(len(x),)](x, moments, above, gradient, *_shape(x), num_warps=8, **_tile(x))
        return gradient, None


def _launch(x: Tensor, y: Tensor, epsilon: float, moments: Tensor | None) -> None:
    """Write the normalized x to y; store scale and shift (K, 2, C) in `moments`."""
    if len(x):
        _normalize[(len(x),)](
            x, y, x if moments is None else moments, *_shape(x), epsilon,
            STORE=moments is not None, num_warps=8, **_tile(x),
        )  # fmt: skip


def _shape(x: Tensor) -> tuple[int, int]:
    return x[0, 0].numel(), x.shape[1]


def _tile(x: Tensor) -> dict[str, int]:
    voxels, channels = _shape(x)
    width = triton.next_power_of_2(channels)
    return {"ROWS": max(1, min(_TILE // width, triton.next_power_of_2(voxels))), "WIDTH": width}


@triton.jit(do_not_specialize=["voxels", "epsilon"])
def _normalize(
    x, y, moments, voxels, channels, epsilon, STORE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """Normalize the grids (voxels, channels) of one keypoint."""
    k = tl.program_id(0).to(tl.int64)
    grid = k * voxels * channels
    row, channel = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    square = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(0, voxels, ROWS):
        v = first + row
        exists = (v < voxels)[:, None] & (channel < channels)[None, :]
        value = tl.load(x + grid + v[:, None] * channels + channel[None, :], exists, 0.0).to(tl.float32)
        total += value
        square += value * value
    mean = tl.sum(total, 0) / voxels
    variance = tl.maximum(tl.sum(square, 0) / voxels - mean * mean, 0.0)
    scale = 1 / tl.sqrt(variance + epsilon)
    shift = -mean * scale
    if STORE:
        stored = moments + k * 2 * channels + channel
        tl.store(stored, scale, channel < channels)
        tl.store(stored + channels, shift, channel < channels)
    for first in range(0, voxels, ROWS):
        v = first + row
        exists = (v < voxels)[:, None] & (channel < channels)[None, :]
        at = grid + v[:, None] * channels + channel[None, :]
        value = tl.load(x + at, exists, 0.0).to(tl.float32) * scale[None, :] + shift[None, :]
        tl.store(y + at, tl.maximum(value, 0.0).to(y.dtype.element_ty), exists)


@triton.jit
def _above(x, above, at, exists, scale, shift):
    """Load normalized numbers, and the gradient of those that ReLU keeps."""
    value = tl.load(x + at, exists, 0.0).to(tl.float32) * scale[None, :] + shift[None, :]
    slope = tl.load(above + at, exists, 0.0).to(tl.float32)
    return tl.where(exists, value, 0.0), tl.where(value > 0, slope, 0.0)


@triton.jit(do_not_specialize=["voxels"])
def _differentiate(x, moments, above, gradient, voxels, channels, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Compute the gradient of the grids (voxels, channels) of one keypoint."""
    k = tl.program_id(0).to(tl.int64)
    grid = k * voxels * channels
    row, channel = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    stored = moments + k * 2 * channels + channel
    scale = tl.load(stored, channel < channels, 0.0)
    shift = tl.load(stored + channels, channel < channels, 0.0)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    along = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(0, voxels, ROWS):
        v = first + row
        exists = (v < voxels)[:, None] & (channel < channels)[None, :]
        value, slope = _above(x, above, grid + v[:, None] * channels + channel[None, :], exists, scale, shift)
        total += slope
        along += slope * value
    mean = tl.sum(total, 0) / voxels
    mean_along = tl.sum(along, 0) / voxels
    for first in range(0, voxels, ROWS):
        v = first + row
        exists = (v < voxels)[:, None] & (channel < channels)[None, :]
        at = grid + v[:, None] * channels + channel[None, :]
        value, slope = _above(x, above, at, exists, scale, shift)
        change = (slope - mean[None, :] - value * mean_along[None, :]) * scale[None, :]
        tl.store(gradient + at, change.to(gradient.dtype.element_ty), exists)
