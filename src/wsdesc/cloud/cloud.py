"""`Cloud`, a point cloud with attributes, and checks of point arrays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from wsdesc.cloud.formats.attributes import NORMAL_ARRAYS, NORMAL_COLUMNS
from wsdesc.cloud.storage import Storage
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import rotate, transform
from wsdesc.core.similarity import check_similarity, split_similarity


@dataclass(eq=False)
class Cloud:
    """Points of a scan with their attributes, in the coordinates and the unit of length of the file.

    Attributes:
        points: (N, 3) float64, finite.
        attributes: Name in the file -> array with N rows (colours, intensity, normals, …).
        dropped: Number of points of the file that were dropped because they were not finite.
        storage: How the file stores the cloud, for `write_cloud`; None if it is not from a file.
        viewpoint: (3,) float64, position of the scanner as the file states it; None if it does not.
        sampled: Whether the points were sampled on the surface of a mesh, which no scanner saw.
        file: Path of the file, for messages; None if the cloud is not from a file.
    """

    points: np.ndarray
    attributes: dict[str, np.ndarray] = field(default_factory=dict)
    dropped: int = 0
    storage: Storage | None = None
    viewpoint: np.ndarray | None = None
    sampled: bool = False
    file: Path | None = None

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        parts = [f"{len(self):,} points"]
        if self.attributes:
            parts.append(f"attributes {', '.join(self.attributes)}")
        if self.dropped:
            parts.append(f"{self.dropped:,} points dropped")
        if self.viewpoint is not None:
            parts.append(f"viewpoint ({', '.join(f'{value:.6g}' for value in self.viewpoint)})")
        if self.file is not None:
            parts.append(f"file {self.file}")
        return f"Cloud({'; '.join(parts)})"

    def transformed(self, T: Any) -> Cloud:
        """Return a copy that is moved by the pose T (4, 4). Normals among the attributes are rotated.

        Raises:
            InputError: T is neither a rigid transformation nor a similarity.
        """
        T = check_similarity(as_array(T), "T")
        attributes = _rotate_normals(self.attributes, split_similarity(T)[0])
        viewpoint = None if self.viewpoint is None else transform(self.viewpoint[None], T)[0]
        return replace(self, points=transform(self.points, T), attributes=attributes, viewpoint=viewpoint)


def _rotate_normals(attributes: dict[str, np.ndarray], T: np.ndarray) -> dict[str, np.ndarray]:
    rotated = dict(attributes)
    for names in NORMAL_COLUMNS:
        if all(name in rotated and rotated[name].ndim == 1 for name in names):
            normals = rotate(np.stack([rotated[name] for name in names], axis=1), T)
            rotated |= {n: normals[:, k].astype(rotated[n].dtype) for k, n in enumerate(names)}
    for name in NORMAL_ARRAYS:
        if name in rotated and rotated[name].shape[1:] == (3,):
            rotated[name] = rotate(rotated[name], T).astype(rotated[name].dtype)
    return rotated


def as_array(values: Any) -> np.ndarray:
    """Convert anything array-like to a NumPy array; torch tensors are detached and moved to the CPU."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values)


def as_points(points: Any) -> np.ndarray:
    """Convert points to a NumPy array (N, 3) of real numbers, N ≥ 1, without changing their type.

    Raises:
        InputError: The shape or the type is wrong, or the array is empty.
    """
    array = as_array(points)
    if array.ndim == 0:
        raise InputError(f"points must be an array (N, 3), not {type(points).__name__}")
    if array.ndim != 2 or array.shape[1] != 3:
        raise InputError(wrong_shape(array.shape))
    if array.dtype.kind not in "iuf":
        raise InputError(f"points must be real numbers, not {array.dtype}")
    if len(array) == 0:
        raise InputError("the cloud has no points: at least one is needed")
    return array


def wrong_shape(shape: tuple[int, ...]) -> str:
    """Say which shape points must have instead of this one, and what to do."""
    is_transposed = len(shape) == 2 and shape[0] == 3
    advice = "pass the transposed array" if is_transposed else "one row for each point"
    return f"points must have the shape (N, 3), not {shape}: {advice}"


def all_finite(points: np.ndarray) -> bool:
    """Return whether no value is NaN or infinite; the extremes take less memory than a mask."""
    return bool(np.isfinite(points.min()) and np.isfinite(points.max()))


def dropped_warnings(name: str, dropped: int) -> list[str]:
    """Say how many points of a scan were dropped because they were not finite; nothing if none were."""
    return [f"{name}: {dropped} points that are not finite were ignored."] if dropped else []
