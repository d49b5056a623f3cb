"""Write the scans of a reconstruction: each one moved into the common frame, or all in an E57 file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.convert import as_cloud
from wsdesc.cloud.files import read_cloud
from wsdesc.cloud.formats import WRITABLE, module_for
from wsdesc.cloud.formats.attributes import narrow_colors
from wsdesc.cloud.storage import Record, Storage
from wsdesc.cloud.write import write_cloud
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import InputError, WSDescError
from wsdesc.core.file_parts import split_part
from wsdesc.core.folders import make_folder
from wsdesc.core.geometry import transform
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.reconstruction.result import Reconstruction


def write_scans(
    result: Reconstruction,
    folder: Path,
    crs: tuple[Record, ...] = (),
    progress: ProgressHook | None = None,
) -> tuple[list[Path], list[str]]:
    """Write every placed scan in the frame of its component; see `Reconstruction.write_scans`."""
    targets = scan_files(result, folder)
    sources = {split_part(path)[0].resolve() for path in result.paths.values()}
    for path in targets.values():
        if path.resolve() in sources:
            raise InputError(f"{path}: would replace a scan; choose another folder")
    make_folder(folder)
    notes: list[str] = []
    with (progress or no_progress)("write scans", len(targets)) as advance:
        for name, path in targets.items():
            make_folder(path.parent)
            cloud = read_scan(result.paths[name])
            moved = cloud.transformed(result.T_world_scan[name])
            storage = replace(cloud.storage or Storage(), crs=crs or frame_crs(result, name))
            notes += write_cloud(path, replace(moved, storage=storage))
            advance(1)
    return list(targets.values()), notes


def scan_files(result: Reconstruction, folder: Path) -> dict[str, Path]:
    """Name the file of each moved scan: as the scan's own, unless its format cannot be written.

    The components after the first have folders of their own.
    """
    files: dict[str, Path] = {}
    used: set[str] = set()
    for number, scans in enumerate(result.components):
        below = folder if number == 0 else folder / f"frame_{number + 1}"
        for name in scans:
            file, station = split_part(result.paths[name])
            part = "" if station is None else f"_{station}"
            extension = file.suffix if file.suffix.lower() in WRITABLE else ".ply"
            stem = file.stem if file.name == Path(name).name or station else _plain(name)
            unique, count = stem + part, 2
            while str(below / unique).lower() in used:
                unique, count = f"{stem}{part}_{count}", count + 1
            used.add(str(below / unique).lower())
            files[name] = below / f"{unique}{extension}"
    return files


def write_e57(result: Reconstruction, path: Path, progress: ProgressHook | None = None) -> list[str]:
    """Write the scans of the first component into one E57 file; see `Reconstruction.write_e57`."""
    if path.suffix.lower() != ".e57":
        raise InputError(f"{path}: the name must end in .e57")
    scans = result.components[0] if result.components else []
    if not scans:
        raise InputError("no scan was placed: there is nothing to write")
    if path.resolve() in {split_part(file)[0].resolve() for file in result.paths.values()}:
        raise InputError(f"{path}: would replace a scan; choose another name")
    dropped: set[str] = set()
    with (
        (progress or no_progress)("write e57", len(scans)) as advance,
        atomic_write(path) as temporary,
        module_for(".e57").StationWriter(temporary) as writer,
    ):
        for name in scans:
            cloud = read_scan(result.paths[name])
            columns = _e57_columns(cloud)
            dropped |= {attribute for attribute in cloud.attributes if attribute not in columns}
            T = result.T_world_scan[name]
            centre = cloud.viewpoint if cloud.viewpoint is not None else cloud.points.mean(axis=0)
            quaternion = Rotation.from_matrix(T[:3, :3]).as_quat()[[3, 0, 1, 2]]
            translation = transform(centre[None], T)[0]
            writer.write(name, cloud.points - centre, columns, quaternion, translation)
            advance(1)
    return [f"{path}: e57 files cannot store {', '.join(sorted(dropped))}."] if dropped else []


def _e57_columns(cloud: Cloud) -> Mapping[str, np.ndarray]:
    attributes = narrow_colors(cloud.attributes)
    colors = [name for name in ("red", "green", "blue") if name in attributes]
    kept = ["intensity"] if "intensity" in attributes else []
    if len(colors) == 3 and all(attributes[name].dtype == np.uint8 for name in colors):
        kept += colors
    return {name: attributes[name] for name in kept}


def read_scan(path: Path, *, sample: bool = False) -> Cloud:
    """Read a scan with its attributes; the error says how scans that were arrays are kept.

    Args:
        path: The file.
        sample: Whether the surface of a mesh is sampled, as for registration; else its vertices are read.
    """
    try:
        return as_cloud(path) if sample else read_cloud(path, nonfinite="drop")
    except WSDescError as error:
        hint = "scans given as arrays are kept if `out` is given to reconstruct"
        raise InputError(f"{error}; {hint}") from error


def frame_crs(result: Reconstruction, name: str) -> tuple[Record, ...]:
    """Return the coordinate system of the frame that a scan was placed in, if its files name one.

    It is that of the scan whose coordinates are those of the frame. In the world, it is that of the first
    scan that names one.
    """
    scans = next(scans for scans in result.components if name in scans)
    in_world = result.in_world and scans is result.components[0]
    for scan in scans if in_world else scans[:1]:
        crs = _crs_of(result.paths[scan])
        if crs:
            return crs
    return ()


def _crs_of(path: Path) -> tuple[Record, ...]:
    if path.suffix.lower() not in (".las", ".laz"):
        return ()
    from wsdesc.cloud.formats.las_header import read_crs

    try:
        return read_crs(path)
    except (OSError, ValueError):
        return ()


def _plain(name: str) -> str:
    """Return a name for a file from the name of a scan."""
    return re.sub(r"[^\w.-]+", "_", Path(name).stem if Path(name).suffix else name).strip("_") or "scan"
