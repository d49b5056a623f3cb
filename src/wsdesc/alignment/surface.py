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
from wsdesc.core.geometry import NEIGHBOURS, Floats, local_planes

SAMPLE = 3000  # points a cloud is asked with; shares are then good to a percent
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
        normals, bend = local_planes(points, tree, NEIGHBOURS)
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


def check_length(length: float, name: str) -> None:
    if not 0 < length < np.inf:
        raise InputError(f"{name} must be a positive length, not {length}")


def _rarity(normals: Floats, reference: Floats) -> Floats:
    """Weights inverse to how many of the reference normals point the same way, signs aside."""
    cosine = np.einsum("ni,mi->nm", normals, reference)
    for _ in range(SHARPNESS.bit_length() - 1):
        cosine *= cosine
    weight = normals.any(axis=1) / np.maximum(cosine.mean(axis=1), RARE)
    return np.asarray(weight / weight.sum() if weight.any() else np.full(len(normals), 1 / len(normals)))
