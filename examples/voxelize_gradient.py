"""Differentiate the voxelization layer with respect to the support, and compare with finite differences.

    python examples/voxelize_gradient.py

The default layer ignores pairs of point and voxel with a probability below 0.001. This changes the derivative
by a few per cent; without the cut-off, it agrees with finite differences.
"""

import torch

from wsdesc import local_frames, voxelize
from wsdesc.cloud.sampling import farthest_points, voxel_downsample
from wsdesc.datasets.synthetic import room_pair

points = voxel_downsample(torch.from_numpy(room_pair(seed=0).source), 0.1)  # (N, 3)
keypoints = points[farthest_points(points, 4)]  # (K, 3)
frames = local_frames(points, keypoints)  # frames (K, 3, 3), reliable (K,)


def occupancy(support: torch.Tensor, **options: object) -> torch.Tensor:
    voxels = voxelize(points.to(support.dtype), keypoints, frames.frames, support, **options)
    return voxels.mean()


side = torch.tensor(1.0, requires_grad=True)
default = occupancy(side)
default.backward()

exact_side = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
exact = occupancy(exact_side, cutoff=None)  # all pairs, in plain torch
exact.backward()

step = 1e-3
with torch.no_grad():
    above, below = (occupancy(exact_side + change, cutoff=None) for change in (step, -step))

print(f"{len(points)} points, {len(keypoints)} keypoints, {int(frames.reliable.sum())} reliable frames")
print(f"default:             occupancy {default.item():.5f}, derivative {side.grad.item():+.5f}")
print(f"without the cut-off: occupancy {exact.item():.5f}, derivative {exact_side.grad.item():+.5f}")
print(f"finite differences:  derivative {((above - below) / (2 * step)).item():+.5f}")
