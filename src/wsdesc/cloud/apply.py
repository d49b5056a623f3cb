"""Move scans by a pose, and return them in the form they came in."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np

from wsdesc.cloud.cloud import Cloud, wrong_shape
from wsdesc.cloud.convert import MAX_COLUMNS, Scan, as_cloud, is_array, is_table, to_numpy
from wsdesc.cloud.files import read_cloud
from wsdesc.cloud.formats.columns import xyz_names
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, transform
from wsdesc.core.similarity import check_similarity, factor_of


def apply_pose(scan: Scan, T: Any) -> Any:
    """Return a copy of a scan that is moved by the pose T (4, 4), a rigid transformation or a similarity.

    The computation is in float64. The form of the result follows the form of the scan:

    - An array or tensor (…, 3 or more) keeps its floating-point type, its device and all rows. Integers
      become float64. Columns after the third stay as they are. NumPy and torch keep their kind; other
      arrays and sequences become NumPy arrays.
    - A structured array keeps its type if x, y and z are floating-point numbers. Fields of normals are
      rotated.
    - A `Cloud`, and a point cloud or mesh of Open3D, trimesh or PyVista, becomes an object of the same kind
      with rotated normals.
    - The path of a file, a table, laspy data or a message becomes a `Cloud`.

    Raises:
        InputError: T is not such a transformation, or the object is not a scan.
        FileFormatError: The file cannot be read.
    """
    T = check_similarity(to_numpy(T), "T")
    if isinstance(scan, Cloud):
        return scan.transformed(T)
    if isinstance(scan, str | os.PathLike):
        return read_cloud(scan, nonfinite="drop").transformed(T)
    if isinstance(scan, np.ndarray) and scan.dtype.names:
        return _move_records(scan, T)
    if hasattr(scan, "detach"):
        return _move_tensor(scan, T)
    if isinstance(scan, list | tuple) or (is_array(scan) and not is_table(scan)):
        return _move_array(to_numpy(scan), T)
    return as_cloud(scan).transformed(T) if is_table(scan) else _move_object(scan, T)


def _move_array(array: np.ndarray, T: Floats) -> np.ndarray:
    _check_shape(array.shape)
    if array.dtype.kind not in "iuf":
        raise InputError(f"points must be real numbers, not {array.dtype}")
    moved = array.astype(array.dtype.newbyteorder("=") if array.dtype.kind == "f" else np.float64)
    points = array[..., :3].astype(np.float64)
    moved[..., :3] = transform(points.reshape(-1, 3), T).reshape(points.shape)
    return moved


def _move_tensor(tensor: Any, T: Floats) -> Any:
    """Move points of torch, without importing it. The result is differentiable."""
    _check_shape(tuple(tensor.shape))
    if tensor.is_complex():
        raise InputError(f"points must be real numbers, not {tensor.dtype}")
    points = tensor[..., :3].double()
    moved = points @ points.new_tensor(T[:3, :3].T.tolist()) + points.new_tensor(T[:3, 3].tolist())
    result = tensor.clone() if tensor.is_floating_point() else tensor.double().clone()
    result[..., :3] = moved.to(result.dtype)
    return result


def _move_records(array: np.ndarray, T: Floats) -> Any:
    names = array.dtype.names or ()
    try:
        axes = xyz_names(names)
    except ValueError:  # one field with all coordinates
        return as_cloud(array).transformed(T)
    if any(array.dtype[axis].kind != "f" for axis in axes):
        return as_cloud(array).transformed(T)
    points = np.stack([to_numpy(array[axis]).ravel() for axis in axes], axis=1).astype(np.float64)
    numeric = [name for name in names if name not in axes and array.dtype[name].kind in "iuf"]
    moved = Cloud(points, {name: to_numpy(array[name]).ravel() for name in numeric}).transformed(T)
    result = array.copy()
    columns = moved.attributes | dict(zip(axes, moved.points.T, strict=True))
    for name, column in columns.items():
        result[name] = column.reshape(array.shape)
    return result


def _move_object(scan: Any, T: Floats) -> Any:
    if hasattr(scan, "apply_transform"):  # trimesh
        moved = scan.copy()
        moved.apply_transform(T)
        return moved
    if hasattr(scan, "transform") and hasattr(scan, "point_data"):  # PyVista
        return scan.transform(T, transform_all_input_vectors=True, inplace=False)
    geometry = any(hasattr(scan, name) for name in ("points", "vertices", "point", "vertex"))
    if hasattr(scan, "transform") and geometry:  # Open3D
        moved = scan.clone() if hasattr(scan, "clone") else copy.deepcopy(scan)
        moved = moved.transform(T)
        if factor_of(T) != 1 and hasattr(moved, "normalize_normals"):  # Open3D multiplies normals too
            moved.normalize_normals()
        return moved
    return as_cloud(scan).transformed(T)


def _check_shape(shape: tuple[int, ...]) -> None:
    if not shape or not 3 <= shape[-1] <= MAX_COLUMNS:
        raise InputError(wrong_shape(shape))
