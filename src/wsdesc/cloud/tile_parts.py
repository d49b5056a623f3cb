"""Points of a scan on disk, sorted by tile: the first step of merging scans into tiles."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wsdesc.cloud.chunks import read_cloud_chunks
from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.formats.attributes import narrow_colors
from wsdesc.core.atomic import atomic_write
from wsdesc.core.geometry import Floats, check_rigid
from wsdesc.core.journal import file_key

_VERSION = 1  # version of the files
_MAX_POINTS = 1_000_000  # read at a time
_AXES = ("x", "y", "z")  # fields of a record before the attributes

Spans = list[tuple[int, int]]  # first record and number of records, each


class Part(NamedTuple):
    """A scan's points, sorted by tile."""

    file: Path
    kind: np.dtype[Any]  # type of a record: x, y, z and the attributes
    spans: dict[tuple[int, int], Spans]  # by column and row of the tile


def sort_by_tile(path: Path, T_world_scan: Floats, folder: Path, voxel: float, side: int) -> Part:
    """Write the moved points of a scan, sorted by tile, unless that was done before.

    Args:
        path: File of the scan.
        T_world_scan: Its pose (4, 4).
        folder: Folder for the sorted points.
        voxel: Voxel size, in the unit of the scan.
        side: Side of a tile, in voxels.
    """
    T = check_rigid(T_world_scan, str(path))
    name = hashlib.sha256(
        f"{_VERSION} {file_key(path)} {path.name} {T.tolist()} {voxel} {side}".encode()
    ).hexdigest()[:32]
    part = _read_part(folder / f"{name}.json")
    if part is not None:
        return part
    spans: dict[tuple[int, int], Spans] = {}
    written, kind = 0, None
    with atomic_write(folder / f"{name}.bin") as temporary, temporary.open("wb") as file:
        for cloud in read_cloud_chunks(path):
            for start in range(0, len(cloud), _MAX_POINTS):
                records = _records(_slice(cloud, slice(start, start + _MAX_POINTS)).transformed(T), kind)
                kind = records.dtype
                for tile, first, count in _group(records, voxel, side):
                    spans.setdefault(tile, []).append((written + first, count))
                file.write(records.data)
                written += len(records)
    assert kind is not None
    index = {
        "kind": [[field, str(kind[field])] for field in kind.names or ()],
        "ranges": [[*tile, of_tile] for tile, of_tile in spans.items()],
        "records": written,
    }
    with atomic_write(folder / f"{name}.json") as temporary:
        temporary.write_text(json.dumps(index), encoding="utf-8")
    return Part(folder / f"{name}.bin", kind, spans)


def _read_part(path: Path) -> Part | None:
    """Read the index of a part that an earlier run finished."""
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        kind = np.dtype([tuple(field) for field in index["kind"]])
        file = path.with_suffix(".bin")
        if file.stat().st_size != kind.itemsize * index["records"]:
            return None
        spans = {(x, y): [(first, count) for first, count in of_tile] for x, y, of_tile in index["ranges"]}
        return Part(file, kind, spans)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _slice(cloud: Cloud, part: slice) -> Cloud:
    if part.start == 0 and part.stop >= len(cloud):
        return cloud
    attributes = {name: values[part] for name, values in cloud.attributes.items()}
    return replace(cloud, points=cloud.points[part], attributes=attributes)


def _records(cloud: Cloud, kind: np.dtype[Any] | None) -> np.ndarray:
    """Return points and columns of attributes as records (N,), of a given kind if there is one."""
    attributes = narrow_colors(cloud.attributes)
    columns = {name: v for name, v in attributes.items() if v.ndim == 1 and v.dtype.kind in "iuf"}
    if kind is None:
        fields = [(name, values.dtype.newbyteorder("=")) for name, values in columns.items()]
        others = [(name, kind) for name, kind in fields if name not in _AXES]
        kind = np.dtype([(axis, np.float64) for axis in _AXES] + others)
    records = np.empty(len(cloud), kind)
    for axis, name in enumerate(_AXES):
        records[name] = cloud.points[:, axis]
    for name in (kind.names or ())[3:]:
        records[name] = columns[name]
    return records


def _group(records: np.ndarray, voxel: float, side: int) -> Iterator[tuple[tuple[int, int], int, int]]:
    """Sort records by tile, in place; yield each tile with its first record and their number."""
    column, row = (np.floor(np.floor(records[axis] / voxel) / side).astype(np.int64) for axis in "xy")
    order = np.lexsort((row, column))
    records[:] = records[order]
    column, row = column[order], row[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(column) != 0) | (np.diff(row) != 0)])
    for first, last in itertools.pairwise([*starts.tolist(), len(records)]):
        yield (int(column[first]), int(row[first])), first, last - first


def read_spans(parts: Sequence[tuple[Part, Spans]]) -> Iterator[np.ndarray]:
    """Yield the records of a tile from several parts, each with the tile's spans in it."""
    for part, spans in parts:
        with part.file.open("rb") as file:
            for first, count in spans:
                file.seek(first * part.kind.itemsize)
                yield np.frombuffer(file.read(count * part.kind.itemsize), part.kind)
