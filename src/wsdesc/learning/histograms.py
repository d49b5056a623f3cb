"""Point feature histograms: a hand-made descriptor for where no trained one exists.

Around a point with normal u, each neighbour in direction d with normal n gives three numbers in -1 … 1:
n·v, u·d and n·w, where v is u × d made a unit vector and w = u × v. Their histograms, 11 bins each, describe
the point; the descriptor of a keypoint adds to its own the mean of its neighbours' histograms.

A normal has no sign without a viewpoint. Within a pair, n is turned to u's side. That leaves one sign a
histogram, and changing it mirrors the second and the third part; a neighbour's histogram is mirrored where
its normal disagrees with the keypoint's, and the keypoint's normal points away from where its neighbours
lie. Flat surfaces, whose sides cannot be told apart, have histograms that mirroring does not change.
"""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid, check_points, walk_leaves
from wsdesc.core.errors import InputError
from wsdesc.core.kernels import inline, kernel, run_in_chunks
from wsdesc.descriptor.lrf.cpu import smallest_eigenvector

__all__ = ["normals", "point_histograms"]

BINS = 11  # an odd number: what is flat falls into the middle one
PARALLEL = 1e-6  # sine of the angle below which normal and direction span no plane


@torch.no_grad()
def point_histograms(
    points: Tensor | NeighbourGrid,
    keypoints: Tensor,
    normal_radius: float = 0.15,
    feature_radius: float = 0.35,
) -> Tensor:
    """Describe `keypoints` (K, 3) by the `points` (N, 3) around them: (K, 33) float32, of unit length.

    The radii, in the unit of the points, are those of a normal's and of a histogram's neighbourhood.
    Where nothing can be said (no neighbours, or no surface: points on a line), the row is zero. Entries are
    square roots of shares, which makes the distance between rows that of Hellinger. Computed on the CPU.
    """
    _check_radius(normal_radius, "normals")
    _check_radius(feature_radius, "histograms")
    check_points(keypoints, "keypoints")
    grid = _on_cpu(points)
    keys = keypoints.detach().to(grid.points).contiguous()
    arrays, radius = grid.arrays(), grid.points.numpy().dtype.type(feature_radius)
    point_normals, key_normals = (_normals(grid, at, normal_radius).numpy() for at in (grid.points, keys))

    # Histograms of the points that some keypoint sees, each once; `row` says where they stand.
    needed = NeighbourGrid.of(keys).count(grid.points, feature_radius) > 0
    row = torch.where(needed, needed.cumsum(0) - 1, -1).numpy()  # (N,)
    own = np.zeros((len(keys), 3 * BINS), np.float32)
    simple = np.zeros((int(needed.sum()), 3 * BINS), np.float32)
    queries, query_normals = grid.points[needed].numpy(), point_normals[needed.numpy()]
    run_in_chunks(_simple, len(keys), *arrays, point_normals, keys.numpy(), key_normals, radius, own)
    run_in_chunks(_simple, len(simple), *arrays, point_normals, queries, query_normals, radius, simple)

    result = torch.zeros(len(keys), 3 * BINS)
    run_in_chunks(
        _gather, len(keys), *arrays, point_normals, row, simple, keys.numpy(), key_normals, radius, own,
        result.numpy(),
    )  # fmt: skip
    return result.to(keypoints.device)


@torch.no_grad()
def normals(points: Tensor | NeighbourGrid, radius: float = 0.15) -> Tensor:
    """Unit normals (N, 3) of the surface through `points` (N, 3), from all points within `radius`.

    Each points away from the mean of its neighbours. It is zero where the neighbours do not fix it.
    """
    _check_radius(radius, "normals")
    grid = _on_cpu(points)
    result = torch.empty_like(grid.points)
    result[grid.order] = _normals(grid, grid.points, radius)
    return result.to(points.points.device if isinstance(points, NeighbourGrid) else points.device)


def _on_cpu(points: Tensor | NeighbourGrid) -> NeighbourGrid:
    if isinstance(points, NeighbourGrid):
        return NeighbourGrid(*(getattr(points, f.name).cpu() for f in fields(points)))
    return NeighbourGrid.of(check_points(points).cpu())


def _check_radius(radius: float, what: str) -> None:
    if not (radius > 0 and math.isfinite(radius)):
        raise InputError(f"the radius of {what} must be a positive length, not {radius}")


def _normals(grid: NeighbourGrid, queries: Tensor, radius: float) -> Tensor:
    result = torch.zeros_like(queries)
    reach = queries.numpy().dtype.type(radius)
    run_in_chunks(_fit_planes, len(queries), *grid.arrays(), queries.numpy(), reach, result.numpy())
    return result


@kernel
def _fit_planes(start, stop, points, centres, radii, branch_centres, branch_radii, queries, radius, result):
    found = np.empty(len(radii), np.int32)
    cov = np.empty((3, 3))
    vec = np.empty((3, 3))
    for k in range(start, stop):
        x, y, z = queries[k, 0], queries[k, 1], queries[k, 2]
        n, sx, sy, sz = 0, 0.0, 0.0, 0.0
        xx, xy, xz, yy, yz, zz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, found)):
            for p in range(found[i] * LEAF, min((found[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                if dx * dx + dy * dy + dz * dz > radius * radius:
                    continue
                a, b, c = np.float64(dx), np.float64(dy), np.float64(dz)
                n += 1
                sx, sy, sz = sx + a, sy + b, sz + c
                xx, xy, xz = xx + a * a, xy + a * b, xz + a * c
                yy, yz, zz = yy + b * b, yz + b * c, zz + c * c
        if n < 3:
            continue
        sx, sy, sz = sx / n, sy / n, sz / n
        cov[0, 0], cov[0, 1], cov[0, 2] = xx / n - sx * sx, xy / n - sx * sy, xz / n - sx * sz
        cov[1, 1], cov[1, 2], cov[2, 2] = yy / n - sy * sy, yz / n - sy * sz, zz / n - sz * sz
        if smallest_eigenvector(cov, vec):
            sign = -1.0 if sx * vec[0, 0] + sy * vec[0, 1] + sz * vec[0, 2] > 0 else 1.0
            for m in range(3):
                result[k, m] = sign * vec[0, m]


@kernel
def _simple(
    start, stop, points, centres, radii, branch_centres, branch_radii, normals, queries, query_normals,
    radius, result,
):  # fmt: skip
    """Histograms of the neighbourhood of each query, each third adding up to 1."""
    found = np.empty(len(radii), np.int32)
    for k in range(start, stop):
        x, y, z = queries[k, 0], queries[k, 1], queries[k, 2]
        ux, uy, uz = query_normals[k, 0], query_normals[k, 1], query_normals[k, 2]
        if ux == 0 and uy == 0 and uz == 0:
            continue
        n = 0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, found)):
            for p in range(found[i] * LEAF, min((found[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                squared = dx * dx + dy * dy + dz * dz
                nx, ny, nz = normals[p, 0], normals[p, 1], normals[p, 2]
                if squared > radius * radius or squared == 0 or (nx == 0 and ny == 0 and nz == 0):
                    continue
                vx, vy, vz = uy * dz - uz * dy, uz * dx - ux * dz, ux * dy - uy * dx
                distance, length = math.sqrt(squared), math.sqrt(vx * vx + vy * vy + vz * vz)
                if length <= PARALLEL * distance:
                    continue
                vx, vy, vz = vx / length, vy / length, vz / length
                wx, wy, wz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
                side = -1 if nx * ux + ny * uy + nz * uz < 0 else 1
                result[k, _bin(side * (nx * vx + ny * vy + nz * vz))] += 1
                result[k, BINS + _bin((dx * ux + dy * uy + dz * uz) / distance)] += 1
                result[k, 2 * BINS + _bin(side * (nx * wx + ny * wy + nz * wz))] += 1
                n += 1
        if n > 0:
            for b in range(3 * BINS):
                result[k, b] /= n


@inline
def _bin(value):
    """Which of the bins over -1 … 1 it falls into."""
    return min(max(int((value + 1) / 2 * BINS), 0), BINS - 1)


@kernel
def _gather(
    start, stop, points, centres, radii, branch_centres, branch_radii, normals, row, simple, keypoints,
    key_normals, radius, own, result,
):  # fmt: skip
    """A keypoint's own histogram and the mean of its neighbours', brought to one sign and normalised."""
    found = np.empty(len(radii), np.int32)
    total = np.empty(3 * BINS)
    for k in range(start, stop):
        x, y, z = keypoints[k, 0], keypoints[k, 1], keypoints[k, 2]
        ux, uy, uz = key_normals[k, 0], key_normals[k, 1], key_normals[k, 2]
        if ux == 0 and uy == 0 and uz == 0:
            continue
        n, height = 0, 0.0
        for b in range(3 * BINS):
            total[b] = 0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, found)):
            for p in range(found[i] * LEAF, min((found[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                squared = dx * dx + dy * dy + dz * dz
                if squared > radius * radius or squared == 0:
                    continue
                height += dx * ux + dy * uy + dz * uz
                n += 1
                mirrored = normals[p, 0] * ux + normals[p, 1] * uy + normals[p, 2] * uz < 0
                _add(total, simple[row[p]], mirrored)
        if n == 0:
            continue
        whole = 0.0
        for b in range(3 * BINS):
            total[b] = total[b] / n + own[k, b]
            whole += total[b]
        if whole > 0:
            for b in range(3 * BINS):
                at = _mirror(b) if height > 0 else b
                result[k, b] = math.sqrt(total[at] / whole)


@inline
def _add(total, histogram, mirrored):
    for b in range(3 * BINS):
        total[b] += histogram[_mirror(b) if mirrored else b]


@inline
def _mirror(b):
    """Where bin b goes when normals change their sign: the first part is the same, the others turn round."""
    if b < BINS:
        return b
    if b < 2 * BINS:
        return 3 * BINS - 1 - b
    return 5 * BINS - 1 - b
