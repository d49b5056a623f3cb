"""The 3D CNN that maps a voxel grid to a descriptor."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv3d, normalize

from wsdesc.core.devices import has_triton
from wsdesc.core.kernels import kernel, run_in_chunks
from wsdesc.descriptor.options import NetworkLayers

EPSILON = 1e-5  # added to variances, as in torch


class Layer(NamedTuple):
    """A convolution: its output channels, the side of its kernel, its stride."""

    channels: int
    kernel: int = 3
    stride: int = 1


LAYERS: dict[NetworkLayers, tuple[Layer, ...]] = {
    "paper": (Layer(32), Layer(32), Layer(64, stride=2), Layer(64), Layer(128), Layer(128)),
    # A tenth of the arithmetic of "paper" at a quarter of its width: large grids have few channels.
    "compact": (Layer(16, kernel=4, stride=2), Layer(32, stride=2), Layer(64), Layer(64)),
}


class DescriptorNetwork(nn.Module):
    """Convolutions, and a linear layer over all remaining voxels.

    Instance normalization and ReLU follow each convolution. The last layer is a full 8³ convolution in the
    paper. As a matrix product it has the same weights, and its gradient is 50 times faster on a GPU.

    Args:
        width: Factor on the numbers of channels. The layers "paper" of width 1 have 2 955 584 parameters and
            0.54 GMAC per descriptor.
        dimension: Length of a descriptor.
        resolution: Voxels per axis, h.
        layers: Name of the convolutions.
    """

    def __init__(
        self, width: float = 1.0, dimension: int = 32, resolution: int = 16, layers: NetworkLayers = "paper"
    ) -> None:
        super().__init__()
        before, side = 1, resolution
        self.convolutions = nn.ModuleList()
        for layer in LAYERS[layers]:
            channels, padding = max(1, round(layer.channels * width)), (layer.kernel - 1) // 2
            self.convolutions.append(nn.Conv3d(before, channels, layer.kernel, layer.stride, padding))
            before, side = channels, (side + 2 * padding - layer.kernel) // layer.stride + 1
        self.head = nn.Linear(before * side**3, dimension)
        self.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]

    def forward(self, voxels: Tensor) -> Tensor:
        """Map voxel grids (K, h, h, h) to descriptors (K, dimension), unit vectors."""
        features = voxels[:, None]
        for convolution in self.convolutions:
            features = _instance_norm_relu(_convolve(convolution, features))
        return normalize(self.head(features.flatten(1)).float(), dim=1)  # of (K, C · voxels)


def _convolve(convolution: nn.Module, x: Tensor) -> Tensor:
    """Apply a convolution to (K, C, h, h, h).

    The normalization after it removes its bias, which takes a fifth of the network's time on CUDA. So it is
    left out there, and has no gradient.
    """
    if not x.is_cuda:
        features: Tensor = convolution(x)
        return features
    assert isinstance(convolution, nn.Conv3d)
    y = conv3d(x, convolution.weight, None, convolution.stride, convolution.padding)  # type: ignore[arg-type]
    return y.contiguous(memory_format=torch.channels_last_3d)  # a copy only if torch chose another layout


def _instance_norm_relu(x: Tensor) -> Tensor:
    """Apply instance normalization without parameters, then ReLU, to (K, C, h, h, h).

    This equals `nn.InstanceNorm3d`. Computing it from first and second moments takes half the time on a CPU.
    Where no gradient is needed, a compiled kernel takes a fifth. On CUDA a triton kernel does both.
    """
    if not (x.requires_grad or x.is_cuda) and x.is_contiguous(memory_format=torch.channels_last_3d):
        rows = x.permute(0, 2, 3, 4, 1).flatten(1, 3).numpy()  # (K, h³, C), the same memory
        run_in_chunks(_normalize_in_place, len(rows), rows, chunk=32)
        return x
    if x.is_cuda and not torch.compiler.is_compiling() and has_triton():
        from wsdesc.descriptor import instance_norm

        if instance_norm.fits(x):
            return instance_norm.instance_norm_relu(x, EPSILON)
    flat = x.flatten(2).float()
    mean = flat.mean(2)
    square = torch.linalg.vector_norm(flat, dim=2).square() / flat.shape[2]
    scale = torch.rsqrt((square - mean.square()).clamp(min=0) + EPSILON)
    shift = (-mean * scale)[..., None, None, None]
    return torch.addcmul(shift, x, scale[..., None, None, None]).relu_().to(x.dtype)


@kernel(types="int64, int64, float32[:, :, ::1]", fastmath=True)
def _normalize_in_place(start, stop, x):  # type: ignore[no-untyped-def]
    """Normalize the channels of x (K, h³, C), and set what is negative to 0."""
    voxels, channels = x.shape[1], x.shape[2]
    mean, scale = np.empty(channels, np.float32), np.empty(channels, np.float32)
    for k in range(start, stop):
        mean[:], scale[:] = 0, 0
        for v in range(voxels):
            for c in range(channels):
                mean[c] += x[k, v, c]
                scale[c] += x[k, v, c] * x[k, v, c]
        for c in range(channels):
            mean[c] /= voxels
            variance = max(scale[c] / voxels - mean[c] * mean[c], np.float32(0))
            scale[c] = 1 / math.sqrt(variance + np.float32(EPSILON))
        for v in range(voxels):
            for c in range(channels):
                x[k, v, c] = max((x[k, v, c] - mean[c]) * scale[c], np.float32(0))
