"""What a scan is once it has been read: points, what the file says about each of them, nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wsdesc.core.errors import InputError


@dataclass
class Cloud:
    """Points of a scan in the coordinates and the length unit of its file.

    points: (N, 3) float64, finite.
    attributes: name in the file -> array whose first dimension is N (colours, intensity, normals, …).
    dropped: how many points of the file were left out because they were not finite.
    """

    points: np.ndarray
    attributes: dict[str, np.ndarray] = field(default_factory=dict)
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.points)


def as_array(values: Any) -> np.ndarray:
    """A numpy array of anything array-like; torch tensors are detached and brought to the CPU."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values)


def as_points(points: Any) -> np.ndarray:
    """(N, 3) real numbers, N ≥ 1, as a numpy array of the type they came in, or an InputError."""
    array = as_array(points)
    if array.ndim != 2 or array.shape[1] != 3:
        raise InputError(f"points must have the shape (N, 3), not {array.shape}")
    if array.dtype.kind not in "iuf":
        raise InputError(f"points must be real numbers, not {array.dtype}")
    if len(array) == 0:
        raise InputError("there are no points")
    return array


def all_finite(points: np.ndarray) -> bool:
    """Whether no value is NaN or infinite; the extremes tell, at a fraction of the memory of a mask."""
    return bool(np.isfinite(points.min()) and np.isfinite(points.max()))
