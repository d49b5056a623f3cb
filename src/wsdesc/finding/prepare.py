"""Object and scene at a common working resolution that follows the object.

All lengths after preparation are in metres of the model: the working resolution is 0.025.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from wsdesc.alignment.surface import Surface, make_surface
from wsdesc.cloud.clean import Cleaned
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION, spacing
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats
from wsdesc.finding.distance_grid import DistanceGrid
from wsdesc.finding.large_planes import LargePlanes, find_large_planes
from wsdesc.finding.pair_features import SPACING
from wsdesc.finding.surfels import Surfels, ball_normals, make_lookup, make_surfels
from wsdesc.finding.view import sides

MIN_POINTS = 50  # fewest points of the object and of the scene, at the working resolution
_FINEST, _COARSEST = 1 / 50, 1 / 25  # limits of the working resolution, in diameters of the object
_FINE_POINTS = 1500  # points of the object that evidence is measured on
_SURFEL, _CELL, _FINE_CELL = 2.5, 3.0, 1.5  # resolutions: sides of surfels, and of lookup cells
_NORMAL_RADIUS = 4.5  # resolutions: points this close to a point determine its normal
_PARALLEL_COSINE, _PLANE_DISTANCE = 0.95, 0.04  # diameters: points within both limits are on one plane
_MIN_PLANE_SHARE = 0.03  # planes with a smaller share of the object's points have the weight of this share
_MAX_CURVATURE = 0.7  # points with a larger curvature form no surface: their normals are accidental


@dataclass(frozen=True, eq=False)
class SearchScene:
    """A downsampled scene."""

    points: Floats  # (N, 3)
    tree: Any  # cKDTree of the points
    planes: LargePlanes  # larger than the object
    surfels: Surfels  # without normals on such planes
    coarse: NDArray[np.int64]  # (M,) indices of surfels with normals, 1/15 of the object's diameter apart

    def around(self, centres: Floats, radius: float) -> Surfels:
        """Return the points near these centres (K, 3) with normals."""
        near = [np.asarray(rows, np.int64) for rows in self.tree.query_ball_point(centres, radius)]
        rows = np.unique(np.concatenate(near))
        points = self.points[rows]
        if len(points) == 0:
            return Surfels(points, points, make_lookup(points, _FINE_CELL * INDOOR_RESOLUTION))
        normals = ball_normals(points, _NORMAL_RADIUS * INDOOR_RESOLUTION, _MAX_CURVATURE)
        kept = normals.any(axis=1) & ~self.planes.contain(points, normals)
        points, normals = points[kept], normals[kept]
        return Surfels(points, normals, make_lookup(points, _FINE_CELL * INDOOR_RESOLUTION))


@dataclass(frozen=True, eq=False)
class SearchObject:
    """The object, downsampled."""

    points: Floats  # (N, 3)
    normals: Floats  # (N, 3) unit vectors of arbitrary sign; zero where points form no surface
    tree: Any  # cKDTree of the points
    coarse: NDArray[np.int64]  # (M,) indices of points with normals, 1/15 of the diameter apart
    diameter: float  # metres of the model

    @cached_property
    def surface(self) -> Surface:
        """The object, prepared for verification and refinement."""
        return make_surface(self.points)

    @cached_property
    def fine(self) -> NDArray[np.int64]:
        """Indices of the points that evidence is measured on."""
        return np.arange(0, len(self.points), max(1, round(len(self.points) / _FINE_POINTS)))

    @cached_property
    def weights(self) -> Floats:
        """Weight of each point (N,): a plane of the object weighs as the square root of its points.

        Planes are frequent in scenes, so that their contacts are weak evidence of a pose.
        """
        points, normals = self.points[self.coarse], self.normals[self.coarse]
        gaps = np.abs(np.einsum("ni,nmi->nm", normals, points - points[:, None]))
        coplanar = (np.abs(normals @ normals.T) > _PARALLEL_COSINE) & (gaps < _PLANE_DISTANCE * self.diameter)
        weights = 1 / np.sqrt(coplanar.mean(axis=1) + _MIN_PLANE_SHARE)
        return np.asarray(weights[cKDTree(points).query(self.points)[1]])

    @cached_property
    def sides(self) -> NDArray[np.bool_]:
        """Which of the fine points can be seen from directions all around the object, (D, F)."""
        return sides(self.points[self.fine])

    @cached_property
    def distances(self) -> DistanceGrid:
        """Distances to the object, in a grid around it."""
        return DistanceGrid.around(self.points)

    @cached_property
    def centre(self) -> Floats:
        """(3,) middle of the box around the object."""
        return np.asarray((self.points.min(axis=0) + self.points.max(axis=0)) / 2)

    @cached_property
    def radius(self) -> float:
        """Largest distance of a point from the centre."""
        return float(np.linalg.norm(self.points - self.centre, axis=1).max())


def diameter(points: NDArray[Any]) -> float:
    """Measure the distance between two points of (N, 3) that are about the farthest from each other."""
    points = np.asarray(points, np.float64)
    first = points[np.linalg.norm(points - points.mean(axis=0), axis=1).argmax()]
    second = points[np.linalg.norm(points - first, axis=1).argmax()]
    return float(np.linalg.norm(points - second, axis=1).max())


def choose_resolution(size: float, scene: NDArray[Any]) -> float:
    """Choose the working resolution for an object of diameter `size`; three digits.

    It is 1/50 of the diameter. A scene with sparser points has a coarser one, up to 1/25.
    """
    return float(f"{min(max(spacing(scene), _FINEST * size), _COARSEST * size):.3g}")


def prepare_object(cloud: Cleaned, resolution: float, name: str = "the object") -> SearchObject:
    """Downsample the object and compute its normals; `name` is that of the object in errors.

    Raises:
        InputError: Too few points are left.
    """
    points = _downsample(cloud.points, resolution, name)
    size = diameter(points)
    tree = cKDTree(points)
    normals = ball_normals(points, _NORMAL_RADIUS * INDOOR_RESOLUTION, _MAX_CURVATURE)
    return SearchObject(points, normals, tree, _coarse(points, tree, normals, SPACING * size), size)


def prepare_scene(cloud: Cleaned, resolution: float, size: float, name: str = "the scene") -> SearchScene:
    """Downsample the scene and compute normals where an object of diameter `size` can be.

    Raises:
        InputError: Too few points are left.
    """
    points = _downsample(cloud.points, resolution, name)
    means, normals = make_surfels(points, _SURFEL * INDOOR_RESOLUTION, _MAX_CURVATURE)
    planes = find_large_planes(means, size)
    kept = normals.any(axis=1) & ~planes.contain(means, normals)
    means, normals = means[kept], normals[kept]
    surfels = Surfels(means, normals, make_lookup(means, _CELL * INDOOR_RESOLUTION))
    coarse = _coarse(means, cKDTree(means), normals, SPACING * size) if len(means) else np.empty(0, np.int64)
    return SearchScene(points, cKDTree(points), planes, surfels, coarse)


def _downsample(points: NDArray[Any], resolution: float, name: str) -> Floats:
    tensor = torch.from_numpy(np.ascontiguousarray(points, np.float64))
    thinned = voxel_downsample(tensor, resolution).numpy() * (INDOOR_RESOLUTION / resolution)
    if len(thinned) < MIN_POINTS:
        raise InputError(
            f"{name} has too few points at the resolution {resolution:.3g}: {len(thinned)}, at least "
            f"{MIN_POINTS} are needed: check that object and scene are complete and have the same unit"
        )
    return np.asarray(thinned)


def _coarse(points: Floats, tree: Any, normals: Floats, step: float) -> NDArray[np.int64]:
    """Choose points with normals about one step apart: those nearest to the means of cells."""
    valid = np.flatnonzero(normals.any(axis=1))
    if len(valid) == 0:
        return valid
    means = voxel_downsample(torch.from_numpy(points[valid]), step).numpy()
    nearest = np.unique(tree.query(means)[1])
    return np.asarray(nearest[normals[nearest].any(axis=1)], np.int64)
