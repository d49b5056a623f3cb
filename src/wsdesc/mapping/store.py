"""Files of a map: a folder with a manifest, map.json, and a folder of arrays that the manifest names.

The manifest is written last and replaces the one before it, so a map is complete or does not exist. It has
the size of every array, which shows at once if a file was cut off.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError
from wsdesc.core.json_file import read_object
from wsdesc.mapping.index import DescriptorIndex

VERSION = 1
MANIFEST, INDEX = "map.json", "index.voyager"
_LARGEST_MANIFEST = 1 << 28  # bytes
DATA_PREFIX = "data-"  # of the folder with the arrays
_KIND = "wsdesc map"

# Type and columns of the arrays. Rows are tiles (T), points (N) or keypoints (K). The model has C columns.
ARRAYS: dict[str, tuple[str, int]] = {
    "cells": ("<i4", 3),  # (T, 3) of the tiles, in tiles from the origin
    "point_starts": ("<i8", 1),  # (T + 1,) first point of each tile
    "keypoint_starts": ("<i8", 1),  # (T + 1,) first keypoint of each tile
    "points": ("<f4", 3),  # (N, 3) from the corner of their tile, in the map's unit
    "keypoints": ("<f4", 3),  # (K, 3) from the corner of their tile
    "frames": ("|i1", 4),  # (K, 4) quaternions (x, y, z, w) times 127
    "descriptors": ("|i1", 0),  # (K, C) unit vectors times 127
}


@dataclass(frozen=True)
class Source:
    """A file that a map was made of.

    Attributes:
        file: Its path when the map was built; a name for a scan in memory.
        bytes: Its size; None for a scan in memory.
        modified: Its time of modification, in nanoseconds since 1970; None for a scan in memory.
    """

    file: str
    bytes: int | None = None
    modified: int | None = None

    @classmethod
    def of(cls, path: Path) -> Source:
        """Record the state of a file."""
        state = path.stat()
        return cls(str(path), state.st_size, state.st_mtime_ns)

    @property
    def change(self) -> str | None:
        """What happened to the file since the map was built; None if it is as it was."""
        if self.bytes is None:
            return None
        try:
            now = Source.of(Path(self.file))
        except OSError:
            return f"{self.file}: is no longer there"
        return None if now == self else f"{self.file}: was changed after the map was built"


@dataclass(frozen=True)
class Manifest:
    """Content of map.json.

    Attributes:
        resolution: Working resolution, in the map's unit.
        tile: Side of a tile, in the map's unit.
        origin: (3,) corner of the tile (0, 0, 0), in map coordinates.
        model: Name or path of the weights.
        model_digest: SHA-256 of the weights.
        sources: Files that the map was made of.
        options: Options that it was built with.
        data: Name of the folder with the arrays.
        shapes: Shape of each array.
        index_digest: SHA-256 of the index: native code reads it, which no damaged file may reach.
        version: Version of the format.
    """

    resolution: float
    tile: float
    origin: tuple[float, float, float]
    model: str
    model_digest: str
    sources: tuple[Source, ...]
    options: dict[str, Any]
    data: str
    shapes: dict[str, tuple[int, ...]]
    index_digest: str
    version: int = VERSION

    def write(self, folder: Path) -> None:
        """Write map.json, and remove the arrays of earlier maps in this folder."""
        with atomic_write(folder / MANIFEST) as temporary:
            temporary.write_text(json.dumps({"format": _KIND, **asdict(self)}, indent=1) + "\n", "utf-8")
        for old in folder.glob(f"{DATA_PREFIX}*"):
            if old.name != self.data:
                shutil.rmtree(old, ignore_errors=True)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read map.json.

        Raises:
            FileFormatError: There is none, it is damaged, or of another version.
        """
        values = _read_json(folder)
        version = values.pop("version", None)
        if values.pop("format", None) != _KIND or not isinstance(version, int):
            raise FileFormatError(f"{folder}: not a map that `wsdesc map` wrote")
        if version != VERSION:
            age = "a newer" if version > VERSION else "an older"
            raise FileFormatError(
                f"{folder}: a map of format {version}, from {age} version of wsdesc, which reads format "
                f"{VERSION}: build the map again"
            )
        try:
            values["sources"] = tuple(Source(**source) for source in values["sources"])
            values["origin"] = tuple(map(float, values["origin"]))
            values["shapes"] = {name: tuple(map(int, values["shapes"][name])) for name in ARRAYS}
            manifest = cls(**values)
            valid = len(manifest.origin) == 3 and bool(np.isfinite(manifest.origin).all())
            valid = valid and 0 < manifest.resolution < manifest.tile < float("inf")
            valid = valid and Path(str(manifest.data)).name == manifest.data
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise FileFormatError(f"{folder}: {MANIFEST} is damaged: build the map again") from error
        if not valid:
            raise FileFormatError(f"{folder}: {MANIFEST} is damaged: build the map again")
        return manifest


def _read_json(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        if not folder.is_dir():
            if folder.exists():
                raise FileFormatError(f"{folder}: is a file; a map is a folder that `wsdesc map` wrote")
            raise FileFormatError(
                f"{folder}: no such map; build one with: wsdesc map scans/ -o {folder.name}"
            )
        if not path.exists():
            unfinished = any(folder.glob(f"{DATA_PREFIX}*"))
            reason = (
                "the map is not finished: run `wsdesc map` again" if unfinished else f"no {MANIFEST} in it"
            )
            raise FileFormatError(f"{folder}: not a map: {reason}")
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    invalid = "damaged: build the map again"
    return read_object(path, largest=_LARGEST_MANIFEST, kind="the manifest of a map", invalid=invalid)


def data_folder(out: Path, key: str) -> Path:
    """Return the folder for the arrays of the map with this key."""
    return out / f"{DATA_PREFIX}{key[:16]}"


def read_arrays(folder: Path, manifest: Manifest) -> dict[str, NDArray[Any]]:
    """Map the arrays of a map into memory: they are read when they are used.

    Raises:
        FileFormatError: A file is missing, cut off, or does not fit the others.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for name, (kind, columns) in ARRAYS.items():
        path = folder / manifest.data / f"{name}.npy"
        shape = manifest.shapes[name]
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError as error:
            raise FileFormatError(f"{path}: a file of the map is missing: build the map again") from error
        except (OSError, ValueError, EOFError, SyntaxError) as error:
            raise FileFormatError(
                f"{path}: a file of the map is cut off or damaged: build it again"
            ) from error
        fits = array.shape == shape and array.dtype == np.dtype(kind) and array.flags.c_contiguous
        if not fits or (columns > 1 and shape[1:] != (columns,)):
            raise FileFormatError(f"{path}: does not fit {MANIFEST}: build the map again")
        arrays[name] = array
    _check_tiles(folder, arrays)
    return arrays


def _check_tiles(folder: Path, arrays: dict[str, NDArray[Any]]) -> None:
    tiles = len(arrays["cells"])
    valid = arrays["keypoints"].shape[0] == arrays["frames"].shape[0] == arrays["descriptors"].shape[0]
    for name, rows in (("point_starts", "points"), ("keypoint_starts", "keypoints")):
        starts = arrays[name]
        valid = valid and starts.shape == (tiles + 1,) and starts[0] == 0 and starts[-1] == len(arrays[rows])
        valid = valid and bool((np.diff(starts) >= 0).all())
    if not valid or tiles == 0 or len(arrays["keypoints"]) == 0 or arrays["descriptors"].ndim != 2:
        raise FileFormatError(f"{folder}: the arrays of the map do not fit each other: build the map again")


def read_index(folder: Path, manifest: Manifest) -> DescriptorIndex:
    """Read the index after a check of its content.

    Raises:
        FileFormatError: The file is missing, cut off or damaged.
    """
    path = folder / manifest.data / INDEX
    try:
        digest = digest_of(path)
    except OSError as error:
        raise FileFormatError(f"{path}: a file of the map is missing: build the map again") from error
    if digest != manifest.index_digest:
        raise FileFormatError(f"{path}: the index of the map is cut off or damaged: build the map again")
    index = DescriptorIndex.load(path)
    if len(index) != manifest.shapes["descriptors"][0]:
        raise FileFormatError(f"{path}: does not fit {MANIFEST}: build the map again")
    return index


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
