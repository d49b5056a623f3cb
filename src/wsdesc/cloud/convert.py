"""Convert scans in any form to a `Cloud`: files, arrays, tables, objects of other libraries.

No library is imported for this. Objects are recognised by their attributes, one function for each kind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wsdesc.cloud.cloud import Cloud, all_finite, as_points, wrong_shape
from wsdesc.cloud.files import read_cloud
from wsdesc.cloud.formats import FileContent
from wsdesc.cloud.formats.columns import from_columns
from wsdesc.cloud.formats.faces import check_faces, triangulate
from wsdesc.cloud.mesh import scan_points
from wsdesc.cloud.point_cloud2 import message_columns
from wsdesc.core.errors import InputError, one_line

Scan = str | os.PathLike[str] | Cloud | Any
"""A scan, in any of these forms:

- the path of a file;
- a `Cloud`;
- an array or tensor (N, 3), on any device; further columns become attributes `column_3`, `column_4`, …;
- a structured array, a table (pandas, polars, pyarrow) or a mapping with columns x, y and z;
- a point cloud or mesh of Open3D (legacy or tensor), trimesh or PyVista;
- `laspy.LasData`;
- a ROS `PointCloud2` message.
"""

_FORMS = (
    "pass an array or tensor (N, 3), the path of a file, a wsdesc.Cloud, a table with columns x, y and z, a "
    "point cloud or mesh of Open3D, trimesh or PyVista, laspy data, or a PointCloud2 message"
)
MAX_COLUMNS = 100  # an array with more is probably transposed
_ATTRIBUTES = ("colors", "normals")  # names in point clouds of Open3D and trimesh


def as_cloud(scan: Scan) -> Cloud:
    """Convert a scan in any form to a `Cloud`; points that are not finite are dropped.

    The vertices of a mesh are its points if it is a dense scan. The surface of a model is sampled by area,
    with points 1/180 of its extent apart; see `sample="auto"` of `read_cloud`.

    Args:
        scan: Path of a file, `Cloud`, array or tensor (N, 3), table with the columns x, y and z, point cloud
            or mesh of Open3D, trimesh or PyVista, laspy data, or ROS `PointCloud2` message.

    Raises:
        FileFormatError: The file cannot be read.
        InputError: The object is not a scan, or has no finite points.
    """
    if isinstance(scan, Cloud):
        return scan
    if isinstance(scan, str | os.PathLike):
        return read_cloud(scan, sample="auto", nonfinite="drop")
    try:
        content = _content(scan)
        content = content._replace(points=as_points(content.points).astype(np.float64, copy=False))
        content = content._replace(faces=_triangles(content.faces, len(content.points)))
    except ValueError as error:
        raise InputError(f"{_type_name(scan)}: {one_line(str(error))}") from error
    count = len(content.points)
    if not all_finite(content.points):
        content = content.finite()
    if len(content.points) == 0:
        raise InputError(f"none of the {count} points is finite")
    dropped = count - len(content.points)
    sampled = scan_points(content.points, content.faces)
    if sampled is not None:
        return Cloud(sampled, dropped=dropped, sampled=True)
    return Cloud(content.points, content.attributes, dropped)


def scan_name(scan: Scan, default: str) -> str:
    """Return the path of a scan for messages, or `default` if the scan is not from a file."""
    file = scan.file if isinstance(scan, Cloud) else scan
    return str(file) if isinstance(file, str | os.PathLike) else default


def _triangles(faces: np.ndarray | None, vertices: int) -> np.ndarray | None:
    """Return triangles (F, 3) of polygons (F, k), or None without any."""
    if faces is None or faces.size == 0:
        return None
    if faces.ndim != 2 or faces.shape[1] < 3 or faces.dtype.kind not in "iu":
        raise ValueError(f"the faces must be vertex indices (F, 3), not {faces.dtype} {faces.shape}")
    return check_faces(triangulate(faces), vertices)


def _content(scan: Any) -> FileContent:
    for recognised, convert in _KINDS:
        if recognised(scan):
            return convert(scan)
    raise InputError(f"a scan cannot be made of {_type_name(scan)}: {_FORMS}")


def _type_name(scan: Any) -> str:
    kind = type(scan)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda scan: all(hasattr(scan, name) for name in names)


def to_numpy(values: Any) -> np.ndarray:
    """Convert arrays, tensors of torch and Open3D, and sequences to NumPy; masked values become NaN.

    Raises:
        InputError: The object has no array.
    """
    try:
        if hasattr(values, "detach"):
            values = values.detach()
            if "bfloat16" in str(values.dtype):  # unknown to NumPy
                values = values.float()
        if hasattr(values, "cpu"):
            values = values.cpu()
        if hasattr(values, "numpy") and callable(values.numpy):
            values = values.numpy()
        if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "iuf":
            return np.where(np.ma.getmaskarray(values), np.nan, values.data)
        return np.asarray(values)
    except Exception as error:  # each library raises its own kinds
        reason = one_line(str(error), 200).rstrip(".")
        raise InputError(
            f"{_type_name(values)} cannot be converted to an array ({reason}): {_FORMS}"
        ) from error


def is_array(scan: Any) -> bool:
    """Return whether this is an array or a tensor of any library."""
    return isinstance(scan, np.ndarray) or (hasattr(scan, "shape") and hasattr(scan, "dtype"))


def _from_array(scan: Any) -> FileContent:
    if isinstance(scan, np.ndarray) and scan.dtype.names:
        rows = scan.ravel()  # of organised clouds
        return _from_columns({name: to_numpy(rows[name]) for name in scan.dtype.names})
    array = to_numpy(scan)
    if array.ndim == 3 and array.shape[2] >= 3:
        raise InputError(
            f"points must have the shape (N, 3), not {array.shape}: pass "
            f"points.reshape(-1, {array.shape[2]}) of an organised cloud, or one of several scans"
        )
    if array.ndim != 2 or array.shape[1] < 3:
        raise InputError(wrong_shape(array.shape))
    if array.shape[1] > MAX_COLUMNS:
        raise InputError(f"points must have the shape (N, 3), not {array.shape}: pass the transposed array")
    further = {f"column_{k}": array[:, k] for k in range(3, array.shape[1])}
    return FileContent(array[:, :3], further)


def is_table(scan: Any) -> bool:
    """Return whether this has columns by name."""
    return isinstance(scan, Mapping) or (hasattr(scan, "columns") and hasattr(scan, "__getitem__"))


def _from_table(scan: Any) -> FileContent:
    # The `columns` of pyarrow are arrays, those of pandas and polars are names.
    names = list(scan if isinstance(scan, Mapping) else getattr(scan, "column_names", scan.columns))
    if names and all(isinstance(name, int | np.integer) for name in names):  # a table of an array
        return _from_array(scan.to_numpy())
    return _from_columns({str(name): to_numpy(scan[name]) for name in names})


def _from_columns(columns: dict[str, np.ndarray]) -> FileContent:
    """Take the points from columns x, y and z, or from one array `points` or `xyz` (N, 3)."""
    main = next((name for name in ("points", "xyz") if name in columns), None)
    if main is None:
        content = from_columns(columns)
    else:
        content = _from_array(columns.pop(main))
        content = content._replace(attributes=content.attributes | columns)
    return content._replace(attributes=_with_rows(content.attributes, len(content.points)))


def _with_rows(arrays: Mapping[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    """Select the numeric arrays that have a row for each point."""
    return {
        name: array
        for name, array in arrays.items()
        if array.shape[:1] == (count,) and array.dtype.kind in "biuf"
    }


def _from_message(scan: Any) -> FileContent:
    return _from_columns(message_columns(scan))


def _from_las(scan: Any) -> FileContent:
    points = np.stack([np.asarray(getattr(scan, axis), dtype=np.float64) for axis in "xyz"], axis=1)
    names = [name for name in dict.fromkeys(scan.point_format.dimension_names) if name not in ("X", "Y", "Z")]
    return FileContent(points, {name: np.asarray(scan[name]) for name in names})


def _from_open3d_tensors(scan: Any) -> FileContent:
    arrays = {name: to_numpy(scan.point[name]) for name in scan.point}
    if "positions" not in arrays:
        raise InputError("the point cloud has no points: at least one is needed")
    points = arrays.pop("positions")
    return FileContent(points, _with_rows(arrays, len(points)))


def _from_open3d_tensor_mesh(scan: Any) -> FileContent:
    if "positions" not in scan.vertex:
        raise InputError("the mesh has no vertices: at least one is needed")
    faces = to_numpy(scan.triangle["indices"]) if "indices" in scan.triangle else None
    return FileContent(to_numpy(scan.vertex["positions"]), {}, faces)


def _from_scene(scan: Any) -> FileContent:
    """Convert a scene of trimesh: all meshes, or all point clouds, in one frame."""
    return _content(scan.to_geometry())


def _from_vertices(scan: Any) -> FileContent:
    """Convert meshes of Open3D (`triangles`) and trimesh (`faces`), and point clouds of trimesh."""
    # The `triangles` of trimesh are coordinates.
    faces = getattr(scan, "faces", getattr(scan, "triangles", None))
    points = to_numpy(scan.vertices)
    return FileContent(points, _attributes(scan, len(points)), None if faces is None else to_numpy(faces))


def _from_points(scan: Any) -> FileContent:
    """Convert point clouds of Open3D, datasets of PyVista, and other objects with `points`."""
    points = scan.points() if callable(scan.points) else scan.points
    if is_table(points):
        return _from_table(points)
    content = _from_array(points)
    count = len(content.points)
    attributes = content.attributes | _attributes(scan, count)
    if hasattr(scan, "point_data"):
        attributes |= _with_rows({name: to_numpy(scan.point_data[name]) for name in scan.point_data}, count)
    return FileContent(content.points, attributes, _pyvista_triangles(scan))


def _attributes(scan: Any, count: int) -> dict[str, np.ndarray]:
    arrays = {name: to_numpy(getattr(scan, name)) for name in _ATTRIBUTES if hasattr(scan, name)}
    return _with_rows(arrays, count)


def _pyvista_triangles(scan: Any) -> np.ndarray | None:
    """Return the triangles of a PyVista surface, whose faces are stored as 3, a, b, c, 3, a, b, c, …"""
    if not hasattr(scan, "is_all_triangles") or len(scan.faces) == 0:
        return None
    surface = scan if scan.is_all_triangles else scan.triangulate()
    return to_numpy(surface.faces).reshape(-1, 4)[:, 1:]


def _from_description(scan: Any) -> FileContent:
    raise InputError(
        "a Description is no scan: register it with another Description, or pass the scan itself"
    )


def _is_sequence(scan: Any) -> bool:
    return hasattr(scan, "__len__") and hasattr(scan, "__getitem__") and not isinstance(scan, bytes)


# In this order: a table may have columns with the names of other attributes.
_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Any], FileContent]], ...] = (
    (is_table, _from_table),
    (is_array, _from_array),
    (_has("descriptors", "frames"), _from_description),
    (_has("fields", "point_step", "data"), _from_message),
    (_has("point_format", "x", "y", "z"), _from_las),
    (_has("point", "clone"), _from_open3d_tensors),
    (_has("vertex", "triangle"), _from_open3d_tensor_mesh),
    (_has("geometry", "to_geometry"), _from_scene),
    (_has("vertices"), _from_vertices),
    (_has("points"), _from_points),
    (_is_sequence, _from_array),
)
