"""Reading and writing of point clouds. The extension of the file selects the format.

Readable: ply, pcd, xyz, xyzn, xyzrgb, txt, csv, pts, asc, npy, npz, obj, off, stl, las, laz, e57 (with the
extra `e57`), ptx, bin (KITTI, nuScenes), vtk, vtp, gltf, glb. Writable: all of these except xyzn, xyzrgb,
stl, ptx, vtk, vtp, gltf, glb.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wsdesc.cloud.cloud import Cloud, all_finite, as_array, as_points, dropped_warnings
from wsdesc.cloud.formats import (
    READABLE,
    WITH_STATIONS,
    WITH_STORAGE,
    WITH_VIEWPOINT,
    WITHOUT_ATTRIBUTES,
    WRITABLE,
    FileContent,
    module_for,
)
from wsdesc.cloud.mesh import sample_surface, scan_points
from wsdesc.cloud.storage import Storage
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError, WSDescError, one_line
from wsdesc.core.file_parts import as_path, split_part

AnyPath = str | os.PathLike[str]
NonFinite = Literal["raise", "drop"]
Sample = int | Literal["auto"] | None

logger = logging.getLogger(__name__)

_MAX_REASON = 200  # characters of a library's message


def read_points(
    path: AnyPath, *, sample: Sample = None, seed: int = 0, nonfinite: NonFinite = "drop"
) -> np.ndarray:
    """Read the points of a file.

    Args:
        path: The file. `multi.e57#2` is the second station of an E57 or PTX file; without a number, all
            stations are merged by their poses.
        sample: For files with faces, sample so many points uniformly on the surface instead of reading the
            vertices. "auto", as in `register`, samples a model and reads the vertices of a scan. A mesh is a
            model if a quarter of its area belongs to faces with an edge longer than 1/45 of the extent.
        seed: Seed of the sample.
        nonfinite: "drop" points with NaN or infinite coordinates, as `register` does, or "raise" an error.
            A warning states their number, and `read_cloud(path).dropped`.

    Returns:
        (N, 3) float64, N ≥ 1, all finite, in the unit and the frame of the file.

    Raises:
        FileFormatError: The file cannot be read.
        InputError: An argument is invalid, or a file without faces is to be sampled.
    """
    cloud = read_cloud(path, sample=sample, seed=seed, nonfinite=nonfinite)
    for warning in dropped_warnings(str(path), cloud.dropped):
        logger.warning(warning)
    return cloud.points


def read_cloud(
    path: AnyPath, *, sample: Sample = None, seed: int = 0, nonfinite: NonFinite = "drop"
) -> Cloud:
    """Read the points of a file with their attributes; arguments and errors as in `read_points`.

    Attributes keep their names in the file; columns without a name are called column_3, column_4, … Points
    that are sampled on a surface have no attributes.
    """
    path = as_path(path, "path")
    if isinstance(sample, str):
        if sample != "auto":
            raise InputError(f'sample must be an integer or "auto", not {sample!r}')
    elif sample is not None and (sample != int(sample) or sample < 1):
        raise InputError(f"sample must be an integer of at least 1, not {sample}")
    if seed < 0:
        raise InputError(f"seed must be at least 0, not {seed}")
    if nonfinite not in ("raise", "drop"):
        raise InputError(f'nonfinite must be "raise" or "drop", not {nonfinite!r}')
    if sample == "auto":
        return _read_scan(path, nonfinite)
    content, dropped = _finite(path, _read(path, faces=sample is not None), nonfinite)
    if sample is None:
        return _to_cloud(path, content, dropped)
    if content.faces is None or len(content.faces) == 0:
        raise InputError(f"{path}: has no faces to sample points from; omit `sample` to read the points")
    try:
        points = sample_surface(content.points, content.faces, int(sample), seed)
    except ValueError as error:
        raise FileFormatError(f"{path}: {error}; omit `sample` to read the vertices") from error
    return Cloud(points, dropped=dropped, sampled=True, file=path)


def _read_scan(path: Path, nonfinite: NonFinite) -> Cloud:
    """Read the points of a scan, or sample the surface of a model; see `sample` in `read_points`."""
    try:
        content = _read(path, faces=True)
    except FileFormatError:
        content = _read(path, faces=False)  # faces may be damaged where the vertices are not
    content, dropped = _finite(path, content, nonfinite)
    sampled = scan_points(content.points, content.faces)
    if sampled is not None:
        return Cloud(sampled, dropped=dropped, storage=_storage(path, content), sampled=True, file=path)
    if content.sampled:
        return _to_cloud(path, content._replace(viewpoint=None), dropped, sampled=True)
    if path.suffix.lower() == ".stl":  # each triangle repeats its vertices
        content, dropped = _finite(path, _read(path, faces=False), nonfinite)
    return _to_cloud(path, content, dropped)


def _to_cloud(path: Path, content: FileContent, dropped: int, *, sampled: bool = False) -> Cloud:
    storage = _storage(path, content)
    return Cloud(content.points, content.attributes, dropped, storage, content.viewpoint, sampled, path)


def _storage(path: Path, content: FileContent) -> Storage:
    storage, rounding = content.storage, 0.0
    if storage.single:
        with np.errstate(over="ignore"):
            rounding = float(np.spacing(np.float32(np.abs(content.points).max())))
    return replace(storage, format=split_part(path)[0].suffix.lower(), rounding=rounding)


def write_points(
    path: AnyPath,
    points: Any,
    attributes: Mapping[str, Any] | None = None,
    *,
    storage: Storage | None = None,
    viewpoint: np.ndarray | None = None,
) -> None:
    """Write points to a file. If writing fails, an existing file stays unchanged.

    ply, pcd, npy and npz store float32 and float64 unchanged, and text is exact. las and laz round to a scale
    of 1e-4 or finer. e57 rounds to float32 relative to the centre of the points.

    Args:
        path: The file.
        points: (N, 3), array or tensor.
        attributes: Name -> array with N rows. In formats with columns, `colors` (N, 3) become red, green and
            blue, and `normals` become nx, ny and nz. Other arrays with several columns become name_0, name_1
            and so on. pcd files get rgb and normal_x, …, as in the Point Cloud Library, and one field for
            every other array. npy, obj and off files store no attributes.
        storage: Storage of a cloud that was read: las and laz keep its scale, extra dimensions and coordinate
            system.
        viewpoint: (3,) position of the scanner; pcd, e57 and npz store it.

    Raises:
        InputError: The points or attributes are invalid.
        FileFormatError: The file cannot be written.
    """
    path = as_path(path, "path")
    extension = _extension(path, WRITABLE, "written")
    if isinstance(points, Cloud):
        raise InputError("points must be an array (N, 3), not a Cloud: write it with wsdesc.write_cloud")
    array = as_points(points)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    if not all_finite(array):
        raise InputError(f"{path}: the points to write must be finite; remove NaN and infinity first")
    columns = {name: _attribute(name, values, len(array)) for name, values in (attributes or {}).items()}
    if columns and extension in WITHOUT_ATTRIBUTES:
        raise InputError(f"{path}: {extension[1:]} files cannot store attributes; write a ply file")
    with atomic_write(path) as temporary:
        try:
            options: dict[str, Any] = {"storage": storage} if extension in WITH_STORAGE else {}
            options |= {"viewpoint": viewpoint} if extension in WITH_VIEWPOINT else {}
            module_for(extension).write(temporary, array, columns, **options)
        except (WSDescError, OSError):
            raise
        except Exception as error:
            reason = reason_of(error, "try another format, such as ply")
            raise FileFormatError(f"{path}: cannot be written: {reason}") from error


def _extension(path: Path, supported: tuple[str, ...], action: str) -> str:
    extension = path.suffix.lower()
    if extension not in supported:
        what = f"the extension {extension}" if extension else "a file without an extension"
        others = "; export other formats as ply, las or e57" if action == "read" else ""
        raise FileFormatError(
            f"{path}: {what} cannot be {action}; supported are {', '.join(supported)}{others}"
        )
    return extension


def _read(path: Path, faces: bool) -> FileContent:
    """Read a file with at least one point; raise a FileFormatError otherwise."""
    path, station = split_part(path)
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises in a folder without permission
        raise FileFormatError(f"{path}: is not a file but a folder; name one of the files in it")
    with read_errors(path):
        if not path.exists():
            raise FileFormatError(f"{path}: there is no such file; check the path")
        extension = _extension(path, READABLE, "read")
        options = {} if station is None else {"station": station}
        if options and extension not in WITH_STATIONS:
            raise FileFormatError(f"{path}: {extension[1:]} files have no stations; omit #{station}")
        if not path.is_file():
            raise FileFormatError(f"{path}: is not a file; check the path")
        if path.stat().st_size == 0:
            raise FileFormatError(f"{path}: is empty; export the scan again")
        content: FileContent = module_for(extension).read(path, faces, **options)
    if len(content.points) == 0:
        raise FileFormatError(f"{path}: has no points; export the scan again")
    return content


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Convert errors of a reader to a FileFormatError that names the file and a remedy."""
    try:
        yield
    except WSDescError:
        raise
    except BaseException as error:
        # A panic in a Rust library is not an Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = reason_of(error, "export or download the file again")
        kind = f" as {path.suffix[1:].lower()}" if path.suffix else ""
        raise FileFormatError(f"{path}: cannot be read{kind}: {reason}") from error


def _finite(path: Path, content: FileContent, nonfinite: NonFinite) -> tuple[FileContent, int]:
    """Remove points that are not finite, and the faces around them; return also how many these are."""
    if all_finite(content.points):
        return content, 0
    finite = content.finite()
    count = len(content.points)
    dropped = count - len(finite.points)
    if dropped == count:
        raise FileFormatError(f"{path}: none of its {count} points is finite; export the scan again")
    if nonfinite == "raise":
        raise FileFormatError(
            f'{path}: {dropped} of {count} points are not finite; nonfinite="drop" reads the others'
        )
    return finite, dropped


def _attribute(name: str, values: Any, count: int) -> np.ndarray:
    array = as_array(values)
    if array.ndim == 0 or len(array) != count:
        raise InputError(
            f"attribute {name!r} has the shape {array.shape}; it must have {count} rows, as the points have"
        )
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise InputError(f"attribute {name!r} must be real numbers of at most 64 bits, not {array.dtype}")
    if array.dtype.kind == "b":
        return array.astype(np.uint8)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def reason_of(error: BaseException, remedy: str) -> str:
    """Describe an exception and what to do, in one line of limited length.

    Messages of our own may already say what to do, after a semicolon.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, MemoryError):
        return "it does not fit into memory; split the scan or reduce its points"
    if isinstance(error, ImportError):
        return f"the package {error.name} is not installed; type: pip install {error.name}"
    message = one_line(str(error), _MAX_REASON) or type(error).__name__
    return message if "; " in message else f"{message.rstrip('.')}; {remedy}"
