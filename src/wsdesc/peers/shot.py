"""SHOT: signatures of histograms of orientations, 352 numbers per keypoint.

S. Salti, F. Tombari, L. Di Stefano, "SHOT: Unique signatures of histograms for surface and texture
description", CVIU 125, 2014. In the keypoint's frame, the ball around it is divided into 8 sectors of
azimuth, 2 of elevation and 2 shells. Each of the 32 parts has a histogram with 11 bins of the cosines between
the frame's z and the neighbours' normals. A neighbour is interpolated linearly between adjacent bins in all
four quantities. The descriptor is normalized to unit length.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid, check_points, walk_leaves
from wsdesc.core.geometry import check_length
from wsdesc.core.kernels import inline, kernel, run_in_chunks
from wsdesc.peers.shot_frames import along_axis, shot_frames, surface_normals

AZIMUTHS, ELEVATIONS, SHELLS, BINS = 8, 2, 2, 11
LENGTH = AZIMUTHS * ELEVATIONS * SHELLS * BINS  # 352


class Shot:
    """A descriptor peer. The default radii, in metres, gave the best results on indoor/train."""

    def __init__(self, support_radius: float = 0.4, normal_radius: float = 0.06) -> None:
        check_length(support_radius, "support_radius")
        check_length(normal_radius, "normal_radius")
        self.support_radius, self.normal_radius = support_radius, normal_radius

    @torch.no_grad()
    def __call__(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Tensor:
        """Compute descriptors (K, 352) float32 of `keypoints` (K, 3) in `points` (N, 3), on the CPU.

        Rows have unit length. They are zero for keypoints with fewer than five neighbours or without normals.
        """
        check_length(unit, "the unit")
        check_points(points)
        check_points(keypoints, "keypoints")
        # Subtract the offset of geographic coordinates before float32 loses their digits.
        points, keypoints = points.detach().cpu().double(), keypoints.detach().cpu().double()
        origin = points.mean(0)
        grid = NeighbourGrid.of(((points - origin) / unit).float())
        keys = ((keypoints - origin) / unit).float().contiguous()
        normals = surface_normals(grid, self.normal_radius)
        frames, usable = shot_frames(grid, keys, self.support_radius)
        result = np.zeros((len(keys), LENGTH), np.float32)
        radius = np.float32(self.support_radius)
        run_in_chunks(
            _histograms, len(keys), *grid.arrays(), normals, keys.numpy(), radius, frames, usable, result
        )
        return torch.from_numpy(result)


@kernel
def _histograms(
    start, stop, points, centres, radii, branch_centres, branch_radii, normals, keypoints, radius, frames,
    usable, result,
):  # fmt: skip
    leaves = np.empty(len(radii), np.int32)
    total = np.empty(LENGTH)
    for k in range(start, stop):
        if not usable[k]:
            continue
        x, y, z = keypoints[k, 0], keypoints[k, 1], keypoints[k, 2]
        total[:] = 0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, leaves)):
            for p in range(leaves[i] * LEAF, min((leaves[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                squared = dx * dx + dy * dy + dz * dz
                nx, ny, nz = normals[p, 0], normals[p, 1], normals[p, 2]
                if squared > radius * radius or squared == 0 or (nx == 0 and ny == 0 and nz == 0):
                    continue
                cosine = along_axis(frames[k], 2, nx, ny, nz)
                u, v = along_axis(frames[k], 0, dx, dy, dz), along_axis(frames[k], 1, dx, dy, dz)
                w = along_axis(frames[k], 2, dx, dy, dz)
                _interpolate(total, cosine, u, v, w, np.float64(radius))
        length = math.sqrt((total * total).sum())
        if length > 0:
            for b in range(LENGTH):
                result[k, b] = total[b] / length


@inline
def _interpolate(total, cosine, u, v, w, radius):
    """Add a neighbour at (u, v, w) in the frame to the adjacent bins.

    The outermost bins are not interpolated outwards; azimuth is periodic.
    """
    distance = math.sqrt(u * u + v * v + w * w)
    azimuth = math.atan2(v, u) / (2 * math.pi) * AZIMUTHS - 0.5
    elevation = math.acos(min(max(w / distance, -1.0), 1.0)) / math.pi * ELEVATIONS - 0.5
    shell = distance / radius * SHELLS - 0.5
    bin = (cosine + 1) / 2 * BINS - 0.5
    a0, e0, s0, b0 = math.floor(azimuth), math.floor(elevation), math.floor(shell), math.floor(bin)
    for corner in range(16):
        da, de, ds, db = corner & 1, corner >> 1 & 1, corner >> 2 & 1, corner >> 3
        weight = 1 - abs(azimuth - a0 - da)
        weight *= 1 - abs(elevation - e0 - de)
        weight *= 1 - abs(shell - s0 - ds)
        weight *= 1 - abs(bin - b0 - db)
        a, e = int(a0 + da) % AZIMUTHS, min(max(int(e0 + de), 0), ELEVATIONS - 1)
        s, b = min(max(int(s0 + ds), 0), SHELLS - 1), min(max(int(b0 + db), 0), BINS - 1)
        total[((a * ELEVATIONS + e) * SHELLS + s) * BINS + b] += weight
