"""Normals and local reference frames as SHOT defines them.

The axes of a frame are eigenvectors of the covariance about the keypoint, weighted by r − distance. x belongs
to the largest eigenvalue, z to the smallest. Both point to the side with more neighbours, and y = z × x. A
normal is the eigenvector of the smallest eigenvalue of the unweighted covariance. It points away from the
neighbours' mean, because the viewpoint of a scan is unknown.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.cloud.neighbours import LEAF, NeighbourGrid, walk_leaves
from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import inline, kernel, run_in_chunks

MIN_NEIGHBOURS = 5  # fewest neighbours of a frame
_LINE = 1e-9  # ratio of the middle to the largest eigenvalue below which neighbours form a line


def surface_normals(grid: NeighbourGrid, radius: float) -> Floats:
    """Compute the normals (N, 3) of the grid's points, in its order; zero where they are undetermined."""
    means, count = _means(grid, grid.points, radius, weighted=False)
    centre = means[:, :3]
    values, vectors = np.linalg.eigh(_symmetric(means[:, 3:]) - centre[:, :, None] * centre[:, None, :])
    normals = vectors[:, :, 0]
    normals = np.where(np.einsum("ij,ij->i", normals, centre)[:, None] > 0, -normals, normals)
    determined = (count >= 3) & (values[:, 1] > _LINE * values[:, 2])
    return np.where(determined[:, None], normals, 0.0)


def shot_frames(grid: NeighbourGrid, keypoints: Tensor, radius: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Compute frames (K, 3, 3) of keypoints (K, 3), columns x, y, z, and whether they are valid (K,)."""
    means, count = _means(grid, keypoints, radius, weighted=True)
    vectors = np.linalg.eigh(_symmetric(means[:, 3:])).eigenvectors
    frames = np.ascontiguousarray(vectors[:, :, ::-1])  # (K, 3, 3), the greatest eigenvalue first
    run_in_chunks(_choose_signs, len(frames), *_search(grid, keypoints, radius), frames)
    frames[:, :, 1] = np.cross(frames[:, :, 2], frames[:, :, 0])
    return frames, count >= MIN_NEIGHBOURS


def _means(
    grid: NeighbourGrid, queries: Tensor, radius: float, *, weighted: bool
) -> tuple[Floats, NDArray[np.int64]]:
    """Compute the means (K, 9) of the neighbours' offsets and their six products; and their number (K,)."""
    means, count = np.zeros((len(queries), 9)), np.zeros(len(queries), np.int64)
    run_in_chunks(_sum_moments, len(queries), *_search(grid, queries, radius), weighted, means, count)
    return means, count


def _search(grid: NeighbourGrid, queries: Tensor, radius: float) -> tuple[np.ndarray, ...]:
    return *grid.arrays(), queries.numpy(), grid.points.numpy().dtype.type(radius)


def _symmetric(halves: Floats) -> Floats:
    """Expand upper halves (K, 6) to symmetric matrices (K, 3, 3)."""
    return halves[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(-1, 3, 3)


@kernel
def _sum_moments(
    start, stop, points, centres, radii, branch_centres, branch_radii, queries, radius, weighted, means, count
):
    """Compute weighted means; with `weighted`, the weight is radius − distance, without the query itself."""
    leaves = np.empty(len(radii), np.int32)
    for k in range(start, stop):
        x, y, z = queries[k, 0], queries[k, 1], queries[k, 2]
        total = 0.0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, leaves)):
            for p in range(leaves[i] * LEAF, min((leaves[i] + 1) * LEAF, len(points))):
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
def _choose_signs(
    start, stop, points, centres, radii, branch_centres, branch_radii, keypoints, radius, frames
):
    """Turn x and z to the side with more neighbours; with equal numbers, to the side of their mean."""
    leaves = np.empty(len(radii), np.int32)
    votes = np.empty(3, np.int64)
    sums = np.empty(3)
    for k in range(start, stop):
        x, y, z = keypoints[k, 0], keypoints[k, 1], keypoints[k, 2]
        for axis in range(3):
            votes[axis], sums[axis] = 0, 0.0
        for i in range(walk_leaves(centres, radii, branch_centres, branch_radii, x, y, z, radius, leaves)):
            for p in range(leaves[i] * LEAF, min((leaves[i] + 1) * LEAF, len(points))):
                dx, dy, dz = points[p, 0] - x, points[p, 1] - y, points[p, 2] - z
                if dx * dx + dy * dy + dz * dz > radius * radius:
                    continue
                for axis in range(0, 3, 2):
                    along = along_axis(frames[k], axis, dx, dy, dz)
                    votes[axis] += (along > 0) - (along < 0)
                    sums[axis] += along
        for axis in range(0, 3, 2):
            if votes[axis] < 0 or (votes[axis] == 0 and sums[axis] < 0):
                for m in range(3):
                    frames[k, m, axis] = -frames[k, m, axis]


@inline
def along_axis(frame, axis, dx, dy, dz):
    """Project an offset onto a column of a frame."""
    return frame[0, axis] * dx + frame[1, axis] * dy + frame[2, axis] * dz
