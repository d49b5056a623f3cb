"""Build a map: describe its scans or tiles, merge their points, and index their descriptors.

Every step leaves files in the map's folder. A build that was stopped continues after the last of them, if
scans and options are the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.atomic import atomic_write
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import FileFormatError, InputError, WSDescError
from wsdesc.core.folders import locked
from wsdesc.core.geometry import CELL_STEPS, Floats
from wsdesc.core.journal import content_key
from wsdesc.core.progress import ProgressHook, StepTimer
from wsdesc.descriptor import pretrained
from wsdesc.descriptor.describe import load_model
from wsdesc.descriptor.preparation import MIN_POINTS
from wsdesc.mapping.index import DescriptorIndex, load_library
from wsdesc.mapping.inputs import MapInputs, MapScan, derive_resolution
from wsdesc.mapping.options import MapOptions
from wsdesc.mapping.pieces import Describer, Piece
from wsdesc.mapping.store import (
    ARRAYS,
    DATA_PREFIX,
    INDEX,
    MANIFEST,
    VERSION,
    Manifest,
    data_folder,
    digest_of,
)
from wsdesc.mapping.tiles import TileGrid

_PIECES = "pieces"  # folder of finished pieces, removed at the end
_TILE_ARRAYS = ("cells", "point_starts", "points")
_MARGIN = 48  # working resolutions around a tile: half the diagonal of a support


def build(inputs: MapInputs, out: Path, o: MapOptions, progress: ProgressHook | None = None) -> list[str]:
    """Build a map in the folder `out`; see `Map.build`.

    Returns:
        Warnings about scans that are not in the map.
    """
    load_library()
    _check_folder(out)
    warnings = list(inputs.warnings)
    timer = StepTimer(progress)
    with timer("resolution"):  # first, so that unreadable scans leave no folder
        resolution = o.resolution or derive_resolution(inputs)
    with locked(out):
        weights = digest_of(pretrained.find(o.model))
        options = o.model_dump(mode="json", exclude={"device"})
        keys = [scan.key for scan in inputs.scans]
        data = data_folder(out, content_key(VERSION, options, resolution, weights, keys, inputs.cut))
        if _is_complete(out, data):
            return warnings
        (data / _PIECES).mkdir(parents=True, exist_ok=True)
        network, name = load_model(o.model, o.device)
        describer = Describer(
            network, name, resolution, o.points_per_keypoint, o.seed, choose_device(o.device)
        )
        if inputs.cut:
            grid = TileGrid(_round_position(_first_point(inputs.scans[0]), resolution), resolution)
            _cut(inputs.scans[0], grid, data, timer)
            _check_points(inputs.scans[0], data, resolution)
            pieces = _describe_tiles(grid, data, describer, timer)
        else:
            pieces, failed = _describe_scans(inputs.scans, data, describer, timer)
            warnings += failed
            grid = TileGrid(_round_position(Piece.load(pieces[0]).origin, resolution), resolution)
            _merge(pieces, grid, data, timer)
        shapes = _write_keypoints(pieces, grid, data)
        _write_index(data, timer)
        Manifest(
            resolution=resolution,
            tile=grid.side,
            origin=tuple(grid.origin.tolist()),
            model=name,
            model_digest=weights,
            sources=tuple(scan.source for scan in inputs.scans),
            options=options,
            data=data.name,
            shapes=shapes,
            index_digest=digest_of(data / INDEX),
        ).write(out)
        shutil.rmtree(data / _PIECES, ignore_errors=True)
    return warnings


def _check_folder(out: Path) -> None:
    """Raise an error if the folder holds files that are not of a map."""
    if out.exists() and not out.is_dir():
        raise FileFormatError(f"{out}: cannot be written: it is a file, and a map is a folder")
    if out.is_dir():
        others = [
            p.name for p in out.iterdir() if not p.name.startswith((".", DATA_PREFIX)) and p.name != MANIFEST
        ]
        if others:
            raise InputError(f"{out}: the folder holds other files ({others[0]}): choose another one")


def _is_complete(out: Path, data: Path) -> bool:
    """Return whether the map in a folder was made of the same scans with the same options."""
    try:
        return Manifest.read(out).data == data.name
    except FileFormatError:
        return False


def _first_point(scan: MapScan) -> Floats:
    """Return the first point (3,) of a cloud, in map coordinates."""
    for chunk in scan.chunks():
        return np.asarray(chunk[0])
    raise InputError(f"{scan.source.file}: has no points")


def _round_position(position: Floats, resolution: float) -> Floats:
    """Round a position (3,) to few digits: differences of geographic coordinates from it are then exact."""
    return np.asarray(np.round(position, -int(np.floor(np.log10(100 * resolution)))))


def _save(data: Path, name: str, array: NDArray[Any]) -> None:
    kind, _ = ARRAYS[name]
    with atomic_write(data / f"{name}.npy") as temporary, temporary.open("wb") as file:
        np.save(file, np.ascontiguousarray(array, kind))


def _load(data: Path, name: str) -> NDArray[Any]:
    return np.asarray(np.load(data / f"{name}.npy", mmap_mode="r", allow_pickle=False))


def _are_written(data: Path, names: Sequence[str]) -> bool:
    return all((data / f"{name}.npy").exists() for name in names)


def _cut(scan: MapScan, grid: TileGrid, data: Path, timer: StepTimer) -> None:
    """Read a large cloud part by part, and write the merged points of its tiles."""
    if _are_written(data, _TILE_ARRAYS):
        return
    with timer("read") as advance:
        for chunk in scan.chunks():
            grid.add(chunk)
            advance(len(chunk))
    _save_tiles(grid, data)


def _save_tiles(grid: TileGrid, data: Path) -> None:
    """Write the merged points of all tiles."""
    for name, array in grid.arrays().items():
        _save(data, name, array)


def _check_points(scan: MapScan, data: Path, resolution: float) -> None:
    """Raise an error, and remove the arrays, if a cloud has too few merged points."""
    count = len(_load(data, "points"))
    if count < MIN_POINTS:
        shutil.rmtree(data, ignore_errors=True)
        raise InputError(
            f"{scan.source.file}: too few points at the resolution {resolution:.3g}: {count}, at least "
            f"{MIN_POINTS} are needed: check that the cloud is complete and the resolution is in its unit"
        )


def _merge(pieces: Sequence[Path], grid: TileGrid, data: Path, timer: StepTimer) -> None:
    """Merge the points of all pieces in the voxels of tiles, and write them."""
    if _are_written(data, _TILE_ARRAYS):
        return
    with timer("merge", len(pieces)) as advance:
        for path in pieces:
            piece = Piece.load(path)
            grid.add(piece.origin + piece.points)
            advance(1)
    _save_tiles(grid, data)


def _describe_scans(
    scans: Sequence[MapScan], data: Path, describer: Describer, timer: StepTimer
) -> tuple[list[Path], list[str]]:
    """Describe each scan; return the files of the pieces, and warnings about unreadable scans."""
    pieces, failed = [], []
    with timer("describe", len(scans)) as advance:
        for number, scan in enumerate(scans):
            path = data / _PIECES / f"{number:06}.npz"
            try:
                if not path.exists():
                    describer.describe_scan(scan).save(path)
                pieces.append(path)
            except WSDescError as error:
                failed.append(f"Not in the map: {error}")
            advance(1)
    if not pieces:
        raise InputError(f"none of the {len(scans)} scans can be used: {failed[0]}")
    return pieces, failed


def _describe_tiles(grid: TileGrid, data: Path, describer: Describer, timer: StepTimer) -> list[Path]:
    """Describe each tile of a large cloud; return the files of the pieces."""
    cells, starts, points = (_load(data, name) for name in _TILE_ARRAYS)
    row_of = {tuple(cell): row for row, cell in enumerate(cells.tolist())}
    margin = _MARGIN * grid.resolution
    pieces = []
    with timer("describe", len(cells)) as advance:
        for row, cell in enumerate(cells.tolist()):
            path = data / _PIECES / f"{row:06}.npz"
            if not path.exists():
                around, inside = [], []
                for step in CELL_STEPS:
                    near = row_of.get(tuple(cell + step))
                    if near is not None:
                        part = points[starts[near] : starts[near + 1]] + (grid.side * step).astype(np.float32)
                        around.append(part[((part > -margin) & (part < grid.side + margin)).all(axis=1)])
                        inside.append(np.full(len(around[-1]), near == row))
                corner = grid.corner(tuple(cell))
                describer.describe_tile(np.concatenate(around), np.concatenate(inside), corner).save(path)
            pieces.append(path)
            advance(1)
    return pieces


def _write_keypoints(pieces: Sequence[Path], grid: TileGrid, data: Path) -> dict[str, tuple[int, ...]]:
    """Write the keypoints of all pieces, tile by tile; return the shapes of all arrays."""
    cells = _load(data, "cells")
    row_of = {tuple(cell): row for row, cell in enumerate(cells.tolist())}
    tiles: list[NDArray[Any]] = []
    columns: dict[str, list[NDArray[Any]]] = {"keypoints": [], "frames": [], "descriptors": []}
    for path in pieces:
        piece = Piece.load(path)
        positions = piece.origin + piece.keypoints
        for cell, rows, corner in grid.groups(positions):
            if cell not in row_of:  # a keypoint at the very border of its tile
                continue
            tiles.append(np.full(len(rows), row_of[cell]))
            columns["keypoints"].append((positions[rows] - corner).astype(np.float32))
            columns["frames"].append(piece.frames[rows])
            columns["descriptors"].append(piece.descriptors[rows])
    tile = np.concatenate(tiles)
    order = np.argsort(tile, kind="stable")
    for name, parts in columns.items():
        _save(data, name, np.concatenate(parts)[order])
    _save(data, "keypoint_starts", np.cumsum([0, *np.bincount(tile, minlength=len(cells))]))
    return {name: tuple(_load(data, name).shape) for name in ARRAYS}


def _write_index(data: Path, timer: StepTimer) -> None:
    path = data / INDEX
    if path.exists():
        return
    descriptors = _load(data, "descriptors")
    with timer("index", len(descriptors)) as advance:
        index = DescriptorIndex.of(descriptors, advance)
    with atomic_write(path) as temporary:
        index.save(temporary)
