"""Spacing and extent of clouds in memory, with numpy and compiled kernels."""

from __future__ import annotations

import math

import numpy as np

from wsdesc.cloud.clean import first_occurrences
from wsdesc.core.cells import nearest_neighbours
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import cell_keys, pack_cell
from wsdesc.core.kernels import inline, kernel, run_in_chunks

_pack_cell = inline(pack_cell)

_LARGE = 300_000  # points; the spacing of larger clouds is measured in random cells with about so many points


def spacing(points: np.ndarray, sample: int, rng: np.random.Generator, seed: int) -> float:
    """See `wsdesc.cloud.units.spacing`; points (N, 3) are finite, float32 or float64."""
    if len(points) > _LARGE:
        chosen = random_indices(len(points), 50_000, np.random.default_rng(seed))
        size = extent(points[chosen]) / 32
        part = points[_in_random_cells(points, size, _LARGE / len(points), rng)]
        points = part if len(part) >= sample else points
    points = points.astype(np.float64, copy=False)
    points = points[first_occurrences(points)]
    if len(points) < 2:
        raise InputError("all points are equal: two different points are needed to measure a spacing")
    chosen = random_indices(len(points), sample, rng)
    nearest = nearest_neighbours(points, 2, chosen)[:, 1]  # the first is the point itself
    return float(np.median(np.linalg.norm(points[nearest] - points[chosen], axis=1)))


def extent(points: np.ndarray) -> float:
    """Measure the extent of the surface with points (N, 3), which are finite; see `units.extent`."""
    points = points.astype(np.float64, copy=False)
    columns = np.ascontiguousarray(points[first_occurrences(points)].T)  # (3, N): fast to sort and to reduce
    columns -= _quantile(columns, 0.5)[:, None]
    surface = columns
    for _ in range(2):  # the first grid fits the points, the second fits the surface
        count = surface.shape[1]
        middle = _quantile(surface, 0.5)[:, None]
        rank = math.ceil(0.8 * (count - 1))
        radius = float(np.partition(_lengths(surface - middle), rank)[rank])
        if count < 8 or not radius > 0:
            break
        near = columns[:, _lengths(columns - middle) <= 4 * radius]
        first = _first_of_several(_clamped_keys(near.T, radius / 16))
        # With too few points to distinguish surfaces from outliers, all points count.
        surface = near[:, first] if len(first) >= 8 else near
    centred = surface - surface.mean(axis=1, keepdims=True)
    _, axes = np.linalg.eigh(centred @ centred.T)
    along = axes.T @ centred
    sides = _quantile(along, 0.95) - _quantile(along, 0.05)
    return float(np.maximum(sides, sides.max() / 20).prod() ** (1 / 3))


def _lengths(columns: np.ndarray) -> np.ndarray:
    """Return the lengths (N,) of vectors (3, N)."""
    x, y, z = columns
    return np.asarray(np.sqrt(x * x + y * y + z * z))


def _quantile(columns: np.ndarray, share: float) -> np.ndarray:
    """Return the quantile (3,) of each row of (3, N), as `np.quantile`, which takes ten times as long."""
    position = share * (columns.shape[1] - 1)
    below = math.floor(position)
    low = np.partition(columns, below, axis=1)
    if below == position:
        return low[:, below]
    above = low[:, below + 1 :].min(axis=1)
    return np.asarray(low[:, below] + (above - low[:, below]) * (position - below))


def _first_of_several(keys: np.ndarray) -> np.ndarray:
    """Return the index of the first of each group of several equal keys (N,), in the order of the keys."""
    order = np.argsort(keys)  # not stable, which is faster
    by_key = keys[order]
    starts = np.flatnonzero(np.r_[True, by_key[1:] != by_key[:-1]])
    counts = np.diff(np.r_[starts, len(keys)])
    return np.asarray(np.minimum.reduceat(order, starts)[counts > 1])


def random_indices(count: int, keep: int, rng: np.random.Generator) -> np.ndarray:
    """Choose at most `keep` of `count` indices at random."""
    return np.arange(count) if count <= keep else rng.choice(count, keep, replace=False, shuffle=False)


def _clamped_keys(points: np.ndarray, size: float) -> np.ndarray:
    """Number the grid cells of points (N, 3); (N,) int64. Cells beyond ±2²⁰ are clamped."""
    cells = np.clip(np.floor(points / size), -(2.0**20), 2.0**20 - 1).astype(np.int64) + 2**20
    keys: np.ndarray = cell_keys(cells)
    return keys


@inline
def _clamped_key(x, y, z, size):
    return _pack_cell(_clamped_cell(x / size), _clamped_cell(y / size), _clamped_cell(z / size))


@inline
def _clamped_cell(coordinate):
    return np.int64(min(max(np.floor(coordinate), -(2.0**20)), 2.0**20 - 1)) + 2**20


def _in_random_cells(
    points: np.ndarray, size: float, share: float, rng: np.random.Generator
) -> np.ndarray | slice:
    """Mark the points (N,) in randomly chosen cells; each cell is chosen with the probability `share`."""
    if not size > 0:
        return slice(None)
    marked = np.empty(len(points), np.bool_)
    chosen = rng.random(1 << 16) < share
    run_in_chunks(_mark, len(points), points, points[0], size, chosen, marked, chunk=1 << 18)
    return marked


@kernel
def _mark(start, stop, points, origin, size, chosen, marked):
    """Look up each point's cell in the table `chosen` by 16 bits of its hash."""
    for n in range(start, stop):
        x, y, z = points[n, 0] - origin[0], points[n, 1] - origin[1], points[n, 2] - origin[2]
        mixed = np.uint64(_clamped_key(x, y, z, size)) * np.uint64(0x9E3779B97F4A7C15)
        marked[n] = chosen[mixed >> np.uint64(48)]
