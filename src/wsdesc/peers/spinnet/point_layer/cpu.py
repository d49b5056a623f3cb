"""The point layer as a CPU kernel: each point visits only the voxels near it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from wsdesc.core.kernels import inline, kernel, run_in_chunks

if TYPE_CHECKING:
    from wsdesc.peers.spinnet.point_layer import VoxelGrid


def point_layer(patches: Tensor, grid: VoxelGrid, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute signals (B, 16, rad, ele, azi) of patches (B, P, 3)."""
    cells = (len(grid.distances), len(grid.elevations), len(grid.azimuths))
    result = np.empty((len(patches), len(bias), *cells), np.float32)
    tables = [t.numpy() for t in (grid.distances, grid.elevations, grid.azimuths, grid.turns)]
    run_in_chunks(
        _fill,
        len(patches),
        patches.contiguous().numpy(),
        *tables,
        np.float32(grid.voxel_radius),
        grid.samples,
        weight.contiguous().numpy(),
        bias.contiguous().numpy(),
        result,
        chunk=1,
    )
    return torch.from_numpy(result)


@kernel(fastmath=True)
def _fill(
    start, stop, patches, distances, elevations, azimuths, turns, reach, samples, weight, bias, result
):  # fmt: skip
    rad, ele, azi, channels = len(distances), len(elevations), len(azimuths), len(bias)
    features = np.empty((rad, ele, azi, channels), np.float32)
    counts = np.empty((rad, ele, azi), np.int32)
    for b in range(start, stop):
        features[:] = -np.inf
        counts[:] = 0
        for p in range(patches.shape[1]):
            x, y, z = patches[b, p, 0], patches[b, p, 1], patches[b, p, 2]
            _visit(
                x,
                y,
                z,
                distances,
                elevations,
                azimuths,
                turns,
                reach,
                samples,
                weight,
                bias,
                features,
                counts,
            )
        x, y, z = patches[b, 0, 0], patches[b, 0, 1], patches[b, 0, 2]
        for k in range(rad):
            for j in range(ele):
                for i in range(azi):
                    if counts[k, j, i] == 0:
                        ox, oy, oz = _offset(x, y, z, distances[k], elevations[j], azimuths[i])
                        _update(features[k, j, i], ox, oy, oz, turns[i], weight, bias)
                    if counts[k, j, i] < samples:
                        _update(
                            features[k, j, i],
                            np.float32(0),
                            np.float32(0),
                            np.float32(0),
                            turns[i],
                            weight,
                            bias,
                        )
                    for c in range(channels):
                        result[b, c, k, j, i] = max(features[k, j, i, c], np.float32(0))


@inline(fastmath=True)
def _visit(x, y, z, distances, elevations, azimuths, turns, reach, samples, weight, bias, features, counts):
    """Add a point to all voxels whose centre is nearer than `reach`."""
    ele, azi = len(elevations), len(azimuths)
    planar = math.sqrt(x * x + y * y)
    distance = math.sqrt(planar * planar + z * z)
    azimuth = math.atan2(y, x)
    for k in range(len(distances)):
        if abs(distances[k] - distance) >= reach:
            continue
        for j in range(ele):
            ring, height = distances[k] * math.sin(elevations[j]), distances[k] * math.cos(elevations[j])
            # Squared distance at the azimuth difference 0, and how much of `reach` remains for it.
            rest = reach * reach - (ring - planar) ** 2 - (height - z) ** 2
            if rest <= 0:
                continue
            # |difference|² = 2 · ring · planar · (1 − cos Δ) < rest
            product = 2 * ring * planar
            widest = math.pi if rest >= 2 * product else math.acos(1 - rest / product)
            first = math.floor((azimuth - widest) / (2 * math.pi) * azi - 0.5)
            last = min(math.ceil((azimuth + widest) / (2 * math.pi) * azi - 0.5), first + azi - 1)
            for wrapped in range(first, last + 1):
                i = wrapped % azi
                if counts[k, j, i] == samples:
                    continue
                ox, oy, oz = _offset(x, y, z, distances[k], elevations[j], azimuths[i])
                if ox * ox + oy * oy + oz * oz < reach * reach:
                    counts[k, j, i] += 1
                    _update(features[k, j, i], ox, oy, oz, turns[i], weight, bias)


@inline(fastmath=True)
def _offset(x, y, z, distance, elevation, azimuth):
    """Return a point relative to the centre of a voxel."""
    ring = distance * math.sin(elevation)
    return x - ring * math.cos(azimuth), y - ring * math.sin(azimuth), z - distance * math.cos(elevation)


@inline(fastmath=True)
def _update(features, ox, oy, oz, turn, weight, bias):
    """Keep the maximum of the layer's features of an offset, turned back about z."""
    cosine, sine = math.cos(turn), math.sin(turn)
    u, v = cosine * ox + sine * oy, cosine * oy - sine * ox
    for c in range(len(features)):
        value = weight[c, 0] * u + weight[c, 1] * v + weight[c, 2] * oz + bias[c]
        features[c] = max(features[c], value)
