"""Triton kernels that count points in free space: two launches for all poses instead of about thirty."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from wsdesc.alignment.free_space.counts import Limits, ViewCounts
from wsdesc.cloud.range_image import SLOPE

_BLOCK = 256  # points of a program


def count_points(
    points: Tensor,
    neighbours: Tensor,
    T_viewer_points: Tensor,
    viewpoint: Tensor,
    free: Tensor,
    limits: Limits,
) -> Tensor:
    """Count points in the view of the other scan, for each of H poses.

    Args:
        points: (S, 3) float64.
        neighbours: (S, M) int64, indices of their nearest points.
        T_viewer_points: (H, 4, 4) float64.
        viewpoint: (3,) float64.
        free: (6, n, n) float32, ranges up to which space is empty.
        limits: When a point violates free space.

    Returns:
        (H, fields of `ViewCounts`) int32.
    """
    poses, count = len(T_viewer_points), len(points)
    counts = torch.zeros(poses, len(ViewCounts._fields), dtype=torch.int32, device=points.device)
    violates = torch.empty(poses, count, dtype=torch.int8, device=points.device)
    grid = (triton.cdiv(count, _BLOCK), poses)
    _look[grid](
        points.contiguous(), count, T_viewer_points.contiguous(), viewpoint, free, violates, counts,
        limits.margin, limits.relative_margin, CELLS=free.shape[1], SLOPE=float(SLOPE), BLOCK=_BLOCK,
    )  # fmt: skip
    _confirm[grid](
        violates, neighbours.contiguous(), count, counts, limits.neighbours,
        NEIGHBOURS=neighbours.shape[1], BLOCK=_BLOCK,
    )  # fmt: skip
    return counts


@triton.jit(do_not_specialize=["count", "margin", "relative_margin"])
def _look(
    points, count, T, viewpoint, free, violates, counts, margin, relative_margin,
    CELLS: tl.constexpr, SLOPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compare the range of each point with the free space in its direction."""
    k, pose = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    exists = k < count
    a = tl.load(points + 3 * k, exists, 0.0)
    b, c = tl.load(points + 3 * k + 1, exists, 0.0), tl.load(points + 3 * k + 2, exists, 0.0)
    T += 16 * pose
    x = tl.load(T) * a + tl.load(T + 1) * b + tl.load(T + 2) * c + (tl.load(T + 3) - tl.load(viewpoint))
    y = tl.load(T + 4) * a + tl.load(T + 5) * b + tl.load(T + 6) * c
    y += tl.load(T + 7) - tl.load(viewpoint + 1)
    z = tl.load(T + 8) * a + tl.load(T + 9) * b + tl.load(T + 10) * c
    z += tl.load(T + 11) - tl.load(viewpoint + 2)
    length = tl.sqrt(x * x + y * y + z * z)
    end = tl.load(free + _cell_of(x, y, z, CELLS, SLOPE), exists & (length > 0), 0.0).to(tl.float64)
    slack = margin + relative_margin * end
    in_view = end > 0
    violating = in_view & (length < end - slack)
    at_surface = in_view & (length >= end - slack) & (length < end + slack)
    tl.store(violates + pose.to(tl.int64) * count + k, violating.to(tl.int8), exists)
    tl.atomic_add(counts + 3 * pose, tl.sum(in_view.to(tl.int32), 0))
    tl.atomic_add(counts + 3 * pose + 1, tl.sum(at_surface.to(tl.int32), 0))


@triton.jit
def _cell_of(x, y, z, CELLS: tl.constexpr, SLOPE: tl.constexpr):
    """Number the direction cells of vectors as `range_image.cell_of`."""
    ax, ay, az = tl.abs(x), tl.abs(y), tl.abs(z)
    along_x = (ax >= ay) & (ax >= az)
    along_y = (along_x == 0) & (ay >= az)
    main = tl.where(along_x, x, tl.where(along_y, y, z))
    first = tl.where(along_x, y, tl.where(along_y, z, x))
    second = tl.where(along_x, z, tl.where(along_y, x, y))
    face = tl.where(along_x, 0, tl.where(along_y, 2, 4)) + (main <= 0).to(tl.int32)
    largest = tl.where(main == 0, 1.0, tl.abs(main))
    row, column = _index(first / largest, CELLS, SLOPE), _index(second / largest, CELLS, SLOPE)
    return (face * CELLS + row) * CELLS + column


@triton.jit
def _index(t, CELLS: tl.constexpr, SLOPE: tl.constexpr):
    u = t * (SLOPE - (SLOPE - 1) * tl.abs(t))  # -1 … 1
    cell = ((u + 1) * 0.5 * CELLS).to(tl.int32)
    return tl.minimum(tl.maximum(cell, 0), CELLS - 1)


@triton.jit(do_not_specialize=["count", "least"])
def _confirm(violates, neighbours, count, counts, least, NEIGHBOURS: tl.constexpr, BLOCK: tl.constexpr):
    """Count the violating points with enough violating neighbours."""
    k, pose = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    violates += pose.to(tl.int64) * count
    violating = tl.load(violates + k, k < count, 0) > 0
    together = tl.zeros((BLOCK,), tl.int32)
    for n in tl.static_range(NEIGHBOURS):
        neighbour = tl.load(neighbours + k * NEIGHBOURS + n, violating, 0)
        together += tl.load(violates + neighbour, violating, 0).to(tl.int32)
    tl.atomic_add(counts + 3 * pose + 2, tl.sum((violating & (together >= least)).to(tl.int32), 0))
