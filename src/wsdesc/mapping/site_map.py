"""`Map`: build, open and use a map of a large scanned place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from wsdesc.cloud.convert import Scan
from wsdesc.cloud.viewpoint import ViewpointOption
from wsdesc.core.file_parts import as_path
from wsdesc.core.progress import ProgressHook
from wsdesc.descriptor.options import DEFAULT_MODEL
from wsdesc.mapping.index import DescriptorIndex
from wsdesc.mapping.inputs import MapScans, collect
from wsdesc.mapping.options import LocateOptions, MapOptions
from wsdesc.mapping.result import Location
from wsdesc.mapping.store import Manifest, read_arrays, read_index
from wsdesc.mapping.stored_map import StoredMap


class Map(StoredMap):
    """A large scanned place in which scans are located.

    A map is a folder with all that it needs: its scans may be moved or deleted. `build` writes a map, `open`
    opens it, and `locate` finds the pose of a scan in it.

    Attributes:
        path: The folder.
        warnings: Sentences about scans that `build` left out.
    """

    def __init__(
        self, path: Path, manifest: Manifest, arrays: dict[str, NDArray[Any]], index: DescriptorIndex
    ) -> None:
        super().__init__(path, manifest, arrays, index)
        self.warnings: list[str] = []

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
            scans: A folder of scans in one frame, the folder of a reconstruction, or a `Reconstruction`. Or
                the file or the points of one large cloud, or several scans in any form that `as_cloud`
                takes. LAS and LAZ files of a large cloud are read part by part.
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
        folder = as_path(out, "out")
        warnings = build(collect(scans, folder, poses), folder, o, progress)
        built = cls.open(folder)
        built.warnings = warnings
        return built

    @classmethod
    def open(cls, path: str | Path) -> Map:
        """Open a map that `build` or `wsdesc map` wrote.

        Raises:
            FileFormatError: It is not a complete map of this version, or a file of it is damaged.
        """
        folder = as_path(path, "the map")
        manifest = Manifest.read(folder)
        return cls(folder, manifest, read_arrays(folder, manifest), read_index(folder, manifest))

    def locate(
        self,
        scan: Scan,
        *,
        keypoints: int | Sequence[int] = (300, 1200),
        viewpoint: ViewpointOption = None,
        neighbours: int = 20,
        places: int = 16,
        refined: int = 6,
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
