"""Triton kernels for the layers of the descriptor network: convolution, normalization and ReLU together.

For inference in half precision. A program computes all voxels of a grid for some channels, so that it can
normalize them before it stores them. Only the second of the paper's layers has grids that are too large for
that: it stores sums beside its values, and the next layer normalizes what it loads.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.nn.functional import normalize

from wsdesc.descriptor.network import EPSILON, DescriptorNetwork

_MAX_VOXELS = 512  # of a grid that one program normalizes
_ROWS = 512  # voxels that a program computes at once where it does not compute the whole grid
_WIDTH, _DEPTH = 64, 32  # channels of a program, and channels of its input that it multiplies at once


class _Weights(NamedTuple):
    """Weights of a network in the order in which the kernels read them."""

    versions: tuple[object, ...]  # of the parameters
    convolutions: list[Tensor]  # (taps · input channels, output channels) each
    head: Tensor  # (voxels · channels, dimension)


_prepared: WeakKeyDictionary[nn.Module, _Weights] = WeakKeyDictionary()


def fits(network: DescriptorNetwork, side: int) -> bool:
    """Return whether the kernels compute this network, of voxel grids with `side` voxels along each axis."""
    raw = False  # whether the layer before is not normalized yet
    for number, layer in enumerate(network.convolutions):
        assert isinstance(layer, nn.Conv3d)
        size, stride, channels = layer.kernel_size[0], layer.stride[0], layer.out_channels
        side = (side + 2 - size) // stride + 1
        power_of_2 = (
            side >= 4 and side & (side - 1) == 0 and channels >= 16 and channels & (channels - 1) == 0
        )
        if not power_of_2 or layer.padding[0] != 1 or (number > 0 and size != 3):
            return False
        large = number > 0 and side**3 > _MAX_VOXELS
        if (large and (raw or stride != 1)) or (raw and layer.in_channels > 64):
            return False
        raw = large
    return not raw


def describe(network: DescriptorNetwork, voxels: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute descriptors (K, dimension) float32 of voxel grids (K, h, h, h), with values of `dtype`."""
    weights = _prepare(network, dtype)
    side, sums, features = voxels.shape[1], None, voxels.contiguous()
    for number, (layer, weight) in enumerate(zip(network.convolutions, weights.convolutions, strict=True)):
        assert isinstance(layer, nn.Conv3d)
        size, stride = layer.kernel_size[0], layer.stride[0]
        out = (side + 2 - size) // stride + 1
        if number == 0:
            features = first_layer(features, weight, layer.out_channels, size, stride)
        elif out**3 > _MAX_VOXELS:
            features, sums = large_layer(features, weight, side)
        else:
            features, sums = small_layer(features, sums, weight, side, stride), None
        side = out
    rows = features.flatten(1)
    product = torch.mm(rows, weights.head, out_dtype=torch.float32) if rows.is_cuda else rows @ weights.head
    return normalize(product.float() + network.head.bias, dim=1)


def first_layer(voxels: Tensor, weight: Tensor, channels: int, size: int, stride: int) -> Tensor:
    """Convolve grids (K, h, h, h) of one channel; return normalized features (K, voxels, channels)."""
    side = voxels.shape[1]
    out = (side + 2 - size) // stride + 1
    features = weight.new_empty(len(voxels), out**3, channels)
    if len(voxels):
        _first_layer[(len(voxels),)](
            voxels, weight, features, EPSILON, SIDE=side, OUT=out, SIZE=size, STRIDE=stride,
            TAPS=triton.next_power_of_2(size**3), N=channels, ROWS=min(256, out**3), num_warps=4,
        )  # fmt: skip
    return features


def large_layer(x: Tensor, weight: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Convolve features (K, side³, C) with stride 1.

    Returns:
        Features (K, side³, C') before normalization, and sums (K, blocks, 2, C') of them and their squares.
    """
    channels, blocks = weight.shape[1], side**3 // _ROWS
    features = x.new_empty(len(x), side**3, channels)
    sums = torch.empty(len(x), blocks, 2, channels, device=x.device)
    if len(x):
        _large_layer[(blocks, len(x))](
            x, weight, features, sums, SIDE=side, C=x.shape[2], N=channels, ROWS=_ROWS, num_warps=8,
            num_stages=3,
        )  # fmt: skip
    return features, sums


def small_layer(x: Tensor, sums: Tensor | None, weight: Tensor, side: int, stride: int) -> Tensor:
    """Convolve and normalize features (K, side³, C), which are normalized unless there are `sums`."""
    inputs, channels, out = x.shape[2], weight.shape[1], (side - 1) // stride + 1
    width = min(_WIDTH, channels)
    features = x.new_empty(len(x), out**3, channels)
    if len(x):
        _small_layer[(channels // width, len(x))](
            x, x if sums is None else sums, weight, features, EPSILON,
            BLOCKS=1 if sums is None else sums.shape[1], SIDE=side, OUT=out, STRIDE=stride, C=inputs,
            COUT=channels, N=width, DEPTH=inputs if sums is not None else min(_DEPTH, inputs),
            RAW=sums is not None, num_warps=8 if out**3 > 64 else 4, num_stages=3,
        )  # fmt: skip
    return features


def _prepare(network: DescriptorNetwork, dtype: torch.dtype) -> _Weights:
    """Reorder the weights, or return those of the last call if no parameter has changed."""
    versions = (dtype, *((p.data_ptr(), p._version) for p in network.parameters()))
    prepared = _prepared.get(network)
    if prepared is None or prepared.versions != versions:
        layers = [layer for layer in network.convolutions if isinstance(layer, nn.Conv3d)]
        convolutions = [reorder(layer.weight.detach(), dtype) for layer in layers]
        head = network.head.weight.detach()
        head = head.view(len(head), layers[-1].out_channels, -1).permute(2, 1, 0).flatten(0, 1)
        head = head.to(dtype).contiguous()
        prepared = _prepared[network] = _Weights(versions, convolutions, head)
    return prepared


def reorder(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Reorder weights (C', C, s, s, s) to (taps · C, C'), with zeros up to a power of 2 if C is 1."""
    rows = weight.permute(2, 3, 4, 1, 0).reshape(-1, len(weight)).to(dtype)
    missing = triton.next_power_of_2(len(rows)) - len(rows) if weight.shape[1] == 1 else 0
    return torch.cat([rows, rows.new_zeros(missing, len(weight))]).contiguous()


@triton.jit
def _first_products(
    grid, w, first, tz, ty, tx, tap, SIDE: tl.constexpr, OUT: tl.constexpr, SIZE: tl.constexpr,
    STRIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Convolve ROWS voxels from `first` on."""
    v = first + tl.arange(0, ROWS)
    z = (v // (OUT * OUT) * STRIDE - 1)[:, None] + tz[None, :]
    y = (v // OUT % OUT * STRIDE - 1)[:, None] + ty[None, :]
    x = (v % OUT * STRIDE - 1)[:, None] + tx[None, :]
    inside = (z >= 0) & (z < SIDE) & (y >= 0) & (y < SIDE) & (x >= 0) & (x < SIDE)
    inside = inside & (tap < SIZE * SIZE * SIZE)[None, :]
    return tl.dot(tl.load(grid + (z * SIDE + y) * SIDE + x, inside, 0.0).to(w.dtype), w)


@triton.jit
def _first_layer(
    voxels, weight, out, epsilon, SIDE: tl.constexpr, OUT: tl.constexpr, SIZE: tl.constexpr,
    STRIDE: tl.constexpr, TAPS: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Convolve a grid of one channel twice: first to measure the channels, then to normalize them."""
    k = tl.program_id(0).to(tl.int64)
    tap, n = tl.arange(0, TAPS), tl.arange(0, N)
    tz, ty, tx = tap // (SIZE * SIZE), tap // SIZE % SIZE, tap % SIZE
    w = tl.load(weight + tap[:, None] * N + n[None, :])
    grid, VOXELS = voxels + k * SIDE * SIDE * SIDE, OUT * OUT * OUT
    total, square = tl.zeros((N,), tl.float32), tl.zeros((N,), tl.float32)
    for first in range(0, OUT * OUT * OUT, ROWS):
        value = _first_products(grid, w, first, tz, ty, tx, tap, SIDE, OUT, SIZE, STRIDE, ROWS)
        total += tl.sum(value, 0)
        square += tl.sum(value * value, 0)
    mean = total / VOXELS
    scale = 1 / tl.sqrt(tl.maximum(square / VOXELS - mean * mean, 0.0) + epsilon)
    for first in range(0, OUT * OUT * OUT, ROWS):
        value = _first_products(grid, w, first, tz, ty, tx, tap, SIDE, OUT, SIZE, STRIDE, ROWS)
        value = tl.maximum((value - mean[None, :]) * scale[None, :], 0.0)
        v = first + tl.arange(0, ROWS)
        tl.store(out + (k * VOXELS + v[:, None]) * N + n[None, :], value.to(w.dtype))


@triton.jit
def _large_layer(
    x, weight, out, sums, SIDE: tl.constexpr, C: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr
):
    """Convolve ROWS voxels of a grid; store them and their sums."""
    block, k = tl.program_id(0), tl.program_id(1).to(tl.int64)
    v, n, c = block * ROWS + tl.arange(0, ROWS), tl.arange(0, N), tl.arange(0, C)
    z, y, column = v // (SIDE * SIDE) - 1, v // SIDE % SIDE - 1, v % SIDE - 1
    grid = x + k * SIDE * SIDE * SIDE * C
    total = tl.zeros((ROWS, N), tl.float32)
    for tap in range(27):
        iz, iy, ix = z + tap // 9, y + tap // 3 % 3, column + tap % 3
        inside = (iz >= 0) & (iz < SIDE) & (iy >= 0) & (iy < SIDE) & (ix >= 0) & (ix < SIDE)
        at = (iz * SIDE + iy) * SIDE + ix
        a = tl.load(grid + at[:, None] * C + c[None, :], inside[:, None], 0.0)
        total = tl.dot(a, tl.load(weight + (tap * C + c[:, None]) * N + n[None, :]), total)
    tl.store(out + (k * SIDE * SIDE * SIDE + v[:, None]) * N + n[None, :], total.to(out.dtype.element_ty))
    own = sums + (k * tl.num_programs(0) + block) * 2 * N + n
    tl.store(own, tl.sum(total, 0))
    tl.store(own + N, tl.sum(total * total, 0))


@triton.jit
def _small_layer(
    x, sums, weight, out, epsilon, BLOCKS: tl.constexpr, SIDE: tl.constexpr, OUT: tl.constexpr,
    STRIDE: tl.constexpr, C: tl.constexpr, COUT: tl.constexpr, N: tl.constexpr, DEPTH: tl.constexpr,
    RAW: tl.constexpr,
):  # fmt: skip
    """Convolve a whole grid for N channels and normalize them; with RAW, the input is normalized first."""
    k, VOXELS = tl.program_id(1).to(tl.int64), OUT * OUT * OUT
    v, n, c = tl.arange(0, OUT * OUT * OUT), tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, DEPTH)
    z, y, column = v // (OUT * OUT) * STRIDE - 1, v // OUT % OUT * STRIDE - 1, v % OUT * STRIDE - 1
    grid = x + k * SIDE * SIDE * SIDE * C
    if RAW:
        own = sums + (k * BLOCKS + tl.arange(0, BLOCKS)[:, None]) * 2 * C + c[None, :]
        before = tl.sum(tl.load(own), 0) / (SIDE * SIDE * SIDE)
        square = tl.sum(tl.load(own + C), 0) / (SIDE * SIDE * SIDE)
        factor = 1 / tl.sqrt(tl.maximum(square - before * before, 0.0) + epsilon)
    total = tl.zeros((OUT * OUT * OUT, N), tl.float32)
    for step in range(27 * (C // DEPTH)):
        tap, first = step // (C // DEPTH), step % (C // DEPTH) * DEPTH
        iz, iy, ix = z + tap // 9, y + tap // 3 % 3, column + tap % 3
        inside = (iz >= 0) & (iz < SIDE) & (iy >= 0) & (iy < SIDE) & (ix >= 0) & (ix < SIDE)
        at = (iz * SIDE + iy) * SIDE + ix
        a = tl.load(grid + at[:, None] * C + first + c[None, :], inside[:, None], 0.0)
        if RAW:
            exact = tl.maximum((a.to(tl.float32) - before[None, :]) * factor[None, :], 0.0)
            a = tl.where(inside[:, None], exact, 0.0).to(a.dtype)
        total = tl.dot(a, tl.load(weight + (tap * C + first + c[:, None]) * COUT + n[None, :]), total)
    mean = tl.sum(total, 0) / VOXELS
    scale = 1 / tl.sqrt(tl.maximum(tl.sum(total * total, 0) / VOXELS - mean * mean, 0.0) + epsilon)
    total = tl.maximum((total - mean[None, :]) * scale[None, :], 0.0)
    tl.store(out + (k * VOXELS + v[:, None]) * COUT + n[None, :], total.to(out.dtype.element_ty))
