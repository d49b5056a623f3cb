"""Triton kernels of surfaces: normals and curvature in one launch, and the hash that chooses the sample."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from wsdesc.alignment.surface.base import SAMPLE_STEPS
from wsdesc.cloud.neighbours import LEAF, NeighbourGrid
from wsdesc.core.planes import LINE_RATIO
from wsdesc.core.triton_eigen import smallest_axis

MAX_LEAVES = 4096  # their distances fit into the registers of one GPU program

_BLOCK = 512
_LEAVES = 24  # nearest leaves that are searched, as in `cloud.nearest.k_nearest`


def fit_planes(grid: NeighbourGrid, points: Tensor, count: int) -> Tensor:
    """Fit a plane to the `count` nearest neighbours of each point, 3 … 32.

    Args:
        grid: Grid of the points.
        points: (N, 3) float64 in the scan's order.
        count: Number of neighbours, the point itself included.

    Returns:
        (N, 8) float64 in the scan's order: points, normals, curvature and 0; see `CudaSurface.rows`.
    """
    rows = torch.empty(len(points), 8, dtype=torch.float64, device=points.device)
    leaves = len(grid.radii)
    block = max(32, triton.next_power_of_2(leaves))
    _fit_planes[(len(points),)](
        grid.points, grid.order, grid.centres, grid.radii, points.contiguous(), rows, len(points), leaves,
        COUNT=count, LEAVES=_LEAVES, LEAF=LEAF, BLOCK=block, LINE=LINE_RATIO,
        num_warps=1 if block <= 1024 else 4,
    )  # fmt: skip
    return rows


def sample_keys(points: Tensor, variance: Tensor) -> Tensor:
    """Hash the cells of points (N, 3) float64: keys (N,) int64 in the order of `base.sample_order`.

    Args:
        points: The points.
        variance: (3,) float64 of their coordinates.
    """
    keys = torch.empty(len(points), dtype=torch.int64, device=points.device)
    _hash_cells[(triton.cdiv(len(points), _BLOCK),)](
        points.contiguous(), variance, keys, len(points), STEPS=SAMPLE_STEPS, BLOCK=_BLOCK
    )
    return keys


@triton.jit(do_not_specialize=["n"])
def _hash_cells(points, variance, keys, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    size = tl.sqrt(tl.load(variance) + tl.load(variance + 1) + tl.load(variance + 2))
    # The cell's side is a power of 2: the exponent of the size less STEPS, as `base.cell_size`.
    exponent = (size.to(tl.int64, bitcast=True) >> 52) + 1 - STEPS
    step = tl.where(size > 0, (exponent << 52).to(tl.float64, bitcast=True), 1.0)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = i < n
    key = tl.zeros((BLOCK,), tl.int64)
    for axis in tl.static_range(3):
        cell = tl.floor(tl.load(points + 3 * i + axis, valid, 0.0) / step + 0.5).to(tl.int64)
        key = (key ^ cell) * -7046029254386353131  # products wrap around
        key = key ^ ((key >> 32) & 0xFFFFFFFF)
    tl.store(keys + i, key ^ -9223372036854775808, valid)  # signed numbers in the order of unsigned ones


@triton.jit(do_not_specialize=["n", "leaves"])
def _fit_planes(
    points, order, centres, radii, original, rows, n, leaves,
    COUNT: tl.constexpr, LEAVES: tl.constexpr, LEAF: tl.constexpr, BLOCK: tl.constexpr,
    LINE: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0)
    x, y, z = tl.load(points + 3 * i), tl.load(points + 3 * i + 1), tl.load(points + 3 * i + 2)
    leaf = tl.arange(0, BLOCK)
    exists = leaf < leaves
    dx = tl.load(centres + 3 * leaf, exists, float("inf")) - x
    dy = tl.load(centres + 3 * leaf + 1, exists, 0.0) - y
    dz = tl.load(centres + 3 * leaf + 2, exists, 0.0) - z
    gap = tl.sqrt(dx * dx + dy * dy + dz * dz) - tl.load(radii + leaf, exists, 0.0)
    slot = tl.arange(0, 32)
    chosen = tl.full((32,), -1, tl.int32)
    for s in range(LEAVES):
        least = tl.min(gap, 0)
        at = tl.min(tl.where(gap == least, leaf, BLOCK), 0)
        chosen = tl.where(slot == s, tl.where(least < float("inf"), at, -1), chosen)
        gap = tl.where(leaf == at, float("inf"), gap)
    lane = tl.arange(0, LEAF)
    k = tl.reshape(tl.where(chosen[:, None] >= 0, chosen[:, None] * LEAF + lane[None, :], n), (32 * LEAF,))
    exists = k < n
    u = tl.load(points + 3 * k, exists, float("inf"))
    v = tl.load(points + 3 * k + 1, exists, 0.0)
    w = tl.load(points + 3 * k + 2, exists, 0.0)
    squared = (u - x) * (u - x) + (v - y) * (v - y) + (w - z) * (w - z)
    entry = tl.arange(0, 32 * LEAF)
    used = entry < 0
    for _ in range(COUNT):
        at = tl.min(tl.where(squared == tl.min(squared, 0), entry, 32 * LEAF), 0)
        used = used | (entry == at)
        squared = tl.where(entry == at, float("inf"), squared)

    share = tl.where(used & exists, 1.0 / COUNT, 0.0).to(tl.float64)
    u = tl.where(used & exists, u.to(tl.float64) - x.to(tl.float64), 0.0)  # offsets from the point
    v = tl.where(used & exists, v.to(tl.float64) - y.to(tl.float64), 0.0)
    w = tl.where(used & exists, w.to(tl.float64) - z.to(tl.float64), 0.0)
    u -= tl.sum(share * u, 0)
    v -= tl.sum(share * v, 0)
    w -= tl.sum(share * w, 0)
    xx, yy, zz = tl.sum(share * u * u, 0), tl.sum(share * v * v, 0), tl.sum(share * w * w, 0)
    xy, xz, yz = tl.sum(share * u * v, 0), tl.sum(share * u * w, 0), tl.sum(share * v * w, 0)
    low, middle, high, nx, ny, nz = smallest_axis(xx, yy, zz, xy, xz, yz)
    low, middle = tl.maximum(low, 0.0), tl.maximum(middle, 0.0)
    surface = middle > LINE * high
    curvature = 3 * low / tl.where(surface, low + middle + high, 1.0)
    at = tl.load(order + i)
    row = rows + 8 * at
    tl.store(row, tl.load(original + 3 * at))
    tl.store(row + 1, tl.load(original + 3 * at + 1))
    tl.store(row + 2, tl.load(original + 3 * at + 2))
    tl.store(row + 3, tl.where(surface, nx, 0.0))
    tl.store(row + 4, tl.where(surface, ny, 0.0))
    tl.store(row + 5, tl.where(surface, nz, 0.0))
    tl.store(row + 6, tl.where(surface, curvature, 0.0))
    tl.store(row + 7, 0.0)
