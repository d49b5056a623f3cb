"""Scans that a map is made of, with their poses; and the working resolution that suits them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wsdesc.cloud.chunks import read_chunks
from wsdesc.cloud.convert import Scan, as_cloud
from wsdesc.cloud.scan_files import find_scan_files
from wsdesc.cloud.units import Scale, measure
from wsdesc.core.errors import InputError, WSDescError
from wsdesc.core.file_parts import as_list, expand_home, split_part
from wsdesc.core.geometry import Floats, check_rigid
from wsdesc.mapping.store import MANIFEST, Source
from wsdesc.reconstruction.options import POSES
from wsdesc.reconstruction.result import Reconstruction

MapScans = str | Path | Reconstruction | Sequence[Scan] | Any
_PATH = (str, os.PathLike)

_MEASURED_PARTS = 12  # scans, or windows of a cloud, that the resolution is derived from
_SAMPLE_POINTS = 1_000_000  # points of a large cloud that windows are cut from
_MIN_WINDOW_POINTS = 200


@dataclass(frozen=True, eq=False)
class MapScan:
    """A scan of a map.

    Attributes:
        scan: Path of its file, or the scan in memory.
        T_map_scan: (4, 4) its pose; None if its coordinates are those of the map.
        source: The file, as it is now.
    """

    scan: Any
    T_map_scan: Floats | None
    source: Source

    @property
    def key(self) -> list[Any]:
        """Plain values that change if the scan or its pose changes."""
        pose = None if self.T_map_scan is None else self.T_map_scan.tolist()
        content = [self.source.file, self.source.bytes, self.source.modified]
        if self.source.bytes is None:
            points = np.ascontiguousarray(as_cloud(self.scan).points)
            content.append(hashlib.sha256(points.tobytes()).hexdigest())
        return [content, pose]

    def chunks(self) -> Iterator[Floats]:
        """Yield the points (N, 3) in map coordinates, part by part if the file can be read so."""
        if isinstance(self.scan, _PATH):
            yield from read_chunks(expand_home(self.scan))
        else:
            yield as_cloud(self.scan).points


@dataclass(frozen=True, eq=False)
class MapInputs:
    """The scans of a map.

    Attributes:
        scans: The scans.
        cut: True for one large cloud, which is cut into tiles. Otherwise each scan is described by itself:
            its descriptors then show the view from one position.
        warnings: Sentences about scans that were left out.
    """

    scans: list[MapScan]
    cut: bool
    warnings: list[str]


def collect(scans: MapScans, out: Path, poses: Sequence[Any] | None = None) -> MapInputs:
    """Find the scans of a map and their poses.

    Args:
        scans: A folder of scans in one frame, the folder of a reconstruction, or a `Reconstruction`. Or the
            file or the points of one large cloud, or several scans in any form.
        out: Folder of the map. Files in it, and in other maps, are no scans.
        poses: Poses T_map_scan (4, 4) of the scans; None if they are in one frame, or come with poses.

    Raises:
        InputError: There are no scans, or the poses do not fit them.
        FileFormatError: A file does not exist.
    """
    if isinstance(scans, Reconstruction):
        return _reconstructed(scans, None, poses)
    if isinstance(scans, _PATH):
        scans = expand_home(scans)
    if isinstance(scans, Path) and scans.is_dir():
        folder = scans
        if (folder / POSES).exists():
            return _reconstructed(Reconstruction.load(folder), folder, poses)
        members: list[Any] = [file for file in find_scan_files(folder) if not _is_in_map(file, out)]
        if not members:
            own = folder.resolve() == out.resolve()
            what = "the map needs a folder of its own" if own else "no scans in this folder, only maps"
            raise InputError(f"{folder}: {what}; choose another folder")
    elif isinstance(scans, Path):
        members = list(find_scan_files([scans]))
    elif isinstance(scans, list | tuple) and not _is_points(scans):
        members = list(scans)
    else:
        members = [scans]
    if not members:
        raise InputError("a map needs at least one scan, found 0")
    if poses is not None and len(as_list(poses, "poses")) != len(members):
        raise InputError(f"{len(poses)} poses were given for {len(members)} scans: give one for each")
    given = [None] * len(members) if poses is None else [check_rigid(T, "poses") for T in poses]
    inputs = [
        MapScan(scan, T, _source(scan, number))
        for number, (scan, T) in enumerate(zip(members, given, strict=True))
    ]
    return MapInputs(inputs, cut=len(inputs) == 1 and poses is None, warnings=[])


def _is_in_map(file: Path, out: Path) -> bool:
    folders = file.resolve().parents
    return out.resolve() in folders or any((folder / MANIFEST).exists() for folder in folders)


def _is_points(values: Sequence[Any]) -> bool:
    """Return whether a sequence is rows of numbers and not several scans."""
    return bool(values) and isinstance(values[0], list | tuple) and all(map(np.isscalar, values[0]))


def _source(scan: Any, number: int) -> Source:
    if not isinstance(scan, _PATH):
        return Source(f"scan {number}")
    path = expand_home(scan)
    find_scan_files([path])
    return Source.of(split_part(path)[0])


def _reconstructed(result: Reconstruction, folder: Path | None, poses: Sequence[Any] | None) -> MapInputs:
    """Take the scans of the first frame of a reconstruction."""
    if poses is not None:
        raise InputError("poses: a reconstruction has poses of its own")
    if not result.components:
        raise InputError("the reconstruction has no poses: no scan of it was placed")
    scans: list[MapScan] = []
    for name in result.components[0]:
        path = _find(result.paths[name], folder)
        scans.append(MapScan(path, result.T_world_scan[name], _source(path, len(scans))))
    left_out = len(result.paths) - len(scans)
    text = f"{left_out} of {len(result.paths)} scans of the reconstruction are not in the map: they have no "
    return MapInputs(scans, False, [text + "pose in its first frame."] if left_out else [])


def _find(path: Path, folder: Path | None) -> Path:
    """Return the path of a scan; after a move, it may be in the reconstruction's folder or next to it."""
    file, _ = split_part(path)
    beside = [] if folder is None else [folder / file, folder / file.name, folder.parent / file.name]
    for candidate in [file, *beside]:
        if candidate.is_file():
            return candidate.with_name(path.name)
    raise InputError(
        f"{path}: this scan of the reconstruction was moved or deleted: put it back, or into the folder "
        f"{folder or file.parent}"
    )


def derive_resolution(inputs: MapInputs) -> float:
    """Derive the working resolution from some of the scans, or from windows of the cloud.

    A window of a cloud is as wide as two heights of the cloud: about as much as one scan shows.
    """
    if not inputs.cut:
        return _resolution_of_scans(inputs.scans)
    points = _sample(inputs.scans[0])
    points = points - points.mean(axis=0)
    _, axes = np.linalg.eigh(np.einsum("ni,nj->ij", points, points))  # the last one is the longest
    low, high = np.quantile(points @ axes, (0.01, 0.99), axis=0)
    radius = float(np.min(np.where(high > low, high - low, np.inf), initial=np.inf))
    rng = np.random.default_rng(0)
    windows: list[Scale] = []
    for centre in points[rng.permutation(len(points))[: 4 * _MEASURED_PARTS]]:
        inside = points[np.square(points - centre).sum(axis=1) < radius**2]
        if len(inside) >= _MIN_WINDOW_POINTS and len(windows) < _MEASURED_PARTS:
            windows.append(measure(inside))
    windows = windows or [measure(points)]
    return Scale.combine([w.spacing for w in windows], [w.extent for w in windows]).resolution


def _resolution_of_scans(scans: Sequence[MapScan]) -> float:
    """Derive the resolution from some scans, evenly spaced in the list; skip those that cannot be read."""
    step = -(-len(scans) // _MEASURED_PARTS)
    order = sorted(range(len(scans)), key=lambda k: (k % step, k))
    measured: list[Scale] = []
    problem: WSDescError | None = None
    for k in order:
        try:
            measured.append(measure(as_cloud(scans[k].scan).points))
        except WSDescError as error:
            problem = problem or error
        if len(measured) == _MEASURED_PARTS:
            break
    if not measured:
        raise InputError(f"none of the {len(scans)} scans can be used: {problem}")
    return Scale.combine([m.spacing for m in measured], [m.extent for m in measured]).resolution


def _sample(scan: MapScan) -> Floats:
    """Take about a million points of a cloud, in windows all over the file, without keeping the others."""
    parts, count = [], 0
    for chunk in scan.chunks():
        parts.append(chunk)
        count += len(chunk)
        if count > 2 * _SAMPLE_POINTS:  # halve all parts, so that each keeps the same share
            parts = [np.concatenate(parts)[::2]]
            count = len(parts[0])
    return np.concatenate(parts)
