"""The network of SpinNet: a point layer, whose weights other modules use, and cylindrical convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

# Position in the published weights, channels in and out, kernel, dilation, followed by normalisation, ReLU.
_VOLUMES = ((0, 16, 32), (3, 32, 32), (6, 32, 64), (9, 64, 64))
_IMAGES = (
    (12, 64, 128, 3, 1, True, True),
    (15, 128, 128, 3, 2, True, True),
    (18, 128, 64, 3, 2, True, True),
    (21, 64, 64, 3, 4, True, True),
    (24, 64, 32, 2, 4, True, False),
    (26, 32, 32, 2, 8, True, False),
    (28, 32, 32, 2, 16, False, False),
)


class SpinNetNetwork(nn.Module):
    """Signals (B, 16, 9, elevations, azimuths) → descriptors (B, 32). Names are those of the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.xyz_raising = nn.Conv2d(3, 16, 1)
        self.bn_xyz_raising = nn.BatchNorm2d(16)
        self.conv_net = _CylindricalNetwork()

    def point_weights(self) -> tuple[Tensor, Tensor]:
        """Return weights (16, 3) and biases (16,) of the point layer with its normalisation folded in."""
        norm = self.bn_xyz_raising
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert self.xyz_raising.bias is not None
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        weight = self.xyz_raising.weight[:, :, 0, 0] * scale[:, None]
        return weight, (self.xyz_raising.bias - norm.running_mean) * scale + norm.bias

    def forward(self, signal: Tensor) -> Tensor:
        """Describe signals; the maximum over the surface is invariant to rotations about z."""
        descriptors: Tensor = self.conv_net(signal).amax(dim=(-2, -1))
        return descriptors


class _CylindricalNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: dict[str, nn.Module] = {}
        for position, before, after in _VOLUMES:
            layers[str(position)] = nn.Conv3d(before, after, 3)
            layers[str(position + 1)] = nn.BatchNorm3d(after, affine=False)
        for position, before, after, kernel, dilation, normalised, _ in _IMAGES:
            layers[str(position)] = nn.Conv2d(before, after, kernel, dilation=dilation)
            if normalised:
                layers[str(position + 1)] = nn.BatchNorm2d(after, affine=False)
        self.ops = nn.ModuleDict(layers)

    def forward(self, x: Tensor) -> Tensor:
        for position, *_ in _VOLUMES:
            x = self.ops[str(position)](_pad(x, 1))
            x = functional.relu(self.ops[str(position + 1)](x))
        x = x.squeeze(2)  # no cells of the radius are left but one
        for position, _, _, kernel, dilation, normalised, activated in _IMAGES:
            x = self.ops[str(position)](_pad(x, (kernel - 1) * dilation // 2))
            x = self.ops[str(position + 1)](x) if normalised else x
            x = functional.relu(x) if activated else x
        return x


def _pad(x: Tensor, size: int) -> Tensor:
    """Pad azimuth, the last axis, circularly and elevation with zeros; the radius is not padded."""
    x = functional.pad(x, (0, 0, size, size))
    azimuths = x.shape[-1]
    before, after = x.narrow(-1, azimuths - size, size), x.narrow(-1, 0, size)
    return torch.cat([before, x, after], dim=-1)
