"""Fewer points: by a voxel grid, by farthest points, at random. Each seeded, each the same on every run."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import check_points
from wsdesc.core.errors import InputError
from wsdesc.core.kernels import inline, kernel

_ONE_PROGRAM = 1 << 16  # points whose distances fit the registers of one program on a GPU


def voxel_downsample(points: Tensor, size: float) -> Tensor:
    """Average the points of each cubic cell of side `size` (in the points' unit).

    points (N, 3) → (M, 3), M ≤ N, sorted by cell. Memory follows N, whatever the extent.
    """
    check_points(points)
    if not size > 0:
        raise InputError(f"a voxel size must be positive, not {size}")
    low, high = points.amin(0).double(), points.amax(0).double()
    if float((high - low).max()) / size >= 2**21:
        raise InputError(
            f"a voxel size of {size:g} cuts this cloud into over 2 million cells an axis: wrong unit?"
        )
    if not points.is_cuda:
        keys, sums, counts = _sum_cells(points.detach().numpy(), low.numpy(), size)
        by_cell = np.argsort(keys)
        return torch.from_numpy(sums[by_cell] / counts[by_cell, None]).to(points.dtype)
    cell = ((points.double() - low) / size).floor().long()
    order = torch.sort((cell[:, 0] << 42) | (cell[:, 1] << 21) | cell[:, 2], stable=True)
    count = torch.unique_consecutive(order.values, return_counts=True)[1]
    mean = torch.segment_reduce(points[order.indices].double(), "mean", lengths=count, axis=0)
    return mean.to(points.dtype)


def random_sample(count: int, keep: int, generator: torch.Generator | None = None) -> Tensor:
    """Choose `keep` of `count` at random without repetition; all of them if there are no more.

    Returns (min(keep, count),) int64 on the CPU, ascending. Seed 0 without a generator.
    """
    _check_number(keep)
    generator = generator or torch.Generator().manual_seed(0)
    return torch.randperm(count, generator=generator)[:keep].sort().values


def farthest_points(points: Tensor, keep: int, generator: torch.Generator | None = None) -> Tensor:
    """Choose `keep` points, each the farthest from all chosen before; the first one at random.

    points (N, 3) on any device → (min(keep, N),) int64 on that device, in the order of choice.
    The generator lives on the CPU, so that both kinds of device start at the same point.
    """
    check_points(points)
    _check_number(keep)
    generator = generator or torch.Generator().manual_seed(0)
    first = int(torch.randint(len(points), (1,), generator=generator))
    keep = min(keep, len(points))
    points = points.detach()
    if points.dtype == torch.float64:  # geographic coordinates must not lose their digits below
        points = points - points[first]
    if points.is_cuda:
        if len(points) > _ONE_PROGRAM or not find_spec("triton"):
            return _step_by_step(points, keep, first)
        from wsdesc.cloud import sampling_cuda

        return sampling_cuda.farthest_points(points, keep, first)
    chosen = np.empty(keep, np.int64)
    columns = points.float().T.contiguous().numpy()  # (3, N): one axis after the other vectorises
    _farthest_points(columns[0], columns[1], columns[2], first, chosen)
    return torch.from_numpy(chosen)


def _step_by_step(points: Tensor, keep: int, first: int) -> Tensor:
    """In plain torch: large clouds fill a GPU at each step, so launches do not matter."""
    columns = points.float().T.contiguous()
    nearest = columns.new_full((columns.shape[1],), torch.inf)
    latest = torch.tensor([first], device=columns.device)
    chosen = []
    for _ in range(keep):
        chosen.append(latest)
        squared = (columns - columns.index_select(1, latest)).square_().sum(0)
        nearest = torch.minimum(nearest, squared).index_fill_(0, latest, -1)  # never again
        latest = nearest.argmax(0, keepdim=True)
    return torch.cat(chosen) if chosen else latest[:0]


def _check_number(keep: int) -> None:
    if keep < 0:
        raise InputError(f"the number of points to keep must not be negative, as {keep} is")


@kernel
def _sum_cells(points, low, size):
    """The occupied cells in the order in which points come to them: numbers (M,), sums (M, 3), counts (M,).

    A hash table over the cells. It is as large as the result, so that it stays in the cache where sorting
    would move every point.
    """
    capacity, used = 1 << 12, 0
    table = np.full(capacity, -1, np.int64)  # slot -> cell
    keys, counts = np.empty(capacity // 2, np.int64), np.zeros(capacity // 2, np.int64)
    sums = np.zeros((capacity // 2, 3))
    last_key, last = np.int64(-1), np.int64(-1)
    for n in range(len(points)):
        key = np.int64(0)
        for axis in range(3):
            key = (key << 21) | np.int64(np.floor((np.float64(points[n, axis]) - low[axis]) / size))
        cell = last
        if key != last_key:  # scanners go along surfaces: it often is the same
            slot = _slot(key, capacity)
            while table[slot] >= 0 and keys[table[slot]] != key:
                slot = (slot + 1) & (capacity - 1)
            cell = table[slot]
            if cell < 0:
                if used == len(keys):
                    capacity *= 2
                    table = np.full(capacity, -1, np.int64)
                    for old in range(used):
                        slot = _slot(keys[old], capacity)
                        while table[slot] >= 0:
                            slot = (slot + 1) & (capacity - 1)
                        table[slot] = old
                    slot = _slot(key, capacity)
                    while table[slot] >= 0:
                        slot = (slot + 1) & (capacity - 1)
                    keys = np.concatenate((keys, np.empty_like(keys)))
                    counts = np.concatenate((counts, np.zeros_like(counts)))
                    sums = np.concatenate((sums, np.zeros_like(sums)))
                cell = np.int64(used)
                table[slot], keys[cell] = cell, key
                used += 1
            last_key, last = key, cell
        counts[cell] += 1
        for axis in range(3):
            sums[cell, axis] += points[n, axis]
    return keys[:used], sums[:used], counts[:used]


@inline
def _slot(key, capacity):
    """Where the search for a cell begins: the upper bits of a product are well mixed."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(mixed >> np.uint64(32)) & (capacity - 1)


@kernel(fastmath={"contract", "nsz", "reassoc"})
def _farthest_points(x, y, z, first, chosen):
    nearest = np.full(len(x), np.float32(np.inf))  # squared distance to what is chosen
    latest = first
    for k in range(len(chosen)):
        chosen[k] = latest
        nearest[latest] = -1  # never again, even among coincident points
        px, py, pz = x[latest], y[latest], z[latest]
        farthest = np.float32(-1)
        for i in range(len(x)):
            dx, dy, dz = x[i] - px, y[i] - py, z[i] - pz
            nearest[i] = min(nearest[i], dx * dx + dy * dy + dz * dz)
            farthest = max(farthest, nearest[i])
        for i in range(len(x)):
            if nearest[i] == farthest:
                latest = i
                break
