"""The learned cameras of LMVD: eight positions in the frame of a keypoint, and their projections."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_PARALLEL = 1e-6  # sine below which a direction is taken for parallel to `up`


class Cameras(nn.Module):
    """Learned spherical positions of the cameras. Names are those of the weights."""

    rho: Tensor
    phi: Tensor
    theta: Tensor
    up: Tensor
    proj_mat: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, shape in {"rho": (8,), "phi": (8,), "theta": (8,), "up": (3,), "proj_mat": (4, 4)}.items():
            self.register_buffer(name, torch.zeros(shape))

    def forward(self, keypoints: Tensor, normals: Tensor, distance_factor: float) -> Tensor:
        """Compute clip matrices (B, 8, 4, 4) of the cameras around keypoints and unit normals (B, 3)."""
        rho = self.rho.clamp(0.3, 1.0) * distance_factor
        phi, theta = self.phi.clamp(0.0, math.pi / 2), self.theta.clamp(0.0, 2 * math.pi)
        local = rho * torch.stack([phi.sin() * theta.cos(), phi.sin() * theta.sin(), phi.cos()])  # (3, 8)
        up = (self.up / self.up.norm()).expand_as(normals)
        x = _unit_cross(up, normals)
        axes = torch.stack([x, torch.linalg.cross(normals, x), normals], dim=-1)  # (B, 3, 3), columns
        back = (axes @ local).transpose(1, 2)  # (B, 8, 3), from the keypoint to the cameras
        eyes = keypoints[:, None] + back
        back = nn.functional.normalize(back, dim=-1)  # cameras look along −back
        right = _unit_cross(up[:, None].expand_as(back), back)
        view = torch.zeros(*eyes.shape[:2], 4, 4, dtype=eyes.dtype, device=eyes.device)
        view[..., :3, :3] = torch.stack([right, torch.linalg.cross(back, right), back], dim=-2)
        view[..., :3, 3] = -(view[..., :3, :3] * eyes[..., None, :]).sum(-1)
        view[..., 3, 3] = 1.0
        return self.proj_mat @ view


def _unit_cross(up: Tensor, direction: Tensor) -> Tensor:
    """Return the unit vectors up × direction; where both are parallel, the x axis replaces `up`."""
    cross = torch.linalg.cross(up, direction)
    other = torch.linalg.cross(torch.tensor([1.0, 0.0, 0.0]).to(up).expand_as(up), direction)
    cross = torch.where(cross.norm(dim=-1, keepdim=True) < _PARALLEL, other, cross)
    return nn.functional.normalize(cross, dim=-1)
