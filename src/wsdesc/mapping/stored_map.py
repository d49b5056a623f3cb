"""`StoredMap`: the arrays of a map, and the search for keypoints and points in them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.errors import FileFormatError
from wsdesc.core.geometry import Floats
from wsdesc.mapping.index import DescriptorIndex
from wsdesc.mapping.occupancy import Occupancy
from wsdesc.mapping.pieces import unpack_frames
from wsdesc.mapping.store import Manifest, Source


class MapKeypoints(NamedTuple):
    """Keypoints of a part of a map, in metres of the model from the map's origin."""

    positions: Floats  # (K, 3)
    frames: Floats  # (K, 3, 3)
    descriptors: NDArray[np.float32]  # (K, C) unit vectors


class StoredMap:
    """Points at the working resolution, described keypoints, and their index.

    The arrays are memory-mapped: a part of a file is read when it is used.

    Attributes:
        path: The folder.
    """

    def __init__(
        self, path: Path, manifest: Manifest, arrays: dict[str, NDArray[Any]], index: DescriptorIndex
    ) -> None:
        self.path = path
        self._manifest = manifest
        self._arrays = arrays
        self._index = index

    @property
    def resolution(self) -> float:
        """Working resolution, in the map's unit."""
        return self._manifest.resolution

    @property
    def unit(self) -> float:
        """Length of one metre of the model, in the map's unit."""
        return self.resolution / INDOOR_RESOLUTION

    @property
    def origin(self) -> Floats:
        """Position (3,) near the map, in map coordinates, that points are stored relative to."""
        return np.array(self._manifest.origin)

    @property
    def model(self) -> str:
        """Name or path of the weights."""
        return self._manifest.model

    @property
    def model_digest(self) -> str:
        """SHA-256 of the weights that the map was built with."""
        return self._manifest.model_digest

    @property
    def sources(self) -> tuple[Source, ...]:
        """Files that the map was made of, as they were then."""
        return self._manifest.sources

    @property
    def changes(self) -> list[str]:
        """Files of the map's scans that were changed, moved or deleted since; the map works without them."""
        return [change for source in self.sources if (change := source.change) is not None]

    @property
    def bytes(self) -> int:
        """Size of the map on the disk."""
        folder = self.path / self._manifest.data
        return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return len(self._arrays["cells"])

    @property
    def points(self) -> int:
        """Number of points, at the working resolution."""
        return len(self._arrays["points"])

    @property
    def keypoints(self) -> int:
        """Number of described keypoints."""
        return len(self._arrays["keypoints"])

    def similar_keypoints(
        self, descriptors: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.int64], MapKeypoints]:
        """Find the map keypoints with the most similar descriptors.

        Args:
            descriptors: (K, C).
            count: Number of keypoints for each descriptor.

        Returns:
            Indices (K, count) into the keypoints that are returned with them.
        """
        nearest = self._index.search(descriptors, count)
        rows, index = np.unique(nearest, return_inverse=True)
        return index.reshape(nearest.shape), self._keypoints(rows)

    def keypoints_near(self, centre: Floats, radius: float) -> MapKeypoints:
        """Return the keypoints in a ball, in metres of the model from the map's origin."""
        rows = self._rows(self._arrays["keypoint_starts"], centre - radius, centre + radius)
        keypoints = self._keypoints(rows)
        inside = np.square(keypoints.positions - centre).sum(axis=1) < radius**2
        return MapKeypoints(*(column[inside] for column in keypoints))

    def points_within(self, low: Floats, high: Floats) -> Floats:
        """Return the points (N, 3) in a box, in metres of the model from the map's origin."""
        rows = self._rows(self._arrays["point_starts"], low, high)
        points = self._positions("points", "point_starts", rows)
        return points[((points >= low) & (points <= high)).all(axis=1)]

    def at_surface(self, points: Floats) -> NDArray[np.bool_]:
        """Return whether points (N, 3), in metres of the model from the map's origin, are at its surface."""
        return self._occupancy.at(points * (self.unit / self._manifest.tile))

    @cached_property
    def _occupancy(self) -> Occupancy:
        starts, points = self._arrays["point_starts"], self._arrays["points"]
        tile = self._manifest.tile
        return Occupancy(self._arrays["cells"], lambda row: points[starts[row] : starts[row + 1]] / tile)

    @cached_property
    def _corners(self) -> Floats:
        """Corners (T, 3) of the tiles, in the map's unit from its origin."""
        return np.asarray(self._manifest.tile * self._arrays["cells"].astype(np.float64))

    def _rows(self, starts: NDArray[np.int64], low: Floats, high: Floats) -> NDArray[np.int64]:
        """List the rows of the tiles that a box touches, in metres of the model from the map's origin."""
        low, high = self.unit * low, self.unit * high
        touched = ((self._corners <= high) & (self._corners + self._manifest.tile >= low)).all(axis=1)
        parts = [np.arange(starts[tile], starts[tile + 1]) for tile in np.flatnonzero(touched)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _positions(self, name: str, starts: str, rows: NDArray[np.int64]) -> Floats:
        """Return positions (R, 3) in metres of the model from the map's origin."""
        tile = np.searchsorted(self._arrays[starts], rows, side="right") - 1
        positions = np.asarray((self._arrays[name][rows] + self._corners[tile]) / self.unit)
        if not np.isfinite(positions).all():
            raise FileFormatError(f"{self.path}: {name} of the map are damaged: build the map again")
        return positions

    def _keypoints(self, rows: NDArray[np.int64]) -> MapKeypoints:
        return MapKeypoints(
            self._positions("keypoints", "keypoint_starts", rows),
            unpack_frames(self._arrays["frames"][rows]),
            self._arrays["descriptors"][rows].astype(np.float32) / np.float32(127),
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({str(self.path)!r}: {self.points} points in {self.tiles} tiles, "
            f"{self.keypoints} keypoints, resolution {self.resolution:.3g})"
        )
