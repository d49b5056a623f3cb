"""Read and write point clouds; the extension of the file says which format it is.

Readable: ply, pcd, xyz, txt, csv, pts, npy, npz, obj, off, stl, las, laz, and e57 with the extra `e57`.
Writable: all of these but stl.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wsdesc.cloud.cloud import Cloud, all_finite, as_array, as_points
from wsdesc.cloud.formats import READABLE, WITHOUT_ATTRIBUTES, WRITABLE, Reading, module_for
from wsdesc.cloud.formats.faces import sample_surface
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError, WSDescError, one_line

AnyPath = str | os.PathLike[str]
NonFinite = Literal["raise", "drop"]


def read_points(
    path: AnyPath, *, sample: int | None = None, seed: int = 0, nonfinite: NonFinite = "raise"
) -> np.ndarray:
    """The points of a file, (N, 3) float64, N ≥ 1, all finite, in the unit and the frame of the file.

    sample: for files with faces, this many points spread uniformly by area over the surface instead of
        the vertices; the same `seed` gives the same points.
    nonfinite: what to do about NaN and infinite coordinates: "raise" an error, or "drop" the points.

    Raises FileFormatError, naming the file and the reason, for whatever cannot be read.
    """
    return read_cloud(path, sample=sample, seed=seed, nonfinite=nonfinite).points


def read_cloud(
    path: AnyPath, *, sample: int | None = None, seed: int = 0, nonfinite: NonFinite = "raise"
) -> Cloud:
    """The points of a file together with what the file says about each of them; arguments as `read_points`.

    Attributes keep the names of the file; columns without a name are called column_3, column_4, …
    Points sampled on a surface have none. `Cloud.dropped` counts the points left out as not finite.
    """
    path = Path(path)
    if sample is not None and (sample != int(sample) or sample < 1):
        raise InputError(f"sample must be a whole number of at least 1, not {sample}")
    if seed < 0:
        raise InputError(f"seed must not be negative, as {seed} is")
    if nonfinite not in ("raise", "drop"):
        raise InputError(f'nonfinite must be "raise" or "drop", not {nonfinite!r}')
    reading, dropped = _finite(path, _read(path, faces=sample is not None), nonfinite)
    if sample is None:
        return Cloud(reading.points, reading.attributes, dropped)
    if reading.faces is None or len(reading.faces) == 0:
        raise InputError(f"{path}: has no faces to sample points from; leave `sample` out to read its points")
    try:
        points = sample_surface(reading.points, reading.faces, int(sample), seed)
    except ValueError as error:
        raise FileFormatError(f"{path}: {error}") from error
    return Cloud(points, dropped=dropped)


def write_points(path: AnyPath, points: Any, attributes: Mapping[str, Any] | None = None) -> None:
    """Write points (N, 3), an array or a tensor, so that the file is there whole or stays as it was.

    attributes: name -> N values, or N rows of them. In formats of columns `colors` (N, 3) become red,
        green and blue, other rows name_0, name_1, … npy, obj and off have no place for attributes.

    float32 and float64 are kept as they are in ply, pcd, npy and npz; text reads back exactly; las and laz
    round to a scale of 1e-4 or finer, e57 to float32 about the middle of the points.
    Raises InputError for points that make no sense, FileFormatError if the file cannot be written.
    """
    path = Path(path)
    extension = _extension(path, WRITABLE, "written")
    array = as_points(points)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    if not all_finite(array):
        raise InputError("the points to write are not all finite")
    columns = {name: _attribute(name, values, len(array)) for name, values in (attributes or {}).items()}
    if columns and extension in WITHOUT_ATTRIBUTES:
        raise InputError(f"{path}: {extension[1:]} files have no place for attributes; ply has")
    with atomic_write(path) as temporary:
        try:
            module_for(extension).write(temporary, array, columns)
        except (WSDescError, OSError):
            raise
        except Exception as error:
            raise FileFormatError(f"{path}: cannot be written: {_reason(error)}") from error


def _extension(path: Path, known: tuple[str, ...], done: str) -> str:
    extension = path.suffix.lower()
    if extension not in known:
        listed = ", ".join(known)
        what = f"the extension {extension}" if extension else "a file without an extension"
        raise FileFormatError(f"{path}: {what} cannot be {done}; known are {listed}")
    return extension


def _read(path: Path, faces: bool) -> Reading:
    """What the file holds, at least one point, or a FileFormatError."""
    if os.path.isdir(path):  # noqa: PTH112 - the other one raises below a closed folder
        raise FileFormatError(f"{path}: is not a file but a folder")
    extension = _extension(path, READABLE, "read")
    try:
        if not path.exists():
            raise FileFormatError(f"{path}: there is no such file")
        if not path.is_file():
            raise FileFormatError(f"{path}: is not a file")
        if path.stat().st_size == 0:
            raise FileFormatError(f"{path}: is empty")
        reading: Reading = module_for(extension).read(path, faces)
    except WSDescError:
        raise
    except BaseException as error:
        # A panic inside a library written in Rust is not an Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise FileFormatError(f"{path}: cannot be read as {extension[1:]}: {_reason(error)}") from error
    if len(reading.points) == 0:
        raise FileFormatError(f"{path}: has no points")
    return reading


def _finite(path: Path, reading: Reading, nonfinite: NonFinite) -> tuple[Reading, int]:
    """The reading without points that are not finite and faces that touch them, and how many there were."""
    points, attributes, faces = reading
    if all_finite(points):
        return reading, 0
    keep = np.isfinite(points).all(axis=1)
    bad = len(points) - int(keep.sum())
    if bad == len(points):
        raise FileFormatError(f"{path}: none of its {bad} points is finite")
    if nonfinite == "raise":
        raise FileFormatError(
            f'{path}: {bad} of {len(points)} points are not finite; nonfinite="drop" reads the rest'
        )
    if faces is not None:
        faces = (np.cumsum(keep) - 1)[faces[keep[faces].all(axis=1)]]
    return Reading(points[keep], {name: values[keep] for name, values in attributes.items()}, faces), bad


def _attribute(name: str, values: Any, count: int) -> np.ndarray:
    array = as_array(values)
    if array.ndim == 0 or len(array) != count:
        raise InputError(
            f"attribute {name!r} has the shape {array.shape}, not {count} rows as the points have"
        )
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise InputError(f"attribute {name!r} must be real numbers of at most 64 bits, not {array.dtype}")
    if array.dtype.kind == "b":
        return array.astype(np.uint8)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _reason(error: BaseException) -> str:
    """The message of an exception in one line of bearable length."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, MemoryError):
        return "it does not fit into memory"
    if isinstance(error, ImportError):
        return f"the package {error.name} is not installed"
    return one_line(str(error), 200) or type(error).__name__
