"""Spacing and extent in plain torch, on any device; the GPU path. The points are cleaned: none repeats."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.nearest import nearest
from wsdesc.core.devices import has_triton
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import cell_keys


def spacing(points: Tensor, sample: np.ndarray) -> float:
    """Measure the median distance from the points with the indices `sample` to the nearest different one."""
    queries = points[torch.from_numpy(sample).to(points.device)]
    near = points[nearest(points, queries, distinct=True)]
    distance = (queries.double() - near.double()).square().sum(1).sqrt().cpu().numpy()
    if not distance.any():
        raise InputError("all points are equal: two different points are needed to measure a spacing")
    return float(np.median(distance))


def extent(points: Tensor, sample: np.ndarray) -> float:
    """Measure the extent of the surface with the points of the indices `sample`."""
    points = points[torch.from_numpy(sample).to(points.device)].double()
    points = points - _quantile(points, 0.5)
    surface = points
    for step in range(2):  # the first grid fits the points, the second fits the surface
        middle = _quantile(surface, 0.5) if step else torch.zeros_like(points[0])
        distances = (surface - middle).norm(dim=1)
        radius = float(distances.kthvalue(math.ceil(0.8 * (len(surface) - 1)) + 1).values)
        if len(surface) < 8 or not radius > 0:
            break
        first = surface_points(points, middle, radius)
        surface = points[first] if len(first) >= 8 else points[_near(points, middle, radius)]
    centred = surface - surface.mean(0)
    axes = np.linalg.eigh((centred.T @ centred).cpu().numpy())[1]
    along = centred @ torch.from_numpy(axes).to(centred.device)
    low, high = torch.stack([_quantile(along, 0.05), _quantile(along, 0.95)]).cpu().numpy()  # (3,) each
    sides = high - low
    return float(np.maximum(sides, sides.max() / 20).prod() ** (1 / 3))


def surface_points(points: Tensor, middle: Tensor, radius: float) -> Tensor:
    """Return the first point of each cell with several points; see `cuda.surface_points`."""
    if points.is_cuda and has_triton():
        from wsdesc.cloud.units import cuda

        return cuda.surface_points(points, middle, radius)
    near = _near(points, middle, radius)
    keys, order = _clamped_keys(points[near], radius / 16).sort(stable=True)
    repeated = torch.cat([keys[1:] == keys[:-1], keys.new_zeros(1, dtype=torch.bool)])  # by the next one
    repeated[1:] &= keys[1:] != keys[:-1]  # only the first of each cell
    return near[order[repeated]]


def _near(points: Tensor, middle: Tensor, radius: float) -> Tensor:
    """Return the indices of the points (N, 3) within 4 radii of the middle."""
    indices: Tensor = ((points - middle).norm(dim=1) <= 4 * radius).nonzero()[:, 0]
    return indices


def _quantile(points: Tensor, share: float) -> Tensor:
    """Return the quantile (3,) of points (N, 3), as `torch.quantile`, which needs five times the launches."""
    position = share * (len(points) - 1)
    below = math.floor(position)
    columns = points.T.contiguous()
    low = columns.kthvalue(below + 1).values
    if below == position:
        return low
    return torch.lerp(low, columns.kthvalue(below + 2).values, position - below)


def _clamped_keys(points: Tensor, size: float) -> Tensor:
    """Number the grid cells of points (N, 3); (N,) int64. Cells beyond ±2²⁰ are clamped."""
    cell = (points / size).floor().clamp(-(2**20), 2**20 - 1).long() + 2**20
    return cell_keys(cell)
