"""Merge scans into square tiles on disk. Memory depends on one scan's part and one tile, not on the total.

1. Each scan is read part by part, moved, and sorted by tile into a file of its own below `parts`.
2. Each tile is merged from its spans in these files, by voxel averages, and written.

Every file is written completely or not at all. A stopped run continues: finished parts and tiles are found by
the content of the scans, their poses and the sizes. `parts` is removed at the end.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.formats import WRITABLE
from wsdesc.cloud.merge import VoxelMerge, is_averaged
from wsdesc.cloud.storage import Record
from wsdesc.cloud.tile_parts import Part, Spans, read_spans, sort_by_tile
from wsdesc.cloud.write import write_cloud
from wsdesc.core.atomic import append_line, atomic_write
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.folders import locked, make_folder
from wsdesc.core.geometry import Floats, check_length
from wsdesc.core.progress import ProgressHook, no_progress

INDEX = "tiles.json"
_MAX_VOXELS = 8_000_000  # a tile with more voxels is divided into four
_MIN_SIDE = 16  # voxels along the side of the smallest tile
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Tile = tuple[int, int, int]  # column and row, and the side in voxels


class PlacedScan(NamedTuple):
    """A scan and its pose."""

    path: Path
    T_world_scan: Floats  # (4, 4)


class TileSet(NamedTuple):
    """Files of a merged cloud."""

    files: list[Path]
    points: int  # after merging
    merged: int  # before


def merge_into_tiles(
    scans: Sequence[PlacedScan],
    folder: str | Path,
    *,
    voxel: float,
    tile: float | None = None,
    extension: str = ".laz",
    crs: tuple[Record, ...] = (),
    progress: ProgressHook | None = None,
) -> TileSet:
    """Merge scans into tiles tile_X_Y.laz, and describe them in tiles.json.

    Args:
        scans: Files and poses of the scans.
        folder: Folder for the tiles.
        voxel: Voxel size, in the unit of the scans. Points in a voxel are averaged as in `VoxelMerge`.
        tile: Side of a tile, in the same unit; rounded to whole voxels. None takes 1024 voxels.
        extension: Format of the tiles.
        crs: Coordinate system of LAS and LAZ tiles.
        progress: Hook that is entered around both steps, with the number of scans and of tiles.

    Raises:
        InputError: A size or the extension is invalid, or there are no scans.
        FileFormatError: A scan cannot be read, or the disk is full; the same call then continues.
    """
    check_length(voxel, "voxel")
    check_length(tile or 1.0, "tile")
    if extension not in WRITABLE:
        raise InputError(f"{extension}: tiles cannot be written in this format; supported are {WRITABLE}")
    if not scans:
        raise InputError("at least one placed scan is needed for a merged cloud")
    folder, side = Path(folder), max(_MIN_SIDE, round((tile or 1024 * voxel) / voxel))
    progress = progress or no_progress
    with locked(folder), _explain_full_disk(folder):
        make_folder(folder / "parts")
        parts = []
        with progress("sort by tile", len(scans)) as advance:
            for scan in scans:
                parts.append(sort_by_tile(*scan, folder / "parts", voxel, side))
                advance(1)
        tiles = _merge_parts(parts, folder, voxel, side, extension, crs, progress)
        _finish(folder, tiles, voxel, side)
    points = sum(tile["points"] for tile in tiles)
    return TileSet([folder / tile["file"] for tile in tiles], points, sum(tile["merged"] for tile in tiles))


def _merge_parts(
    parts: Sequence[Part],
    folder: Path,
    voxel: float,
    side: int,
    extension: str,
    crs: tuple[Record, ...],
    progress: ProgressHook,
) -> list[dict[str, Any]]:
    """Merge and write all tiles; return the entry of each in tiles.json."""
    key = json.dumps([[part.file.name for part in parts], voxel, side, extension, [list(map(str, crs))]])
    journal = folder / "parts" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.done"
    done = _read_done(journal, folder)
    kinds = _common_kinds(parts)
    tiles: list[dict[str, Any]] = []
    numbers = sorted({number for part in parts for number in part.spans})
    with progress("merge tiles", len(numbers)) as advance:
        for column, row in numbers:
            if (column, row) not in done:
                spans = [(part, part.spans[column, row]) for part in parts if (column, row) in part.spans]
                done[column, row] = []
                for (x, y, n), merged in _merge_tile((column, row, side), spans, kinds, voxel):
                    name = f"tile_{x}_{y}{extension}" if n == side else f"tile_{n}_{x}_{y}{extension}"
                    cloud = merged.cloud
                    assert cloud.storage is not None
                    cloud.storage = replace(cloud.storage, crs=crs)
                    write_cloud(folder / name, cloud)
                    low, high = cloud.points.min(axis=0).tolist(), cloud.points.max(axis=0).tolist()
                    entry = {"file": name, "points": len(cloud), "merged": int(merged.counts.sum())}
                    done[column, row].append(entry | {"low": low, "high": high})
                append_line(journal, json.dumps([column, row, done[column, row]]))
            tiles += done[column, row]
            advance(1)
    return tiles


def _read_done(journal: Path, folder: Path) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Return the tiles that an earlier run finished and that still exist."""
    done: dict[tuple[int, int], list[dict[str, Any]]] = {}
    try:
        lines = journal.read_text(encoding="utf-8").splitlines()
    except OSError:
        return done
    for line in lines:
        try:
            column, row, entries = json.loads(line)
        except ValueError:  # the last line of a killed run
            continue
        if all((folder / entry["file"]).is_file() for entry in entries):
            done[column, row] = entries
    return done


def _common_kinds(parts: Sequence[Part]) -> dict[str, np.dtype[Any]]:
    """Return the attributes that all scans have, with types that hold all of their values."""
    kinds: dict[str, np.dtype[Any]] = {}
    for name in (parts[0].kind.names or ())[3:]:
        types = [part.kind[name] for part in parts if name in (part.kind.names or ())]
        if len(types) == len(parts) and len({is_averaged(name, kind) for kind in types}) == 1:
            kinds[name] = np.result_type(*types)
    return kinds


def _merge_tile(
    tile: Tile,
    spans: Sequence[tuple[Part, Spans]],
    kinds: Mapping[str, np.dtype[Any]],
    voxel: float,
) -> Iterator[tuple[Tile, VoxelMerge]]:
    """Yield the merged points of a tile; of one with too many voxels, those of its four quarters."""
    column, row, side = tile
    merged = VoxelMerge(voxel)
    for records in read_spans(spans):
        x, y = (np.floor(np.floor(records[axis] / voxel) / side) for axis in "xy")
        inside = (x == column) & (y == row)
        if not inside.any():
            continue
        records = records[inside]
        points = np.stack([records[axis] for axis in "xyz"], axis=1)
        merged.add_cloud(Cloud(points, {n: records[n].astype(kind) for n, kind in kinds.items()}))
        if len(merged.cells) > _MAX_VOXELS and side >= 2 * _MIN_SIDE and side % 2 == 0:
            del merged
            for i, j in itertools.product((0, 1), (0, 1)):
                quarter = (2 * column + i, 2 * row + j, side // 2)
                yield from _merge_tile(quarter, spans, kinds, voxel)
            return
    if len(merged.cells):
        yield tile, merged


def _finish(folder: Path, tiles: Sequence[dict[str, Any]], voxel: float, side: int) -> None:
    """Write the index, and remove tiles of an earlier result and all parts."""
    names = {tile["file"] for tile in tiles}
    try:
        old = {str(tile["file"]) for tile in json.loads((folder / INDEX).read_text("utf-8"))["tiles"]}
    except (OSError, ValueError, KeyError, TypeError):
        old = set()
    with atomic_write(folder / INDEX) as temporary:
        index = {"voxel": voxel, "tile": voxel * side, "tiles": list(tiles)}
        temporary.write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    for name in old - names:
        if Path(name).name == name and name.startswith("tile_"):
            (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "parts", ignore_errors=True)


@contextmanager
def _explain_full_disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, FileFormatError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno in _FULL:
            free = shutil.disk_usage(folder).free / 1e9
            raise FileFormatError(
                f"{folder}: the disk is full ({free:.1f} GB are free). Finished parts are kept: free some "
                "space and run the same command again. About 40 bytes are needed for every point."
            ) from error
        if isinstance(error, OSError):
            raise FileFormatError(f"{folder}: cannot be written: {error.strerror or error}") from error
        raise
