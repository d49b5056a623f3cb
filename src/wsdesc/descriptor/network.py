"""The 3D CNN that maps a voxel grid to a descriptor."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

CHANNELS = (32, 32, 64, 64, 128, 128)


class DescriptorNetwork(nn.Module):
    """Six 3×3×3 convolutions, the third with stride 2, and a linear layer over all remaining voxels.

    Instance normalization and ReLU follow each convolution. The last layer is a full 8³ convolution in the
    paper. As a matrix product it has the same weights, and its gradient is 50 times faster on a GPU.

    Args:
        width: Factor on the numbers of channels. Width 1 is the paper's network, with 2 955 584 parameters
            and 0.54 GMAC per descriptor.
        dimension: Length of a descriptor.
        resolution: Voxels per axis, h.
    """

    def __init__(self, width: float = 1.0, dimension: int = 32, resolution: int = 16) -> None:
        super().__init__()
        channels = [1, *(max(1, round(c * width)) for c in CHANNELS)]
        self.convolutions = nn.ModuleList(
            nn.Conv3d(before, after, 3, stride=2 if number == 2 else 1, padding=1)
            for number, (before, after) in enumerate(pairwise(channels))
        )
        self.head = nn.Linear(channels[-1] * ((resolution + 1) // 2) ** 3, dimension)
        self.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]

    def forward(self, voxels: Tensor) -> Tensor:
        """Map voxel grids (K, h, h, h) to descriptors (K, dimension), unit vectors."""
        features = voxels[:, None]
        for convolution in self.convolutions:
            features = _instance_norm_relu(convolution(features))
        return normalize(self.head(features.flatten(1)).float(), dim=1)  # from (K, 128, 8, 8, 8)


def _instance_norm_relu(x: Tensor) -> Tensor:
    """Apply instance normalization without parameters, then ReLU, to (K, C, h, h, h).

    This equals `nn.InstanceNorm3d`. Computing it from first and second moments takes half the time on a CPU.
    """
    flat = x.flatten(2).float()
    mean = flat.mean(2)
    square = torch.linalg.vector_norm(flat, dim=2).square() / flat.shape[2]
    scale = torch.rsqrt((square - mean.square()).clamp(min=0) + 1e-5)
    shift = (-mean * scale)[..., None, None, None]
    return torch.addcmul(shift, x, scale[..., None, None, None]).relu_().to(x.dtype)
