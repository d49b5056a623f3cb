"""Surface on the CPU: a grid, one pose at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wsdesc.alignment.surface.base import (
    MIN_FREQUENCY,
    SAMPLE_NEIGHBOURS,
    SHARPNESS,
    Backend,
    choose_samples,
)
from wsdesc.alignment.surface.nearest import NearestGrid
from wsdesc.core.cells import nearest_neighbours
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import inline, kernel
from wsdesc.core.planes import local_planes

_SPACING_SAMPLE = 256  # points whose neighbours are measured
_SQUARINGS = SHARPNESS.bit_length() - 1


@dataclass(frozen=True, eq=False)
class CpuSurface:
    """A scan at the working resolution as NumPy arrays; see `Surface`."""

    points: Floats  # (N, 3)
    normals: Floats  # (N, 3)
    curvature: Floats  # (N,)
    neighbours: NDArray[np.intp]  # (N, 4)
    grid: NearestGrid  # of the points
    sample: NDArray[np.intp]  # (S,)
    coarse: NDArray[np.intp]  # (C,)
    direction_weights: Floats  # (S,)

    @property
    def backend(self) -> Backend:
        return "cpu"

    @classmethod
    def of(cls, points: ArrayLike) -> Self:
        """Prepare points (N, 3), N ≥ 1, finite and downsampled; any unit."""
        points = np.array(points, dtype=np.float64, order="C")  # a copy: the cached results depend on it
        if points.ndim != 2 or points.shape[1] != 3 or len(points) == 0:
            raise InputError(f"a surface needs points of shape (N, 3), N at least 1, not {points.shape}")
        if not np.isfinite(points).all():
            raise InputError("the points of a surface contain NaN or infinity: clean the scan first")
        normals, curvature, near = local_planes(points)
        sample, coarse, reference = choose_samples(points)
        weights = _direction_weights(normals[sample], normals[reference])
        grid = NearestGrid.of(points, _spacing(points, near))
        neighbours = near[:, 1 : 1 + SAMPLE_NEIGHBOURS].copy()
        return cls(points, normals, curvature, neighbours, grid, sample, coarse, weights)

    def scaled(self, factor: float) -> Self:
        """Return the surface with points that are multiplied by a factor; normals and the sample stay."""
        return replace(self, points=factor * self.points, grid=self.grid.scaled(factor))

    @cached_property
    def tree(self) -> Any:
        """A `scipy.spatial.cKDTree` of the points, for queries at any distance."""
        from scipy.spatial import cKDTree

        return cKDTree(self.points)

    def nearest(
        self, points: Floats, max_distance: float, T: Floats | None = None
    ) -> tuple[Floats, NDArray[np.intp]]:
        """Find the nearest point of the surface of each of `points` (M, 3), nearer than `max_distance`.

        Args:
            points: The queries.
            max_distance: In the unit of the surface.
            T: (4, 4) from the frame of the queries to that of the surface; the identity if it is not given.

        Returns:
            distances (M,), infinite where there is none, and indices (M,), N where there is none.
        """
        if max_distance <= self.grid.reach:
            return self.grid.query(points, max_distance, T)
        points = points if T is None else move_points(points, T)
        distance, index = self.tree.query(points, distance_upper_bound=max_distance)
        return distance, index

    @cached_property
    def full_sample(self) -> Sample:
        """The sample."""
        points, normals, curvature = (x[self.sample] for x in (self.points, self.normals, self.curvature))
        return Sample(points, normals, curvature, self.direction_weights)

    @cached_property
    def coarse_sample(self) -> Sample:
        """The coarse sample."""
        points, normals, curvature, weights = (x[self.coarse] for x in self.full_sample)
        return Sample(points, normals, curvature, weights / max(weights.sum(), 1e-300))

    @cached_property
    def sample_neighbours(self) -> NDArray[np.intp]:
        """(S, 4) positions in the sample of the nearest other points of the sample; fewer in tiny scans."""
        points = self.points[self.sample]
        count = min(SAMPLE_NEIGHBOURS, len(points) - 1)
        return nearest_neighbours(points, count + 1)[:, 1:].copy()


class Sample(NamedTuple):
    """Points of a surface that are searched in another one."""

    points: Floats  # (S, 3)
    normals: Floats  # (S, 3)
    curvature: Floats  # (S,)
    weights: Floats  # (S,) direction weights, sum 1


class Contacts(NamedTuple):
    """The sample of one surface in the frame of another, and its nearest points there."""

    points: Floats  # (S, 3) transformed sample
    normals: Floats  # (S, 3)
    partner: NDArray[np.intp]  # (S,) nearest points of the other surface; 0 where there is none
    distance: Floats  # (S,) infinite where there is none within the largest distance
    plane_distance: Floats  # (S,) to the partner's tangent plane; the distance where it has no normal
    cosine: Floats  # (S,) between both normals, 0 … 1; 0 where one is missing


def find_contacts(
    sampled: CpuSurface, searched: CpuSurface, T_searched_sampled: Floats, max_distance: float
) -> Contacts:
    """Transform the sample of one surface and find its nearest points in the other."""
    points, normals = move_sample(sampled.full_sample, T_searched_sampled)
    distance, partner = searched.nearest(points, max_distance)
    near = np.isfinite(distance)
    partner = np.where(near, partner, 0)
    partner_normals = searched.normals[partner]
    plane_distance = np.abs(np.einsum("ni,ni->n", points - searched.points[partner], partner_normals))
    plane_distance = np.where(near & partner_normals.any(axis=1), plane_distance, distance)
    cosine = np.where(near, np.abs(np.einsum("ni,ni->n", normals, partner_normals)), 0.0)
    return Contacts(points, normals, partner, distance, plane_distance, np.minimum(cosine, 1.0))


def move_sample(sample: Sample, T: Floats) -> tuple[Floats, Floats]:
    """Transform the points (S, 3) and normals (S, 3) of a sample."""
    return move_points(sample.points, T), np.einsum("ij,nj->ni", T[:3, :3], sample.normals)


def move_points(points: Floats, T: Floats) -> Floats:
    """Transform points (S, 3)."""
    # einsum, not core.geometry.transform: results must keep their bits on any number of threads.
    return np.asarray(np.einsum("ij,nj->ni", T[:3, :3], points) + T[:3, 3])


@inline
def load_pair(  # type: ignore[no-untyped-def]
    m, points, normals, j, other_points, other_normals, S, scale, from_source, p, q, n_p, n_q
):
    """Load a point of one surface and its partner in the other, in the target's frame.

    Args:
        m: Of the point, in points and normals (S, 3) of a sample.
        j: Of the partner, in points and normals (N, 3) of the other surface.
        S: (4, 4) from the source to the target, with this scale.
        scale: Of S, 1 for a rigid pose.
        from_source: The sample is one of the source.
        p, q: (3,) receive the points of source and target.
        n_p, n_q: (3,) receive their normals.

    Returns:
        The cosine between both normals.
    """
    cosine = 0.0
    for a in range(3):
        p[a], n_p[a] = S[a, 3], 0.0
        for b in range(3):
            p[a] += S[a, b] * (points[m, b] if from_source else other_points[j, b])
            n_p[a] += S[a, b] / scale * (normals[m, b] if from_source else other_normals[j, b])
        q[a] = other_points[j, a] if from_source else points[m, a]
        n_q[a] = other_normals[j, a] if from_source else normals[m, a]
        cosine += n_p[a] * n_q[a]
    return cosine


def _spacing(points: Floats, near: NDArray[np.intp]) -> float:
    """Measure the median distance between neighbours, at some of the points."""
    if len(points) < 2 or near.shape[1] < 2:
        return 1.0
    chosen = slice(None, None, -(-len(points) // _SPACING_SAMPLE))
    return float(np.median(np.linalg.norm(points[chosen] - points[near[chosen, 1]], axis=1)))


def _direction_weights(normals: Floats, reference: Floats) -> Floats:
    """Weight normals by the inverse share of reference normals with the same direction, up to sign."""
    share = np.empty(len(normals))
    _same_direction(normals, *np.ascontiguousarray(reference.T), share)
    weight = normals.any(axis=1) / np.maximum(share, MIN_FREQUENCY)
    return np.asarray(weight / weight.sum() if weight.any() else np.full(len(normals), 1 / len(normals)))


@kernel(
    types="float64[:, ::1], float64[::1], float64[::1], float64[::1], float64[::1]",
    fastmath={"contract", "nsz", "reassoc"},
)
def _same_direction(normals, x, y, z, share):  # type: ignore[no-untyped-def]
    """Write the mean of cos^SHARPNESS between each of the normals and the vectors (x, y, z)."""
    for n in range(len(normals)):
        total = 0.0
        for m in range(len(x)):
            power = normals[n, 0] * x[m] + normals[n, 1] * y[m] + normals[n, 2] * z[m]
            for _ in range(_SQUARINGS):
                power *= power
            total += power
        share[n] = total / len(x)
