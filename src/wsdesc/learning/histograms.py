"""Point feature histograms: a descriptor that needs no training.

Around a point with normal u, each neighbour in direction d with normal n gives three numbers in −1 … 1: n·v,
u·d and n·w. Here v is the unit vector along u × d, and w = u × v. Their histograms, 11 bins each, describe
the point. The descriptor of a keypoint is its own histogram plus the mean of its neighbours' histograms.

Normals have no sign without a viewpoint. Within a pair, n is flipped to the side of u. One sign per histogram
remains; flipping it mirrors the second and the third part. The keypoint's normal points away from its
neighbours, and a neighbour's histogram is mirrored if its normal disagrees with the keypoint's. Histograms
of flat surfaces do not change by mirroring.
"""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid, check_points, walk_leaves
from wsdesc.core.geometry import check_length
from wsdesc.core.kernels import inline, kernel, run_in_chunks
from wsdesc.descriptor.lrf.cpu import smallest_eigenvector

BINS = 11  # odd, so that flat surfaces fill the middle bin
PARALLEL = 1e-6  # smallest sine of the angle between normal and direction


@torch.no_grad()
def point_histograms(
    points: Tensor | NeighbourGrid,
    keypoints: Tensor,
    normal_radius: float = 0.15,
    feature_radius: float = 0.35,
) -> Tensor:
    """Compute point feature histograms, on the CPU.

    Args:
        points: Points (N, 3) or their neighbour grid.
        keypoints: (K, 3).
        normal_radius: Radius of the neighbourhood of a normal, in the unit of the points.
        feature_radius: Radius of the neighbourhood of a histogram.

    Returns:
        (K, 33) float32 of unit length: square roots of shares, so that distances are Hellinger distances.
        Rows of keypoints without neighbours or without a surface (points on a line) are zero.
    """
    check_length(normal_radius, "normal_radius")
    check_length(feature_radius, "feature_radius")
    check_points(keypoints, "keypoints")
    grid = _on_cpu(points)
    keys = keypoints.detach().to(grid.points).contiguous()
    arrays, radius = grid.arrays(), grid.points.numpy().dtype.type(feature_radius)
    point_normals, key_normals = (_normals(grid, at, normal_radius).numpy() for at in (grid.points, keys))

    # Histograms of all points near a keypoint, each once; `row` maps points to them.
    needed = NeighbourGrid.of(keys).count(grid.points, feature_radius) > 0
    row = torch.where(needed, needed.cumsum(0) - 1, -1).numpy()  # (N,)
    own = np.zeros((len(keys), 3 * BINS), np.float32)
    simple = np.zeros((int(needed.sum()), 3 * BINS), np.float32)
    queries, query_normals = grid.points[needed].numpy(), point_normals[needed.numpy()]
    run_in_chunks(_simple, len(keys), *arrays, point_normals, keys.numpy(), key_normals, radius, own)
    run_in_chunks(_simple, len(simple), *arrays, point_normals, queries, query_normals, radius, simple)

    result = torch.zeros(len(keys), 3 * BINS)
    run_in_chunks(
        _combine, len(keys), *arrays, point_normals, row, simple, keys.numpy(), key_normals, radius, own,
        result.numpy(),
    )  # fmt: skip
    return result.to(keypoints.device)


def _on_cpu(points: Tensor | NeighbourGrid) -> NeighbourGrid:
    if isinstance(points, NeighbourGrid):
        return NeighbourGrid(*(getattr(points, f.name).cpu() for f in fields(points)))
    return NeighbourGrid.of(check_points(points).cpu())


def _normals(grid: NeighbourGrid, queries: Tensor, radius: float) -> Tensor:
    """Compute unit normals (K, 3) that point away from the mean of the neighbours; zero without a surface."""
    result = torch.zeros_like(queries)
    typed_radius = queries.numpy().dtype.type(radius)
    run_in_chunks(_fit_planes, len(queries), *grid.arrays(), queries.numpy(), typed_radius, result.numpy())
    return result


@kernel
def _fit_planes(start, stop, points, centres, radii, branch_centres, branch_radii, queries, radius, result):
    leaves = np.empty(len(radii), np.int32)
    cov = np.empty((3, 3))
    vec = np.empty((3, 3))
    for k in range(start, stop):
        x, y, z = queries[k, 0], queries[k, 1], queries[k, 2]
        n, sx, sy, sz = 0, 0.0, 0.0, 0.0
        xx, xy, xz, yy, yz, zz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, leaves)):
            for p in range(leaves[i] * LEAF, min((leaves[i] + 1) * LEAF, len(points))):
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
    """Compute the histogram of each query; each third sums to 1."""
    leaves = np.empty(len(radii), np.int32)
    for k in range(start, stop):
        x, y, z = queries[k, 0], queries[k, 1], queries[k, 2]
        ux, uy, uz = query_normals[k, 0], query_normals[k, 1], query_normals[k, 2]
        if ux == 0 and uy == 0 and uz == 0:
            continue
        n = 0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, leaves)):
            for p in range(leaves[i] * LEAF, min((leaves[i] + 1) * LEAF, len(points))):
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
    """Return the bin of a value in −1 … 1."""
    return min(max(int((value + 1) / 2 * BINS), 0), BINS - 1)


@kernel
def _combine(
    start, stop, points, centres, radii, branch_centres, branch_radii, normals, row, simple, keypoints,
    key_normals, radius, own, result,
):  # fmt: skip
    """Add the mean of the neighbours' histograms to each keypoint's own, with one sign, and normalize."""
    leaves = np.empty(len(radii), np.int32)
    total = np.empty(3 * BINS)
    for k in range(start, stop):
        x, y, z = keypoints[k, 0], keypoints[k, 1], keypoints[k, 2]
        ux, uy, uz = key_normals[k, 0], key_normals[k, 1], key_normals[k, 2]
        if ux == 0 and uy == 0 and uz == 0:
            continue
        n, height = 0, 0.0
        for b in range(3 * BINS):
            total[b] = 0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, leaves)):
            for p in range(leaves[i] * LEAF, min((leaves[i] + 1) * LEAF, len(points))):
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
    """Return the bin of b after a flip of the normals: the first part keeps its bins, the others reverse."""
    if b < BINS:
        return b
    if b < 2 * BINS:
        return 3 * BINS - 1 - b
    return 5 * BINS - 1 - b
