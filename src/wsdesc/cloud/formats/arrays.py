"""NumPy files: npy with (N, 3 or more) numbers, npz with points and attributes. Pickles are never loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wsdesc.cloud.formats import SINGLE, FileContent
from wsdesc.cloud.formats.columns import from_columns, xyz_names
from wsdesc.cloud.formats.limits import check_columns
from wsdesc.cloud.formats.npz import MAX_HEADER, read_arrays, read_header
from wsdesc.cloud.storage import Storage
from wsdesc.core.errors import InputError

# Names of an npz file that attributes cannot have.
RESERVED = ("points", "viewpoint", "sampled", "descriptors", "frames", "file")

_FEW, _MANY = 16, 100  # an array with so few rows and so many columns is transposed


def read(path: Path, faces: bool) -> FileContent:
    return _read_npz(path) if path.suffix.lower() == ".npz" else _read_npy(path)


def _read_npy(path: Path) -> FileContent:
    # NumPy would allocate any header length that the file claims.
    with path.open("rb") as file:
        read_header(file.read(MAX_HEADER))
    # Mapping, unlike loading, compares the claimed size with that of the file before it allocates.
    with np.errstate(over="ignore"):  # the claimed shape may overflow
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    return _from_array(array)


def _read_npz(path: Path) -> FileContent:
    arrays = read_arrays(path)
    if {"descriptors", "frames"} <= arrays.keys():
        raise ValueError("a description of `wsdesc describe`, not a scan; use `wsdesc match` to register it")
    names = ["points", "xyz", *(arrays if len(arrays) == 1 else ())]
    main = next((name for name in names if name in arrays), None)
    if main is not None:
        content = _from_array(arrays.pop(main))
        content = content._replace(**_pop_scan_fields(arrays))
        count = len(content.points)
        others = {name: array for name, array in arrays.items() if array.ndim and len(array) == count}
        return content._replace(attributes=content.attributes | others)
    count = len(np.atleast_1d(arrays[xyz_names(arrays)[0]]))
    return from_columns({name: array for name, array in arrays.items() if array.ndim and len(array) == count})


def _pop_scan_fields(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Remove what concerns the whole scan from the arrays of a file; return it as fields of `FileContent`."""
    fields: dict[str, Any] = {}
    viewpoint = arrays.get("viewpoint")
    if viewpoint is not None and viewpoint.shape == (3,) and np.isfinite(viewpoint).all():
        fields["viewpoint"] = arrays.pop("viewpoint").astype(np.float64)
    if "sampled" in arrays and arrays["sampled"].shape == ():
        fields["sampled"] = bool(arrays.pop("sampled"))
    return fields


def _from_array(array: np.ndarray) -> FileContent:
    if array.dtype.names and array.ndim == 1:
        return from_columns({name: np.array(array[name]) for name in array.dtype.names})
    if array.ndim != 2 or array.shape[1] < 3 or array.dtype.kind not in "iuf":
        raise ValueError(f"the array is {array.dtype} {array.shape}, not real numbers (N, 3 or more)")
    if len(array) <= _FEW < _MANY < array.shape[1]:
        raise ValueError(f"the array has the shape {array.shape}, not (N, 3 or more): transpose it")
    check_columns(array.shape[1])
    extra = {f"column_{i}": np.array(array[:, i]) for i in range(3, array.shape[1])}
    storage = SINGLE if array.dtype == np.float32 else Storage()
    return FileContent(np.array(array[:, :3], np.float64, order="C"), extra, storage=storage)


def write(
    path: Path,
    points: np.ndarray,
    attributes: Mapping[str, np.ndarray],
    viewpoint: np.ndarray | None = None,
    sampled: bool = False,
) -> None:
    with path.open("wb") as file:
        if path.suffix.lower() == ".npy":
            np.save(file, points, allow_pickle=False)
            return
        arrays: dict[str, Any] = {"points": points}
        arrays |= {"viewpoint": viewpoint} if viewpoint is not None else {}
        arrays |= {"sampled": np.array(True)} if sampled else {}
        if reserved := sorted(attributes.keys() & set(RESERVED)):
            raise InputError(f"attribute {reserved[0]!r}: this name is reserved, rename it")
        arrays |= attributes
        np.savez(file, **arrays)
