"""Spacing and extent in plain torch, on any device; the GPU path. The points are cleaned: none repeats."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.nearest import nearest
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
    points = points - points.quantile(0.5, dim=0)
    surface = points
    for _ in range(2):  # the first grid fits the points, the second fits the surface
        middle = surface.quantile(0.5, dim=0)
        radius = float((surface - middle).norm(dim=1).quantile(0.8, interpolation="higher"))
        if len(surface) < 8 or not radius > 0:
            break
        near = points[(points - middle).norm(dim=1) <= 4 * radius]
        ordered = _clamped_keys(near, radius / 16).sort(stable=True)
        count = ordered.values.unique_consecutive(return_counts=True)[1]
        first = ordered.indices[count.cumsum(0) - count][count > 1]
        surface = near[first] if len(first) >= 8 else near
    centred = surface - surface.mean(0)
    axes = np.linalg.eigh((centred.T @ centred).cpu().numpy())[1]
    along = centred @ torch.from_numpy(axes).to(centred.device)
    low, high = along.quantile(along.new_tensor([0.05, 0.95]), dim=0).cpu().numpy()  # (3,) each
    sides = high - low
    return float(np.maximum(sides, sides.max() / 20).prod() ** (1 / 3))


def _clamped_keys(points: Tensor, size: float) -> Tensor:
    """Number the grid cells of points (N, 3); (N,) int64. Cells beyond ±2²⁰ are clamped."""
    cell = (points / size).floor().clamp(-(2**20), 2**20 - 1).long() + 2**20
    return cell_keys(cell)
