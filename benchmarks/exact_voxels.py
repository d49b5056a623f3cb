"""Voxel values in float64, term by term by their definition, without the approximations of the fast kernels.

The package's `backend="reference"` evaluates every pair of point and voxel, which takes minutes for some
hundred keypoints. This kernel evaluates only voxels near a point.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import torch
from torch import Tensor

from wsdesc import WSDesc, voxelize
from wsdesc.descriptor.model import DescriptorInput
from wsdesc.descriptor.voxelize.arguments import band_width


def exact_voxels(model: WSDesc, prepared: DescriptorInput) -> Tensor:
    """Compute voxels (K, h, h, h) of a float64 input; the first grid is compared with the reference."""
    o = model.options
    support = (
        model.support(prepared.grid, prepared.keypoints, prepared.frames)
        .detach()
        .expand(len(prepared.keypoints))
    )
    arrays = (prepared.grid.points, prepared.keypoints, prepared.frames, support)
    values = np.zeros((len(support), o.resolution**3))
    _fill(*(a.numpy() for a in arrays), o.resolution, o.sigma, band_width(o.sigma, o.cutoff), values)
    voxels = torch.from_numpy(values).view(-1, *3 * (o.resolution,))
    one = prepared.split(1)[0]
    reference = voxelize(
        one.grid, one.keypoints, one.frames, support[:1], o.resolution, o.sigma, o.cutoff, "reference"
    )
    torch.testing.assert_close(voxels[:1], reference, rtol=0, atol=1e-9)
    return voxels


@numba.njit
def _fill(points, keypoints, frames, support, h, sigma, band, values):
    for k in range(len(keypoints)):
        cell = support[k] / h
        radius = 0.5 * cell + band
        for p in range(len(points)):
            offset = points[p] - keypoints[k]
            a, b, c = 0.0, 0.0, 0.0  # in cells from the centre of voxel 0
            for i in range(3):
                a += offset[i] * frames[k, i, 0] / cell
                b += offset[i] * frames[k, i, 1] / cell
                c += offset[i] * frames[k, i, 2] / cell
            a, b, c, far = a + (h - 1) / 2, b + (h - 1) / 2, c + (h - 1) / 2, radius / cell
            for i in range(max(0, math.ceil(a - far)), min(h - 1, math.floor(a + far)) + 1):
                for j in range(max(0, math.ceil(b - far)), min(h - 1, math.floor(b + far)) + 1):
                    for l in range(max(0, math.ceil(c - far)), min(h - 1, math.floor(c + far)) + 1):
                        outside = cell * (math.sqrt((a - i) ** 2 + (b - j) ** 2 + (c - l) ** 2) - 0.5)
                        if outside <= band:
                            z = -outside * abs(outside) / sigma
                            values[k, (i * h + j) * h + l] += max(z, 0.0) + math.log1p(math.exp(-abs(z)))
        for i in range(values.shape[1]):
            values[k, i] = -math.expm1(-values[k, i])
