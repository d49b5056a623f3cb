"""Depth images by a CPU kernel, one view at a time."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from wsdesc.core.kernels import kernel, run_in_chunks
from wsdesc.peers.lmvd.render.constants import FAR, NEAR, PIXELS, TANGENT


def render_depth(points: Tensor, clip: Tensor, radius: float) -> Tensor:
    """Render points (N, 3) with clip matrices (V, 4, 4): depths (V, 64, 64)."""
    images = np.zeros((len(clip), PIXELS, PIXELS), np.float32)
    arrays = (points.contiguous().numpy(), clip.contiguous().numpy())
    run_in_chunks(_render, len(clip), *arrays, np.float32(radius), images, chunk=4)
    return torch.from_numpy(images)


@kernel
def _render(start, stop, points, clip, radius, images):
    for v in range(start, stop):
        M, image = clip[v], images[v]
        for p in range(len(points)):
            px, py, pz = points[p, 0], points[p, 1], points[p, 2]
            depth = M[3, 0] * px + M[3, 1] * py + M[3, 2] * pz + M[3, 3]
            if depth < NEAR or depth > FAR:
                continue
            x = ((M[0, 0] * px + M[0, 1] * py + M[0, 2] * pz + M[0, 3]) / depth + 1) / 2
            y = ((M[1, 0] * px + M[1, 1] * py + M[1, 2] * pz + M[1, 3]) / depth + 1) / 2
            if x < 0 or x > 1 or y < 0 or y > 1:
                continue
            q = 0.5 * radius / (TANGENT * depth)
            for i in range(
                max(math.floor(PIXELS * (x - q)), 0), min(math.ceil(PIXELS * (x + q)), PIXELS - 1) + 1
            ):
                dx = i / (PIXELS - 1) - x
                for j in range(
                    max(math.floor(PIXELS * (y - q)), 0), min(math.ceil(PIXELS * (y + q)), PIXELS - 1) + 1
                ):
                    dy = j / (PIXELS - 1) - y
                    row = PIXELS - 1 - j
                    if dx * dx + dy * dy <= q * q and (image[row, i] == 0 or depth < image[row, i]):
                        image[row, i] = depth
