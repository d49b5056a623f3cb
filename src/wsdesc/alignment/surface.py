"""A cloud made ready to be laid onto others: normals, how bent it is, a tree, and a sample to ask with.

Poses are judged on a sample of either cloud, looked up in the whole of the other. Which points are in the
sample follows from their order alone, so that moving a cloud changes nothing that is said about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from wsdesc.core.errors import InputError

Floats = NDArray[np.float64]

SAMPLE = 3000  # points a cloud is asked with; shares are then good to a percent
NEIGHBOURS = 20  # of a normal: a disc of 2.5 voxels on a downsampled surface
FLATTEST = 1e-6  # squared width over squared length below which neighbours are a line, not a surface
REFERENCE = 400  # points that say how frequent a direction is
SHARPNESS = 16  # power of the cosine that counts as the same direction: half weight at 17 degrees
RARE = 0.02  # a direction that one point in fifty has is rare, one that none has is noise


@dataclass(frozen=True, eq=False)
class Surface:
    """A cloud at the working resolution, prepared once. Build it with `Surface.of(points)`."""

    points: Floats  # (N, 3)
    normals: Floats  # (N, 3), of either sign; zero where the neighbours do not fix one
    bend: Floats  # (N,) 0 on a plane … 1 where neighbours spread alike in all directions
    tree: Any  # cKDTree of the points
    sample: NDArray[np.intp]  # (S,) ascending: who asks when two clouds are compared
    rarity: Floats  # (S,) adding up to 1: weights that give every direction of normals the same say

    @classmethod
    def of(cls, points: ArrayLike) -> Surface:
        """Prepare `points` (N, 3), N ≥ 1 and finite, downsampled already; any unit."""
        points = np.array(points, dtype=np.float64, order="C")  # a copy: what is cached must not change
        if points.ndim != 2 or points.shape[1] != 3 or len(points) == 0:
            raise InputError(f"a surface needs points of shape (N, 3), N at least 1, not {points.shape}")
        if not np.isfinite(points).all():
            raise InputError("points of a surface hold NaN or infinity: clean the cloud first")
        tree = cKDTree(points)
        normals, bend = _local_planes(points, tree)
        order = np.random.default_rng(0).permutation(len(points))
        sample = np.sort(order[:SAMPLE])
        return cls(points, normals, bend, tree, sample, _rarity(normals[sample], normals[order[:REFERENCE]]))

    @cached_property
    def gicp(self) -> tuple[Any, Any]:
        """The cloud and its tree as small_gicp wants them; made when first refined."""
        import small_gicp

        cloud = small_gicp.PointCloud(self.points)
        tree = small_gicp.KdTree(cloud)
        small_gicp.estimate_normals_covariances(cloud, tree, NEIGHBOURS, 1)
        return cloud, tree

    @cached_property
    def gicp_sample(self) -> Any:
        """The sample alone, with covariances of its own, wider neighbourhoods, as suits the first stages."""
        import small_gicp

        cloud = small_gicp.PointCloud(self.points[self.sample])
        small_gicp.estimate_normals_covariances(cloud, small_gicp.KdTree(cloud), NEIGHBOURS, 1)
        return cloud


class Contact(NamedTuple):
    """The sample of one surface, moved onto another, and what is nearest there; frame of the other one."""

    points: Floats  # (S, 3) of the sample, moved
    normals: Floats  # (S, 3)
    partner: NDArray[np.intp]  # (S,) into the other surface; 0 where there is none
    distance: Floats  # (S,) infinite where there is none within the reach
    offset: Floats  # (S,) from the partner's tangent plane, not negative; its distance where it has no normal
    cosine: Floats  # (S,) between both normals, 0 … 1; 0 where either is missing


def contact(asking: Surface, other: Surface, T_other_asking: Floats, reach: float) -> Contact:
    """Lay the sample of `asking` onto `other` and look for the nearest point within `reach`."""
    R, t = T_other_asking[:3, :3], T_other_asking[:3, 3]
    points = np.einsum("ij,nj->ni", R, asking.points[asking.sample]) + t  # (S, 3)
    normals = np.einsum("ij,nj->ni", R, asking.normals[asking.sample])
    distance, partner = other.tree.query(points, distance_upper_bound=reach)
    found = np.isfinite(distance)
    partner = np.where(found, partner, 0)
    across = other.normals[partner]
    offset = np.abs(np.einsum("ni,ni->n", points - other.points[partner], across))
    offset = np.where(found & across.any(axis=1), offset, distance)
    cosine = np.where(found, np.abs(np.einsum("ni,ni->n", normals, across)), 0.0)
    return Contact(points, normals, partner, distance, offset, np.minimum(cosine, 1.0))


def check_pose(T: ArrayLike) -> Floats:
    """A motion (4, 4) as float64; else say what is wrong."""
    T = np.asarray(T, dtype=np.float64)
    if T.shape != (4, 4) or not np.isfinite(T).all():
        raise InputError(f"a pose must be a finite (4, 4) matrix, not one of shape {T.shape}")
    if not np.allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-4) or np.linalg.det(T[:3, :3]) < 0:
        raise InputError("a pose must be a rigid motion: its upper left block is no rotation")
    return T


def check_length(length: float, name: str) -> None:
    if not 0 < length < np.inf:
        raise InputError(f"{name} must be a positive length, not {length}")


def inverse(T_b_a: Floats) -> Floats:
    """T_a_b of a rigid motion, without the rounding of a general inverse."""
    T_a_b = np.eye(4)
    T_a_b[:3, :3] = T_b_a[:3, :3].T
    T_a_b[:3, 3] = -np.einsum("ji,j->i", T_b_a[:3, :3], T_b_a[:3, 3])
    return T_a_b


def _local_planes(points: Floats, tree: Any) -> tuple[Floats, Floats]:
    """Normals (N, 3) and bends (N,) from the covariance of each point's nearest neighbours."""
    count = min(NEIGHBOURS, len(points))
    if count < 3:
        return np.zeros_like(points), np.zeros(len(points))
    near = tree.query(points, count)[1]  # (N, count)
    offsets = points[near]
    offsets -= offsets.mean(axis=1, keepdims=True)
    # Entry by entry: a third of the time of the product of small matrices.
    x, y, z = np.ascontiguousarray(np.moveaxis(offsets, 2, 0))  # (N, count) each
    cov = np.empty((len(points), 3, 3))
    for (i, a), (j, b) in (((0, x), (0, x)), ((1, y), (0, x)), ((1, y), (1, y)),
                           ((2, z), (0, x)), ((2, z), (1, y)), ((2, z), (2, z))):  # fmt: skip
        cov[:, i, j] = np.einsum("nk,nk->n", a, b)  # eigh reads the lower half
    values, vectors = np.linalg.eigh(cov)
    values = np.maximum(values, 0.0)
    total = values.sum(axis=1)
    surface = values[:, 1] > FLATTEST * values[:, 2]
    normals = np.where(surface[:, None], vectors[:, :, 0], 0.0)
    bend = np.where(surface, 3 * values[:, 0] / np.where(total > 0, total, 1.0), 0.0)
    return normals, bend


def _rarity(normals: Floats, reference: Floats) -> Floats:
    """Weights inverse to how many of the reference normals point the same way, signs aside."""
    cosine = np.einsum("ni,mi->nm", normals, reference)
    for _ in range(SHARPNESS.bit_length() - 1):
        cosine *= cosine
    weight = normals.any(axis=1) / np.maximum(cosine.mean(axis=1), RARE)
    return np.asarray(weight / weight.sum() if weight.any() else np.full(len(normals), 1 / len(normals)))
