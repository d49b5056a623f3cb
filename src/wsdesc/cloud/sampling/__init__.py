"""Downsampling: voxel averages, random samples, farthest points. The same seed gives the same points."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import check_points
from wsdesc.cloud.sampling import cpu, reference
from wsdesc.core.devices import has_triton
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import check_length

__all__ = ["farthest_points", "farthest_points_each", "random_sample", "voxel_downsample"]

_MAX_POINTS_TRITON = 1 << 16  # their distances fit into the registers of one GPU program


def voxel_downsample(points: Tensor, size: float) -> Tensor:
    """Average the points of each cubic cell.

    Args:
        points: (N, 3) on any device. Memory depends on N, not on the extent.
        size: Side of a cell, in the points' unit.

    Returns:
        (M, 3), M ≤ N, sorted by cell, of the points' type.
    """
    points = check_points(points).detach()
    check_length(size, "the voxel size")
    low, high = points.amin(0).double(), points.amax(0).double()
    if float((high - low).max()) / size >= 2**21:
        raise InputError(f"a voxel size of {size:g} gives more than 2 million cells per axis: check the unit")
    if points.is_cuda:
        return reference.voxel_downsample(points, low, size)
    return cpu.voxel_downsample(points, low, size)


def random_sample(count: int, keep: int, generator: torch.Generator | None = None) -> Tensor:
    """Choose `keep` of `count` indices at random without repetition, or all if there are fewer.

    Args:
        count: Number of items.
        keep: Number of items to choose.
        generator: On the CPU; seed 0 by default.

    Returns:
        (min(keep, count),) int64 on the CPU, ascending.
    """
    _check_keep(keep)
    generator = generator or torch.Generator().manual_seed(0)
    return torch.randperm(count, generator=generator)[:keep].sort().values


def farthest_points(points: Tensor, keep: int, generator: torch.Generator | None = None) -> Tensor:
    """Choose `keep` points, each the farthest from all points chosen before.

    Args:
        points: (N, 3) on any device.
        keep: Number of points to choose.
        generator: Chooses the first point, the nearest one to a random place in the bounding box. Noise
            and a few points more or less seldom change it. Seed 0 by default; on the CPU, so that all
            devices start at the same point.

    Returns:
        (min(keep, N),) int64 on the points' device, in the order of choice.
    """
    return farthest_points_each([points], keep, generator)[0]


def farthest_points_each(
    clouds: Sequence[Tensor], keep: int, generator: torch.Generator | None = None
) -> list[Tensor]:
    """Choose points of each of several clouds as `farthest_points`, with the same random place.

    On a GPU all clouds are sampled at the same time.
    """
    clouds = [check_points(points).detach() for points in clouds]
    _check_keep(keep)
    generator = generator or torch.Generator().manual_seed(0)
    share = torch.rand(3, dtype=torch.float64, generator=generator)
    if all(c.is_cuda and len(c) <= _MAX_POINTS_TRITON for c in clouds) and has_triton():
        from wsdesc.cloud.sampling import cuda

        # Without an offset, float32 keeps the digits of geographic coordinates.
        single = [c if c.dtype == torch.float32 else (c - c[0]).float() for c in clouds]
        return cuda.farthest_points(single, keep, share)
    return [_farthest_points(points, keep, share) for points in clouds]


def _farthest_points(points: Tensor, keep: int, share: Tensor) -> Tensor:
    """Choose points of one cloud; `share` (3,) places the first one in the bounding box."""
    low, high = points.amin(0).double(), points.amax(0).double()
    place = low + share.to(points.device) * (high - low)
    first = (points.double() - place).square().sum(1).argmin()
    keep = min(keep, len(points))
    if points.dtype == torch.float64:
        points = points - points[first]
    columns = points.float().T.contiguous()  # (3, N): one axis after the other can be vectorised
    if not points.is_cuda:
        return cpu.farthest_points(columns, keep, int(first))
    return reference.farthest_points(columns, keep, first)


def _check_keep(keep: int) -> None:
    if keep < 0:
        raise InputError(f"the number of points to keep must be at least 0, not {keep}")
