"""Files of descriptions: the arrays of a `Description` as .npz."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from wsdesc.cloud.formats.npz import read_arrays
from wsdesc.cloud.range_image import RangeImage
from wsdesc.cloud.viewpoint import Viewpoint
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError
from wsdesc.core.file_parts import as_path
from wsdesc.core.geometry import is_rigid

if TYPE_CHECKING:
    from wsdesc.descriptor.description import Description

_ARRAYS = {"points": "f4", "order": "i8", "descriptors": "f4", "frames": "f4", "T_scan_local": "f8"}


def save(path: str | Path, description: Description) -> None:
    """Write a description on the CPU, atomically."""
    arrays: dict[str, Any] = {name: np.asarray(getattr(description, name)) for name in _ARRAYS}
    viewpoint, image = description.viewpoint, description.range_image
    if viewpoint is not None and image is not None:
        arrays["viewpoint"], arrays["viewpoint_source"] = viewpoint.position, viewpoint.source
        arrays["local_viewpoint"], arrays["free_ranges"] = image.viewpoint, image.free
    if as_path(path, "path").suffix.lower() != ".npz":
        raise FileFormatError(f"{path}: a description is saved as .npz: choose a name that ends in .npz")
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays, resolution=description.resolution, model=description.model)


def load(path: str | Path) -> dict[str, Any]:
    """Read the fields of a `Description`.

    Raises:
        FileFormatError: The file cannot be read, or is not a description.
    """
    path = as_path(path, "path")
    try:
        with path.open("rb"):  # a file that is missing is not a damaged one
            pass
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        arrays = read_arrays(path, kinds="iufU")
        if "offset" in arrays:  # until version 0.3 the local frame had the axes of the scan
            arrays["T_scan_local"] = np.eye(4)
            arrays["T_scan_local"][:3, 3] = arrays["offset"]
        fields: dict[str, Any] = {k: torch.from_numpy(arrays[k].astype(kind)) for k, kind in _ARRAYS.items()}
        fields["T_scan_local"] = fields["T_scan_local"].numpy()
        fields["resolution"], fields["model"] = float(arrays["resolution"]), str(arrays["model"])
        if "viewpoint" in arrays:
            fields["viewpoint"] = Viewpoint.read(arrays["viewpoint"], str(arrays["viewpoint_source"]))
            fields["range_image"] = RangeImage.read(arrays["local_viewpoint"], arrays["free_ranges"])
    except Exception as error:  # damaged zip files and arrays raise many kinds of exceptions
        raise FileFormatError(
            f"{path}: not a description written by `wsdesc describe`; `register` takes scans"
        ) from error
    if not _is_consistent(fields):
        raise FileFormatError(
            f"{path}: the arrays of this description do not fit each other: describe the scan again"
        )
    return fields


def _is_consistent(fields: dict[str, Any]) -> bool:
    """Return whether the shapes of the arrays fit each other and their numbers are valid."""
    points, order, descriptors, frames, T_scan_local = (fields[name] for name in _ARRAYS)
    if points.ndim == 0 or descriptors.ndim != 2:
        return False
    count, described = len(points), len(descriptors)
    shapes = points.shape == (count, 3) and count > 0 and order.ndim == 1
    return (
        shapes
        and frames.shape == (described, 3, 3)
        and described <= len(order)
        and T_scan_local.shape == (4, 4)
        and bool(is_rigid(T_scan_local))
        and 0 < fields["resolution"] < float("inf")
        and bool(((order >= 0) & (order < count)).all())
        and all(bool(numbers.isfinite().all()) for numbers in (points, descriptors, frames))
    )
