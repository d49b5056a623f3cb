"""Normals and local reference frames, the latter as SHOT defines them.

A frame's axes are the eigenvectors of a covariance about the keypoint in which near neighbours weigh more:
x along the greatest eigenvalue, z along the least. Each of the two points to where most neighbours are, and
y completes them. A normal is the direction in which a point's neighbourhood is thinnest. It points away from
the neighbours' mean: nobody who has a cloud alone knows from where it was seen.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid, walk_leaves
from wsdesc.core.kernels import inline, kernel, run_in_chunks

FEWEST = 5  # neighbours below which there is no frame
_LINE = 1e-9  # the middle eigenvalue over the greatest, below which neighbours are a line, not a surface

Floats = NDArray[np.float64]


def surface_normals(grid: NeighbourGrid, radius: float) -> Floats:
    """Normals (N, 3) of the grid's points, in its order; zero where the neighbours do not fix one."""
    means, count = _means(grid, grid.points, radius, weighted=False)
    middle = means[:, :3]
    values, vectors = np.linalg.eigh(_symmetric(means[:, 3:]) - middle[:, :, None] * middle[:, None, :])
    normals = vectors[:, :, 0]
    normals = np.where(np.einsum("ij,ij->i", normals, middle)[:, None] > 0, -normals, normals)
    fixed = (count >= 3) & (values[:, 1] > _LINE * values[:, 2])
    return np.where(fixed[:, None], normals, 0.0)


def shot_frames(grid: NeighbourGrid, keypoints: Tensor, radius: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Axes (K, 3, 3) of keypoints (K, 3), columns x, y, z; and who has the neighbours for them (K,)."""
    means, count = _means(grid, keypoints, radius, weighted=True)
    vectors = np.linalg.eigh(_symmetric(means[:, 3:])).eigenvectors
    axes = np.ascontiguousarray(vectors[:, :, ::-1])  # (K, 3, 3), the greatest eigenvalue first
    run_in_chunks(_choose_signs, len(axes), *_search(grid, keypoints, radius), axes)
    axes[:, :, 1] = np.cross(axes[:, :, 2], axes[:, :, 0])
    return axes, count >= FEWEST


def _means(
    grid: NeighbourGrid, queries: Tensor, radius: float, *, weighted: bool
) -> tuple[Floats, NDArray[np.int64]]:
    """Means of the neighbours' offsets and of their six products (K, 9), and how many there are (K,)."""
    means, count = np.zeros((len(queries), 9)), np.zeros(len(queries), np.int64)
    run_in_chunks(_add_up, len(queries), *_search(grid, queries, radius), weighted, means, count)
    return means, count


def _search(grid: NeighbourGrid, queries: Tensor, radius: float) -> tuple[np.ndarray, ...]:
    return *grid.arrays(), queries.numpy(), grid.points.numpy().dtype.type(radius)


def _symmetric(halves: Floats) -> Floats:
    """Upper halves (K, 6) → matrices (K, 3, 3)."""
    return halves[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(-1, 3, 3)


@kernel
def _add_up(
    start, stop, points, centres, radii, branch_centres, branch_radii, queries, radius, weighted, means, count
):
    """Weighted: by what the distance lacks to the radius, and without the query itself."""
    found = np.empty(len(radii), np.int32)
    for k in range(start, stop):
        x, y, z = queries[k, 0], queries[k, 1], queries[k, 2]
        total = 0.0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, found)):
            for p in range(found[i] * LEAF, min((found[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                squared = dx * dx + dy * dy + dz * dz
                if squared > radius * radius or (weighted and squared == 0):
                    continue
                a, b, c = np.float64(dx), np.float64(dy), np.float64(dz)
                w = np.float64(radius) - math.sqrt(a * a + b * b + c * c) if weighted else 1.0
                total += w
                count[k] += 1
                means[k, 0] += w * a
                means[k, 1] += w * b
                means[k, 2] += w * c
                means[k, 3] += w * a * a
                means[k, 4] += w * a * b
                means[k, 5] += w * a * c
                means[k, 6] += w * b * b
                means[k, 7] += w * b * c
                means[k, 8] += w * c * c
        for i in range(9):
            means[k, i] = means[k, i] / total if total > 0 else 0.0


@kernel
def _choose_signs(start, stop, points, centres, radii, branch_centres, branch_radii, keypoints, radius, axes):
    """Turn x and z to where most neighbours are; where they are as many on both sides, to their mean."""
    found = np.empty(len(radii), np.int32)
    votes = np.empty(3, np.int64)
    sums = np.empty(3)
    for k in range(start, stop):
        x, y, z = keypoints[k, 0], keypoints[k, 1], keypoints[k, 2]
        for axis in range(3):
            votes[axis], sums[axis] = 0, 0.0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, found)):
            for p in range(found[i] * LEAF, min((found[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                if dx * dx + dy * dy + dz * dz > radius * radius:
                    continue
                for axis in range(0, 3, 2):
                    along = along_axis(axes[k], axis, dx, dy, dz)
                    votes[axis] += (along > 0) - (along < 0)
                    sums[axis] += along
        for axis in range(0, 3, 2):
            if votes[axis] < 0 or (votes[axis] == 0 and sums[axis] < 0):
                for m in range(3):
                    axes[k, m, axis] = -axes[k, m, axis]


@inline
def along_axis(axes, axis, dx, dy, dz):
    """The coordinate of an offset along a column of the axes."""
    return axes[0, axis] * dx + axes[1, axis] * dy + axes[2, axis] * dz
