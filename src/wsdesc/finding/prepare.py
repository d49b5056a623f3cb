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
from wsdesc.core.geometry import Floats, cell_keys
from wsdesc.core.planes import NEIGHBOURS, local_planes
from wsdesc.finding.distance_grid import DistanceGrid
from wsdesc.finding.pair_features import SPACING
from wsdesc.finding.view import sides

MIN_POINTS = 50  # of the object and of the scene, at the working resolution
_FINEST, _COARSEST = 1 / 50, 1 / 25  # working resolution, in diameters of the object
_MIN_NEIGHBOURS = 8  # points of a local plane of a sparse object
_FINE = 1500  # points that evidence is measured on
_BLOCK = 100_000  # points whose planes are fitted at once
_PLANE = 0.02  # object diameters: a neighbourhood with less root mean square thickness is a plane
_NOISE = 0.3  # curvature above which points form no surface: normals there are accidental
_STEPS = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)  # (27, 3)


@dataclass(frozen=True, eq=False)
class SearchCloud:
    """A downsampled cloud with normals."""

    points: Floats  # (N, 3)
    normals: Floats  # (N, 3) unit vectors of arbitrary sign; zero where the object cannot be
    tree: Any  # cKDTree of the points
    coarse: NDArray[np.int64]  # (M,) indices of points with normals, 1/20 of the object's diameter apart


@dataclass(frozen=True, eq=False)
class SearchObject(SearchCloud):
    """The object."""

    diameter: float  # metres of the model

    @cached_property
    def surface(self) -> Surface:
        """The object, prepared for verification and refinement."""
        return make_surface(self.points)

    @cached_property
    def fine(self) -> NDArray[np.int64]:
        """Indices of the points that evidence is measured on."""
        return np.arange(0, len(self.points), max(1, round(len(self.points) / _FINE)))

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


def prepare_object(cloud: Cleaned, resolution: float) -> SearchObject:
    """Downsample the object and compute its normals.

    Raises:
        InputError: Too few points are left.
    """
    points = _downsample(cloud.points, resolution, "object")
    size = diameter(points)
    tree = cKDTree(points)
    gap = float(np.median(tree.query(points, 2)[0][:, 1]))
    # Sparse points have fewer neighbours within the distance that the scene's normals are computed from.
    neighbours = int(np.clip(NEIGHBOURS * (INDOOR_RESOLUTION / gap) ** 2, _MIN_NEIGHBOURS, NEIGHBOURS))
    normals = local_planes(points, tree, neighbours).normals
    return SearchObject(points, normals, tree, _coarse(points, tree, normals, SPACING * size), size)


def prepare_scene(cloud: Cleaned, resolution: float, size: float) -> SearchCloud:
    """Downsample the scene and compute normals where an object of diameter `size` can be.

    Raises:
        InputError: Too few points are left.
    """
    points = _downsample(cloud.points, resolution, "scene")
    tree = cKDTree(points)
    normals = np.zeros_like(points)
    where = np.flatnonzero(~_in_planes(points, size))
    for start in range(0, len(where), _BLOCK):
        block = where[start : start + _BLOCK]
        normals[block] = _normals_at(points, tree, block)
    return SearchCloud(points, normals, tree, _coarse(points, tree, normals, SPACING * size))


def _downsample(points: NDArray[Any], resolution: float, name: str) -> Floats:
    tensor = torch.from_numpy(np.ascontiguousarray(points, np.float64))
    thinned = voxel_downsample(tensor, resolution).numpy() * (INDOOR_RESOLUTION / resolution)
    if len(thinned) < MIN_POINTS:
        raise InputError(
            f"the {name} has {len(thinned)} points at the resolution {resolution:.3g}, at least {MIN_POINTS} "
            "are needed: check that object and scene are complete and have the same unit"
        )
    return np.asarray(thinned)


def _normals_at(points: Floats, tree: Any, chosen: NDArray[np.intp]) -> Floats:
    near = tree.query(points[chosen], min(NEIGHBOURS, len(points)), workers=torch.get_num_threads())[1]
    offsets = points[near]
    offsets -= offsets.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(np.einsum("nki,nkj->nij", offsets, offsets, optimize=True))
    smooth = 3 * values[:, :1] < _NOISE * values.sum(axis=1, keepdims=True)
    return np.asarray(np.where(smooth, vectors[:, :, 0], 0.0))


def _coarse(points: Floats, tree: Any, normals: Floats, step: float) -> NDArray[np.int64]:
    """Choose points with normals about one step apart: those nearest to the means of cells."""
    valid = np.flatnonzero(normals.any(axis=1))
    if len(valid) == 0:
        return valid
    means = voxel_downsample(torch.from_numpy(points[valid]), step).numpy()
    nearest = np.unique(tree.query(means)[1])
    return np.asarray(nearest[normals[nearest].any(axis=1)], np.int64)


def _in_planes(points: Floats, size: float) -> NDArray[np.bool_]:
    """Find the points (N,) that have only one plane within half of the object's size around them."""
    cells = np.floor((points - points.min(axis=0)) / (size / 2)).astype(np.int64) + 1
    keys, cell = np.unique(cell_keys(cells), return_inverse=True)
    centred = points - points.mean(axis=0)
    products = np.einsum("ni,nj->nij", centred, centred).reshape(-1, 9)
    columns = np.column_stack([np.ones(len(points)), centred, products])  # (N, 13)
    sums = np.stack([np.bincount(cell, column, len(keys)) for column in columns.T], axis=1)  # (cells, 13)
    total = np.zeros_like(sums)
    for offset in _STEPS:
        beside = keys + cell_keys(offset)
        at = np.minimum(np.searchsorted(keys, beside), len(keys) - 1)
        total += np.where((keys[at] == beside)[:, None], sums[at], 0.0)
    mean = total[:, 1:4] / total[:, :1]
    covariance = total[:, 4:].reshape(-1, 3, 3) / total[:, :1, None] - np.einsum("ci,cj->cij", mean, mean)
    thickness = np.sqrt(np.maximum(np.linalg.eigvalsh(covariance)[:, 0], 0.0))
    return np.asarray((thickness < _PLANE * size)[cell])
