"""Result of a reconstruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsdesc.core.file_parts import as_path
from wsdesc.core.geometry import Floats
from wsdesc.core.notebook import NotebookDisplay
from wsdesc.core.progress import ProgressHook
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.known import KnownResult
from wsdesc.registration.result import Pose

if TYPE_CHECKING:
    from wsdesc.core.executors import Executor
    from wsdesc.reconstruction.inputs import Scans
    from wsdesc.reconstruction.model_file import ModelState


@dataclass(frozen=True, eq=False, repr=False)
class Reconstruction(NotebookDisplay):
    """Poses of many scans.

    Attributes:
        T_world_scan: (4, 4) pose of each placed scan, by name, in file coordinates.
        components: Names of scans that share a frame, the largest component first. The frame is that of the
            first scan.
        not_placed: Why the other scans have no pose, by name.
        edges: All registered pairs, accepted and rejected.
        resolution: Working resolution, in the scans' unit.
        paths: File of each scan, by name.
        covariances: (6, 6) covariance of each pose, by name. First comes the translation at the scan's
            centre, in the scans' unit, then the rotation in radians. Both are along the axes of the frame.
        known: What was known beforehand, used and rejected.
        in_world: True if the first component is in the frame of known poses or control points.
        duplicates: Scans whose file equals that of another scan, with its name. They are left out.
        state: Everything that the model needs to grow; None if an older version saved it.
        folder: Folder that the model was loaded from or reconstructed in; None if there is none.
    """

    T_world_scan: dict[str, Pose]
    components: list[list[str]]
    not_placed: dict[str, str]
    edges: list[EdgeResult]
    resolution: float
    paths: dict[str, Path]
    covariances: dict[str, Floats] = field(default_factory=dict)
    known: list[KnownResult] = field(default_factory=list)
    in_world: bool = False
    duplicates: dict[str, str] = field(default_factory=dict)
    state: ModelState | None = None
    folder: Path | None = None

    @property
    def complete(self) -> bool:
        """True if all scans have a pose in one frame."""
        return len(self.components) == 1 and not self.not_placed

    @property
    def may_repeat(self) -> list[str]:
        """Scans that were not placed because parts of the place may be equal."""
        doubtful = {name for edge in self.edges if edge.may_repeat for name in (edge.source, edge.target)}
        return [name for name in self.not_placed if name in doubtful]

    def to_dict(self) -> dict[str, Any]:
        """Return poses, components and unplaced scans as plain values for JSON."""
        from wsdesc.reconstruction.export import poses_dict

        return poses_dict(self)

    def save(
        self,
        folder: str | Path,
        *,
        voxel: float | None = None,
        merged: str | None = "ply",
        crs: str | None = None,
        progress: ProgressHook | None = None,
    ) -> list[Path]:
        """Write poses, pose graph, reports, and one merged cloud per component.

        Args:
            folder: Folder for poses.json, poses.tum, poses.g2o, graph.json, report.md, report.html,
                merged.ply and, if there are several components, merged_2.ply and so on.
            voxel: Voxel size of the merged clouds, in the scans' unit. None takes half the resolution.
            merged: Format of the merged clouds: "ply", "laz", "las" or "pcd"; None writes none, as for models
                that do not fit into memory; see `write_tiles`.
            crs: Coordinate system of LAS and LAZ files, as for `write_scans`.
            progress: Hook that is entered around the merge, with the number of scans.

        Returns:
            The files.

        Raises:
            WSDescError: A file cannot be written, or a scan cannot be read again.
        """
        from wsdesc.reconstruction.export import save

        return save(self, as_path(folder, "the folder"), voxel, progress, merged, crs)

    def write_tiles(
        self,
        folder: str | Path,
        *,
        voxel: float | None = None,
        tile: float | None = None,
        extension: str = ".laz",
        crs: str | None = None,
        progress: ProgressHook | None = None,
    ) -> list[Path]:
        """Merge the scans of the first component into square tiles, with memory for one tile only.

        A stopped call continues. If the disk is full, finished parts are kept.

        Args:
            folder: Folder for tile_X_Y.laz and tiles.json.
            voxel: Voxel size, in the scans' unit. None takes half the resolution.
            tile: Side of a tile, in the scans' unit. None takes 1024 voxels.
            extension: Format of the tiles.
            crs: Coordinate system of LAS and LAZ files, as for `write_scans`.
            progress: Hook that is entered around both steps, with the number of scans and of tiles.

        Raises:
            WSDescError: No scan was placed, a scan cannot be read again, or a file cannot be written.
        """
        from wsdesc.cloud.crs import read_crs_option
        from wsdesc.cloud.tiles import PlacedScan, merge_into_tiles
        from wsdesc.reconstruction.scan_export import frame_crs

        scans = self.components[0] if self.components else []
        records = read_crs_option(crs) if crs else (frame_crs(self, scans[0]) if scans else ())
        tiles = merge_into_tiles(
            [PlacedScan(self.paths[name], self.T_world_scan[name]) for name in scans],
            folder,
            voxel=voxel or self.resolution / 2,
            tile=tile,
            extension=extension,
            crs=records,
            progress=progress,
        )
        return tiles.files

    def write_scans(
        self, folder: str | Path, *, crs: str | None = None, progress: ProgressHook | None = None
    ) -> tuple[list[Path], list[str]]:
        """Write every placed scan, moved into the frame of its component.

        Attributes, types and formats are kept. Formats that cannot be written become .ply. Scans of the
        components after the first are in folders frame_2, frame_3, …

        Args:
            folder: Folder for the scans; not that of the original ones.
            crs: Coordinate system for LAS and LAZ files: "EPSG:25832", well-known text, or a .wkt file. None
                keeps that of the scan whose coordinates are those of the frame.
            progress: Hook that is entered around the work, with the number of scans.

        Returns:
            The files, and sentences about what their formats cannot store.

        Raises:
            WSDescError: A scan cannot be read again, a file cannot be written, or would replace a scan.
        """
        from wsdesc.cloud.crs import read_crs_option
        from wsdesc.reconstruction.scan_export import write_scans

        return write_scans(self, as_path(folder, "the folder"), read_crs_option(crs) if crs else (), progress)

    def write_e57(self, path: str | Path, *, progress: ProgressHook | None = None) -> list[str]:
        """Write all scans of the first component into one E57 file, each with its pose.

        Args:
            path: The file.
            progress: Hook that is entered around the work, with the number of scans.

        Returns:
            Sentences about what the format cannot store: it has intensity and colours only.

        Raises:
            MissingExtraError: The extra `e57` is not installed.
            WSDescError: A scan cannot be read again, or the file cannot be written.
        """
        from wsdesc.reconstruction.scan_export import write_e57

        return write_e57(self, as_path(path, "the file"), progress)

    @classmethod
    def load(cls, folder: str | Path) -> Reconstruction:
        """Read the result that `save` wrote into a folder.

        Raises:
            FileFormatError: A file is missing or damaged, or was written by another version.
        """
        from wsdesc.reconstruction.export import load

        return load(as_path(folder, "the folder"))

    def add(
        self,
        scans: Scans,
        *,
        fixed: bool = False,
        jobs: int = 1,
        executor: Executor | None = None,
        progress: ProgressHook | None = None,
    ) -> Reconstruction:
        """Add scans to the model. Only these are described, and only pairs with them are registered.

        Options and working resolution are those of the model. A scan of which half of the confident edges
        contradict its pose is not placed. Write the result with `save`.

        Args:
            scans: Scans in any form that `wsdesc.reconstruct` takes.
            fixed: Keep the poses of scans that are already placed. If a new scan connects two frames, the
                smaller one moves as a whole.
            jobs: Number of processes, as for `wsdesc.reconstruct`.
            executor: Runs the work instead, for example on a Dask cluster.
            progress: Hook that is entered around each step, for progress bars.

        Returns:
            The larger model. Frames keep the pose of their first scan.

        Raises:
            WSDescError: The model has no state, or the file of one of its scans was moved or changed.
        """
        from wsdesc.core.executors import open_executor
        from wsdesc.reconstruction import growth
        from wsdesc.reconstruction.runner import open_runner

        with (
            open_executor(executor, jobs) as opened,
            open_runner(self.folder, opened, progress) as runner,
        ):
            return growth.add(self, scans, runner, fixed=fixed)

    def remove(self, names: str | Sequence[str], *, fixed: bool = False) -> Reconstruction:
        """Remove scans from the model and place the others again. Nothing is registered.

        Args:
            names: Names of scans.
            fixed: Keep the poses of the other scans.

        Raises:
            WSDescError: A name is unknown, fewer than two scans remain, or the model has no state.
        """
        from wsdesc.reconstruction import growth
        from wsdesc.reconstruction.runner import open_runner

        with open_runner(self.folder) as runner:
            return growth.remove(self, [names] if isinstance(names, str) else names, runner, fixed=fixed)

    def merge(
        self,
        other: Reconstruction,
        out: str | Path | None = None,
        *,
        fixed: bool = False,
        jobs: int = 1,
        executor: Executor | None = None,
        progress: ProgressHook | None = None,
    ) -> Reconstruction:
        """Merge this model with another one. Only pairs between the two models are registered.

        Options, working resolution and frame are those of this model. If the other one has other options,
        its scans are described again; its registered pairs are kept.

        Args:
            other: A model of the same or a neighbouring place.
            out: Folder for finished descriptions and pairs; None: that of this model, or a temporary folder.
            fixed: Keep the poses inside the frames of both models.
            jobs: Number of processes, as for `wsdesc.reconstruct`.
            executor: Runs the work instead, for example on a Dask cluster.
            progress: Hook that is entered around each step, for progress bars.

        Raises:
            WSDescError: A model has no state, or the file of one of its scans was moved or changed.
        """
        from wsdesc.core.executors import open_executor
        from wsdesc.reconstruction import growth
        from wsdesc.reconstruction.runner import open_runner

        folder = self.folder if out is None else as_path(out, "out")
        with open_executor(executor, jobs) as opened, open_runner(folder, opened, progress) as runner:
            return growth.merge(self, other, runner, fixed=fixed)

    def __repr__(self) -> str:
        return (
            f"Reconstruction({len(self.T_world_scan)} scans placed, {len(self.not_placed)} not placed, "
            f"{len(self.components)} components)"
        )

    def __str__(self) -> str:
        accepted = sum(edge.accepted for edge in self.edges)
        sizes = ", ".join(f"{len(scans)} scans" for scans in self.components) or "none"
        lines = [
            f"Reconstruction: {len(self.T_world_scan)} scans placed, {len(self.not_placed)} not placed",
            f"  components: {sizes}",
            f"  edges: {accepted} of {len(self.edges)} accepted, resolution {self.resolution:.4g}",
            *(f"  not placed: {name}: {reason}" for name, reason in self.not_placed.items()),
            *(f"  left out: {item}" for item in self.known if not item.accepted),
            *(f"  duplicate: {name} equals {other}" for name, other in self.duplicates.items()),
        ]
        return "\n".join(lines)
