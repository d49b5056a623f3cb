"""Numbers and arrays as JSON holds them: None stands for what JSON cannot write."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def float_or_none(value: Any) -> float | None:
    """Convert a number; None stays None."""
    return None if value is None else float(value)


def finite_or_none(value: float) -> float | None:
    """Return a number, or None for an infinite one and NaN: JSON has neither."""
    return value if math.isfinite(value) else None


def infinite_if_none(value: Any) -> float:
    """Convert a number; None becomes infinity."""
    return math.inf if value is None else float(value)


def nan_if_none(value: float | None) -> float:
    """Convert a number; None becomes NaN."""
    return math.nan if value is None else float(value)


def array_or_none(values: Any, shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    """Convert finite numbers of a shape; None stays None.

    Raises:
        ValueError: A number is not finite, or the shape differs.
    """
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"expected finite numbers of shape {shape}")
    return array
