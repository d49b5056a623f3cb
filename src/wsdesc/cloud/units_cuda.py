"""Spacing and extent of clouds that are on a GPU, by the rules of `units`, for points that repeat nowhere."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.nearest import nearest
from wsdesc.core.errors import InputError


def spacing(points: Tensor, sample: np.ndarray) -> float:
    """The median distance from some of the points (N, 3), by their indices, to the nearest that differs."""
    queries = points[torch.from_numpy(sample).to(points.device)]
    near = points[nearest(points, queries, apart=True)]
    distance = (queries.double() - near.double()).square().sum(1).sqrt().cpu().numpy()
    if not distance.any():
        raise InputError("all points are one and the same: there is no distance between them to measure")
    return float(np.median(distance))


def extent(points: Tensor, sample: np.ndarray) -> float:
    """How large the surface is that some of the points (N, 3), by their indices, lie on."""
    points = points[torch.from_numpy(sample).to(points.device)].double()
    points = points - points.quantile(0.5, dim=0)
    places = points
    for _ in range(2):  # the first grid is chosen for the points, the second for the surface
        middle = places.quantile(0.5, dim=0)
        reach = float((places - middle).norm(dim=1).quantile(0.8, interpolation="higher"))
        if len(places) < 8 or not reach > 0:
            break
        near = points[(points - middle).norm(dim=1) <= 4 * reach]
        ordered = _cells(near, reach / 16).sort(stable=True)
        count = ordered.values.unique_consecutive(return_counts=True)[1]
        first = ordered.indices[count.cumsum(0) - count][count > 1]
        places = near[first] if len(first) >= 8 else near
    centred = places - places.mean(0)
    axes = np.linalg.eigh((centred.T @ centred).cpu().numpy())[1]
    along = centred @ torch.from_numpy(axes).to(centred.device)
    low, high = along.quantile(along.new_tensor([0.05, 0.95]), dim=0).cpu().numpy()  # (3,) each
    sides = high - low
    return float(np.maximum(sides, sides.max() / 20).prod() ** (1 / 3))


def _cells(points: Tensor, size: float) -> Tensor:
    """(N,) int64, one number for each cell of a grid; cells 2²⁰ from the origin and beyond are one."""
    cell = (points / size).floor().clamp(-(2**20), 2**20 - 1).long() + 2**20
    return (cell[:, 0] << 42) | (cell[:, 1] << 21) | cell[:, 2]
