"""Structure search: poses at which the walls and floors of two scans coincide, whatever the descriptors say.

Built places have three perpendicular directions. If both scans show them, 24 rotations are possible. For each
one, the Fourier transform compares all shifts at once on coarse voxels: surfaces of equal direction should
coincide, and no surface should lie in space that the other scanner saw through. In a repetitive place the
descriptors propose poses at which many details agree; this search lists the other poses, one of which may be
right.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool3d, max_pool3d, pad

from wsdesc.alignment.axes import find_axes
from wsdesc.alignment.free_space import MARGIN, RELATIVE_MARGIN
from wsdesc.alignment.surface import Surface
from wsdesc.cloud.range_image import RangeImage, range_cells
from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import run_each

_VOXEL = 6.0  # working resolutions,
_MAX_VOXELS = 96  # or more, so that a scan has at most as many voxels along an axis
_ROTATIONS_COMPARED = 8  # of 24, on the finer voxels; chosen on coarser ones
_VIOLATION = 30.0  # weight of a voxel in free space, relative to one where surfaces coincide
_MIN_SHARE = 0.02  # of the surface: rarer directions of normals get no larger weight
_SHIFTS = 64  # best ones of a rotation, of which neighbours are left out
_SAME_PEAK = 2  # voxels between neighbours
_STEPS = 2.0**40  # of integers that stand for squares of cosines

# (6, 4, 3, 3) the 24 rotations that permute and flip axes, by the order of the axes.
_ROTATIONS = np.array(
    [
        R
        for order in itertools.permutations(range(3))
        for signs in itertools.product((1.0, -1.0), repeat=3)
        if np.linalg.det(R := np.diag(signs)[:, order]) > 0
    ]
).reshape(6, 4, 3, 3)


def search_structure(
    source: Surface,
    target: Surface,
    images: tuple[RangeImage | None, RangeImage | None],
    resolution: float,
    *,
    count: int,
    allow: Callable[[Floats], NDArray[np.bool_]] | None = None,
) -> Floats:
    """Find poses T_target_source (K, 4, 4), K ≤ `count`, at which the structures of two scans coincide.

    Args:
        source, target: surfaces of one backend.
        images: range images of source and target; None for a scan without a viewpoint.
        resolution: working resolution, in the unit of the surfaces.
        count: largest number of poses.
        allow: which of poses (K, 4, 4) are possible; None for all.

    Returns:
        The poses with the best agreement first, exact to some resolutions; none if a scan does not have three
        perpendicular directions.
    """
    axes = run_each(find_axes, [_numpy(surface.normals[surface.sample]) for surface in (source, target)])
    if axes[0] is None or axes[1] is None:
        return np.zeros((0, 4, 4))
    clouds = [torch.as_tensor(surface.points) for surface in (source, target)]
    extent = torch.stack([points.amax(0) - points.amin(0) for points in clouds]).max()
    voxel = max(_VOXEL * resolution, float(extent) / _MAX_VOXELS)
    p = _Voxels.of(source, images[0], axes[0], voxel, resolution)
    q = _Voxels.of(target, images[1], axes[1], voxel, resolution)
    rotations = _ROTATIONS.reshape(-1, 3, 3)
    scores: Iterator[Tensor]
    if p.free.is_cuda:
        p = p.cubic()
        values = compare_rotations(p.coarser(), q.coarser(), rotations).amax((1, 2, 3))
        best = rotations[values.topk(_ROTATIONS_COMPARED).indices.tolist()]
        scores = iter([compare_rotations(p, q, best)])
    else:
        p_coarse, q_coarse = p.coarser(), q.coarser()
        coarse = [_scores([p_coarse.turned(R) for R in same_order], q_coarse) for same_order in _ROTATIONS]
        values = torch.cat([score.amax((1, 2, 3)) for score in coarse])
        best = rotations[values.topk(_ROTATIONS_COMPARED).indices.tolist()]
        scores = (_scores([p.turned(R)], q) for R in best)
    maxima = [(score.shape[1:], own) for score in scores for own in _maxima(score)]
    limit = count if allow is None else _SHIFTS  # of a rotation
    peaks, found = [], []
    for R, (size, own) in zip(best, maxima, strict=True):
        values_at, shifts = _peaks(own, size, q.free.shape, limit)
        T = np.tile(np.eye(4), (len(shifts), 1, 1))
        T[:, :3, :3] = axes[1].T @ R @ axes[0]
        T[:, :3, 3] = (q.origin - p.turned_origin(R) + voxel * shifts) @ axes[1]
        peaks.append(values_at)
        found.append(T)
    poses = np.concatenate(found)[np.argsort(-np.concatenate(peaks), kind="stable")]
    return poses[:count] if allow is None else poses[allow(poses)][:count]


@dataclass(frozen=True, eq=False)
class _Voxels:
    """Coarse voxels of a scan along its axes."""

    size: float
    origin: Floats  # (3,) corner of the grid, in the frame of the axes
    surface: Tensor  # (3, X, Y, Z) share of each axis in the normals of a voxel's surface; 0 without any
    wide: Tensor  # (3, X, Y, Z) largest surface of the neighbourhood of 3³ voxels
    free: Tensor  # (X, Y, Z) 1 where the scanner saw through a voxel, and no surface is in its neighbourhood

    @classmethod
    def of(
        cls, surface: Surface, image: RangeImage | None, axes: Floats, voxel: float, resolution: float
    ) -> Self:
        """Voxelize a surface and the free space of its range image."""
        points = torch.as_tensor(surface.points)
        M = torch.from_numpy(axes).to(points)
        along = points @ M.T
        origin = along.amin(0) - voxel
        index = ((along - origin) / voxel).long()
        shape = (index.amax(0) + 2).tolist()
        flat = (index[:, 0] * shape[1] + index[:, 1]) * shape[2] + index[:, 2]
        # Integers, because a GPU adds numbers in any order.
        sums = torch.zeros(shape[0] * shape[1] * shape[2], 3, dtype=torch.int64, device=points.device)
        sums.index_add_(0, flat, ((torch.as_tensor(surface.normals) @ M.T).square() * _STEPS).long())
        shares = _shares(sums.T.reshape(3, *shape).double()).float()
        free = torch.zeros(shape, device=points.device)
        if image is not None:
            steps = [torch.arange(0.5, n, dtype=points.dtype, device=points.device) for n in shape]
            centres = (origin + voxel * torch.cartesian_prod(*steps)) @ M
            seen = centres - torch.from_numpy(image.viewpoint).to(points)
            known = torch.from_numpy(image.free).to(points)
            end = known.view(-1)[range_cells(seen, known.shape[1])]
            margin = voxel * 3**0.5 / 2 + MARGIN * resolution
            free = (seen.norm(dim=1) < end * (1 - RELATIVE_MARGIN) - margin).float().view(shape)
        return cls.build(voxel, _numpy(origin), shares, free)

    @classmethod
    def build(cls, size: float, origin: Floats, surface: Tensor, free: Tensor) -> Self:
        """Look at the neighbourhood of each voxel."""
        wide = max_pool3d(surface[None], 3, 1, 1)[0]
        return cls(size, origin, surface, wide, free * (wide.amax(0) == 0))

    def coarser(self) -> Self:
        """Join 2³ voxels to one."""
        padding = [side for n in reversed(self.free.shape) for side in (0, n % 2)]
        surface = avg_pool3d(pad(self.surface, padding)[None], 2)[0]
        hidden = max_pool3d(1 - pad(self.free, padding)[None], 2)[0]
        return self.build(2 * self.size, self.origin, _shares(surface), 1 - hidden)

    def cubic(self) -> Self:
        """Add empty voxels behind the last ones, until all sides are equal."""
        side = max(self.free.shape)
        padding = [edge for n in reversed(self.free.shape) for edge in (0, side - n)]
        grids = (pad(grid, padding) for grid in (self.surface, self.wide, self.free))
        return type(self)(self.size, self.origin, *grids)

    def turned_origin(self, rotation: Floats) -> Floats:
        """Return the corner (3,) of the turned grid."""
        order, flipped = axes_of(rotation)
        end = self.origin + self.size * np.array(self.free.shape)
        return np.where(flipped, -end[order], self.origin[order])

    def turned(self, rotation: Floats) -> _Voxels:
        """Turn the grid by one of the 24 rotations (3, 3)."""
        order, flipped = axes_of(rotation)
        axes, mirrored = order.tolist(), np.flatnonzero(flipped).tolist()

        def turn(grid: Tensor) -> Tensor:
            return grid.permute(axes).flip(mirrored)

        surface, wide = (
            torch.stack([turn(grid[axis]) for axis in axes]) for grid in (self.surface, self.wide)
        )
        return _Voxels(self.size, self.turned_origin(rotation), surface, wide, turn(self.free))


def axes_of(rotation: Floats) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return, for each axis of a grid turned by one of the 24 rotations, the axis before; and if it flips."""
    return np.abs(rotation).argmax(axis=1), rotation.sum(axis=1) < 0


def _shares(sums: Tensor) -> Tensor:
    """Divide the channels (3, X, Y, Z) of each voxel by their sum; 0 stays 0."""
    return sums / sums.sum(0).clamp(min=1e-12)


def _spectrum_shape(p: _Voxels, q: _Voxels) -> list[int]:
    fast = _few_lengths if p.free.is_cuda else _fast_length
    return [fast(a + b) for a, b in zip(p.free.shape, q.free.shape, strict=True)]


def _few_lengths(length: int) -> int:
    """Return the next 2ⁿ or 3 · 2ⁿ: a GPU plans the transform of each new shape, which takes milliseconds."""
    power = 1 << max(length - 1, 1).bit_length()
    return 3 * power // 4 if 3 * power // 4 >= length else power


def _fast_length(length: int) -> int:
    """Return the next length with no prime factor above 5, of which a Fourier transform is fast."""
    while True:
        rest = length
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return length
        length += 1


def _scores(turned: Sequence[_Voxels], q: _Voxels) -> Tensor:
    """Score all shifts of a source against q, in voxels modulo the shape of the result (B, X, Y, Z).

    Args:
        turned: the source in B rotations, with grids of one shape.
        q: the target.
    """
    p = turned[0]
    shape = _spectrum_shape(p, q)
    n_p, n_q = p.surface.sum((1, 2, 3)), q.surface.sum((1, 2, 3))
    # Each direction of normals has the same influence.
    weight = (n_p.clamp(min=_MIN_SHARE * n_p.sum()) * n_q.clamp(min=_MIN_SHARE * n_q.sum())).rsqrt()
    violation = _VIOLATION * (n_p.sum() * n_q.sum()).rsqrt()
    coinciding = weight[:, None, None, None] * (q.surface + q.wide) / 2
    of_q = torch.cat([coinciding - violation * q.free, -violation * q.surface.sum(0, keepdim=True)])
    of_p = torch.stack([torch.cat([p.surface, p.free[None]]) for p in turned])
    p_spectra, q_spectra = (torch.fft.rfftn(grids, shape, dim=(-3, -2, -1)) for grids in (of_p, of_q))
    scores: Tensor = torch.fft.irfftn((p_spectra.conj() * q_spectra).sum(1), shape, dim=(1, 2, 3))
    return scores


def compare_rotations(p: _Voxels, q: _Voxels, rotations: Floats) -> Tensor:
    """Score all shifts of p against q, turned by each of the rotations: (K, X, Y, Z).

    All rotations are compared at once, for a GPU. The grid of p is cubic.
    """
    side, device = p.free.shape[0], p.free.device
    orders, flips = (np.stack(column) for column in zip(*map(axes_of, rotations), strict=True))
    strides = np.array([side * side, side, 1])[orders]  # (K, 3) of the axes before
    signs, ends = np.where(flips, -1, 1), np.where(flips, side - 1, 0)
    table = torch.from_numpy(np.concatenate([orders, strides * signs, strides * ends], axis=1)).to(device)
    step = torch.arange(side, device=device)
    x, y, z = table[:, 3:6].unbind(1)
    index = x[:, None, None, None] * step[:, None, None] + y[:, None, None, None] * step[:, None]
    index = index + z[:, None, None, None] * step + table[:, 6:].sum(1)[:, None, None, None]  # (K, X, Y, Z)
    grids = torch.cat([p.surface, p.free[None]]).view(4, -1)
    channel = torch.cat([table[:, :3], table.new_full((len(table), 1), 3)], 1)  # (K, 4)
    of_p = grids[channel[:, :, None], index.flatten(1)[:, None]].view(len(table), 4, side, side, side)

    n_p, n_q = p.surface.sum((1, 2, 3)), q.surface.sum((1, 2, 3))
    weight = n_p.clamp(min=_MIN_SHARE * n_p.sum())[table[:, :3]] * n_q.clamp(min=_MIN_SHARE * n_q.sum())
    violation = _VIOLATION * (n_p.sum() * n_q.sum()).rsqrt()
    of_q = torch.cat([(q.surface + q.wide) / 2, q.free[None], q.surface.sum(0, keepdim=True)])
    shape = _spectrum_shape(p, q)
    p_spectrum, q_spectrum = (torch.fft.rfftn(grids, shape, dim=(-3, -2, -1)) for grids in (of_p, of_q))
    coinciding = weight.rsqrt()[:, :, None, None, None] * q_spectrum[:3] - violation * q_spectrum[3]
    product = (p_spectrum[:, :3].conj() * coinciding).sum(1)
    product = product - violation * p_spectrum[:, 3].conj() * q_spectrum[4]
    scores: Tensor = torch.fft.irfftn(product, shape, dim=(-3, -2, -1))
    return scores


def _maxima(scores: Tensor) -> Floats:
    """Find the largest scores of each of B grids (B, X, Y, Z), in one transfer: (B, 12, K).

    The rows are the three cells, and three values along each axis, with the maximum in the middle.
    """
    B, X, Y, Z = scores.shape
    best = scores.flatten(1).topk(min(_SHIFTS, X * Y * Z)).indices  # (B, K)
    x, y, z = best // (Y * Z), best // Z % Y, best % Z
    grid = torch.arange(B, device=best.device)[:, None]
    step = torch.arange(-1, 2, device=best.device)[:, None, None]
    lines = (
        scores[grid, (x + step) % X, y, z],
        scores[grid, x, (y + step) % Y, z],
        scores[grid, x, y, (z + step) % Z],
    )  # (3, B, K) each
    return _numpy(torch.cat([torch.stack([x, y, z]).double(), *lines])).transpose(1, 0, 2)


def _peaks(maxima: Floats, size: Sequence[int], shape: Sequence[int], limit: int) -> tuple[Floats, Floats]:
    """Choose the best shifts that are no neighbours; return their scores (K,) and the shifts (K, 3).

    Args:
        maxima: (12, N) of one grid of scores, see `_maxima`.
        size: of this grid.
        shape: of the grid of q.
        limit: largest number of shifts.
    """
    cells, lines = maxima[:3].T.astype(np.intp), maxima[3:].reshape(3, 3, -1)  # axis, step, maximum
    left, period = np.ones(len(cells), dtype=bool), np.array(size)
    chosen: list[int] = []
    while len(chosen) < limit and left.any():
        chosen.append(int(left.argmax()))
        apart = np.abs((cells - cells[chosen[-1]] + period // 2) % period - period // 2).max(axis=1)
        left &= apart > _SAME_PEAK
    below, top, above = lines[:, :, chosen].transpose(1, 2, 0)  # (K, 3) each
    # A parabola through the three values locates a maximum between voxels.
    offset = (below - above) / (2 * np.minimum(below - 2 * top + above, -1e-12))
    whole = np.where(cells[chosen] >= shape, cells[chosen] - period, cells[chosen])
    return top[:, 0], whole + np.clip(offset, -0.5, 0.5)


def _numpy(values: Any) -> NDArray[Any]:
    return np.asarray(torch.as_tensor(values).cpu())
