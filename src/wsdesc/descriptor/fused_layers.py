"""The descriptor network in half precision, for inference on CUDA.

A triton kernel computes the first layer with its normalization: convolutions of one channel waste the tensor
cores. The weights of the other layers are converted once, not in each call.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.nn.functional import conv3d, normalize

from wsdesc.descriptor import instance_norm
from wsdesc.descriptor.network import EPSILON, DescriptorNetwork

_ROWS = 256  # voxels that a program of the first layer computes at once


class _Weights(NamedTuple):
    """Weights of a network in half precision, in the order in which they are read."""

    versions: tuple[object, ...]  # of the parameters
    first: Tensor  # (taps, channels), with zeros up to a power of 2
    others: list[Tensor]  # (channels, input channels, s, s, s) each
    head: Tensor  # (voxels · channels, dimension)


_prepared: WeakKeyDictionary[nn.Module, _Weights] = WeakKeyDictionary()


def fits(network: DescriptorNetwork, side: int) -> bool:
    """Return whether this module computes the network, of voxel grids with `side` voxels along each axis."""
    for number, layer in enumerate(network.convolutions):
        assert isinstance(layer, nn.Conv3d)
        size, channels = layer.kernel_size[0], layer.out_channels
        side = (side + 2 - size) // layer.stride[0] + 1
        power_of_2 = (
            side >= 4 and side & (side - 1) == 0 and channels >= 16 and channels & (channels - 1) == 0
        )
        if not power_of_2 or layer.padding[0] != 1 or channels > (64 if number == 0 else 256):
            return False
    return True


def describe(network: DescriptorNetwork, voxels: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute descriptors (K, dimension) float32 of voxel grids (K, h, h, h), with values of `dtype`."""
    weights = _prepare(network, dtype)
    layers = [layer for layer in network.convolutions if isinstance(layer, nn.Conv3d)]
    features = first_layer(voxels.contiguous(), weights.first, layers[0])  # (K, C, g, g, g)
    for layer, weight in zip(layers[1:], weights.others, strict=True):
        features = conv3d(features, weight, None, layer.stride, layer.padding)  # type: ignore[arg-type]
        features = features.contiguous(memory_format=torch.channels_last_3d)
        instance_norm.instance_norm_relu(features, EPSILON)  # in place
    features = features.permute(0, 2, 3, 4, 1)  # in the order of memory
    return normalize((features.flatten(1) @ weights.head).float() + network.head.bias, dim=1)


def first_layer(voxels: Tensor, weight: Tensor, layer: nn.Conv3d) -> Tensor:
    """Convolve grids (K, h, h, h) of one channel; return normalized features (K, C, g, g, g)."""
    side, size, stride = voxels.shape[1], layer.kernel_size[0], layer.stride[0]
    out = (side + 2 - size) // stride + 1
    features = weight.new_empty(len(voxels), out, out, out, layer.out_channels)
    if len(voxels):
        _first_layer[(len(voxels),)](
            voxels, weight, features, EPSILON, SIDE=side, OUT=out, SIZE=size, STRIDE=stride,
            TAPS=len(weight), N=layer.out_channels, ROWS=min(_ROWS, out**3), num_warps=4,
        )  # fmt: skip
    return features.permute(0, 4, 1, 2, 3)


def _prepare(network: DescriptorNetwork, dtype: torch.dtype) -> _Weights:
    """Reorder the weights, or return those of the last call if no parameter has changed."""
    parameters = list(network.parameters())
    counted = not any(p.is_inference() for p in parameters)  # torch does not count changes of the others
    versions = (dtype, *((p.data_ptr(), p._version) for p in parameters)) if counted else ()
    prepared = _prepared.get(network)
    if prepared is None or not counted or prepared.versions != versions:
        layers = [layer for layer in network.convolutions if isinstance(layer, nn.Conv3d)]
        first = layers[0].weight.detach().to(dtype).flatten(1).T  # (taps, C)
        missing = triton.next_power_of_2(len(first)) - len(first)
        others = [x.weight.detach().to(dtype, memory_format=torch.channels_last_3d) for x in layers[1:]]
        head = network.head.weight.detach()
        head = head.view(len(head), layers[-1].out_channels, -1).permute(2, 1, 0).flatten(0, 1)
        prepared = _prepared[network] = _Weights(
            versions,
            torch.cat([first, first.new_zeros(missing, first.shape[1])]).contiguous(),
            others,
            head.to(dtype).contiguous(),
        )
    return prepared


@triton.jit
def _convolve_first(
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
        value = _convolve_first(grid, w, first, tz, ty, tx, tap, SIDE, OUT, SIZE, STRIDE, ROWS)
        total += tl.sum(value, 0)
        square += tl.sum(value * value, 0)
    mean = total / VOXELS
    scale = 1 / tl.sqrt(tl.maximum(square / VOXELS - mean * mean, 0.0) + epsilon)
    for first in range(0, OUT * OUT * OUT, ROWS):
        value = _convolve_first(grid, w, first, tz, ty, tx, tap, SIDE, OUT, SIZE, STRIDE, ROWS)
        value = tl.maximum((value - mean[None, :]) * scale[None, :], 0.0)
        v = first + tl.arange(0, ROWS)
        tl.store(out + (k * VOXELS + v[:, None]) * N + n[None, :], value.to(w.dtype))
