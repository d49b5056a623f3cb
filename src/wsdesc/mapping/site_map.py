"""`Map`: a large scanned place, and the poses of scans in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.convert import Scan
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.cloud.viewpoint import ViewpointOption
from wsdesc.core.errors import FileFormatError
from wsdesc.core.geometry import Floats
from wsdesc.core.progress import ProgressHook
from wsdesc.descriptor.options import DEFAULT_MODEL
from wsdesc.mapping.index import DescriptorIndex
from wsdesc.mapping.inputs import MapScans, collect
from wsdesc.mapping.occupancy import Occupancy
from wsdesc.mapping.options import LocateOptions, MapOptions
from wsdesc.mapping.pieces import unpack_frames
from wsdesc.mapping.result import Location
from wsdesc.mapping.store import Manifest, Source, read_arrays, read_index


class MapKeypoints(NamedTuple):
    """Keypoints of a part of a map, in metres of the model from the map's origin."""

    positions: Floats  # (K, 3)
    frames: Floats  # (K, 3, 3)
    descriptors: NDArray[np.float32]  # (K, C) unit vectors


class Map:
    """A large scanned place: points at the working resolution, described keypoints, and their index.

    A map is a folder. It holds all it needs: the scans that it was made of may be moved or deleted. Its
    arrays are mapped into memory and read when they are used. `build` makes a map, `open` opens it, `locate`
    finds the pose of a scan in it.

    Attributes:
        path: The folder.
        warnings: Sentences about scans that `build` left out.
    """

    def __init__(
        self, path: Path, manifest: Manifest, arrays: dict[str, NDArray[Any]], index: DescriptorIndex
    ) -> None:
        self.path = path
        self.warnings: list[str] = []
        self._manifest = manifest
        self._arrays = arrays
        self._index = index

    @classmethod
    def build(
        cls,
        scans: MapScans,
        out: str | Path,
        *,
        poses: Sequence[Any] | None = None,
        model: str | Path = DEFAULT_MODEL,
        resolution: float | None = None,
        points_per_keypoint: float = 25.0,
        device: str = "auto",
        seed: int = 0,
        progress: ProgressHook | None = None,
        **unknown: Any,
    ) -> Map:
        """Build a map and write it into a folder. The same call continues a build that was stopped.

        An existing map in the folder is replaced when the new one is complete.

        Args:
            scans: A folder of scans that are in one frame; the folder that `wsdesc reconstruct` wrote, or a
                `Reconstruction`; the file or the points of one large cloud; or several scans in any form that
                `as_cloud` takes. LAS and LAZ files of a large cloud are read part by part.
            out: Folder of the map.
            poses: Poses T_map_scan (4, 4), one for each of several scans. None if they are in one frame.
            model: Weights by name or path.
            resolution: Working resolution, in the unit of the scans. None derives it. Scans of this map are
                located at this resolution.
            points_per_keypoint: Points, at the working resolution, for each keypoint. Fewer give a larger
                map, in which more scans are located.
            device: Device of the computation: "cpu", "cuda", or "auto" (CUDA where available).
            seed: Seed of every random choice.
            progress: Hook that is entered around each step, for progress bars.
            unknown: Not accepted. The error names the options.

        Raises:
            WSDescError: No scan can be read, an option is invalid, or the folder cannot be written.
        """
        from wsdesc.mapping.build import build

        o = MapOptions.read(
            {
                "model": model,
                "resolution": resolution,
                "points_per_keypoint": points_per_keypoint,
                "device": device,
                "seed": seed,
                **unknown,
            }
        )
        warnings = build(collect(scans, Path(out), poses), Path(out), o, progress)
        built = cls.open(out)
        built.warnings = warnings
        return built

    @classmethod
    def open(cls, path: str | Path) -> Map:
        """Open a map that `build` or `wsdesc map` wrote.

        Raises:
            FileFormatError: It is not a complete map of this version, or a file of it is damaged.
        """
        folder = Path(path)
        manifest = Manifest.read(folder)
        return cls(folder, manifest, read_arrays(folder, manifest), read_index(folder, manifest))

    def locate(
        self,
        scan: Scan,
        *,
        keypoints: int | Sequence[int] = (300, 1200),
        viewpoint: ViewpointOption = None,
        neighbours: int = 10,
        places: int = 8,
        refined: int = 4,
        device: str = "auto",
        seed: int = 0,
        progress: ProgressHook | None = None,
        **unknown: Any,
    ) -> Location:
        """Find the pose of a scan in the map, without an initial guess.

        Args:
            scan: Scan in the unit of the map: the path of a file, points (N, 3), or another form that
                `as_cloud` takes.
            keypoints: Keypoints of the scan. Of several numbers, the next one is tried if the one before it
                gives no success.
            viewpoint: Position (x, y, z) of the scanner, in the scan's coordinates. Free space around it
                contradicts wrong poses. None takes it from the file, or detects whether it is the origin;
                "none" uses no free space.
            neighbours: Most similar map descriptors that each keypoint votes for.
            places: Places of the map that are compared with the scan in each round.
            refined: Hypotheses that are refined, those that fit the map best.
            device: Device of the descriptors: "cpu", "cuda", or "auto" (CUDA where available).
            seed: Seed of every random choice.
            progress: Hook that is entered around each step, for progress bars.
            unknown: Not accepted. The error names the options.

        Returns:
            The pose in the coordinates of the map, its confidence, and other plausible poses.

        Raises:
            WSDescError: The scan cannot be read or has too few points, or an option is invalid.
        """
        from wsdesc.mapping.locate import locate

        o = LocateOptions.read(
            {
                "keypoints": keypoints,
                "viewpoint": viewpoint,
                "neighbours": neighbours,
                "places": places,
                "refined": refined,
                "device": device,
                "seed": seed,
                **unknown,
            }
        )
        return locate(self, scan, o, progress)

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
            f"Map({str(self.path)!r}: {self.points} points in {self.tiles} tiles, {self.keypoints} keypoints"
            f", resolution {self.resolution:.3g})"
        )
