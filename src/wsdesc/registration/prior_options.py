"""Options that say what is known about a pose beforehand. Without torch, so that the CLI checks them at once.

The types accept what users have at hand (arrays, names of axes) and store plain tuples of numbers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PlainValidator, ValidationInfo, field_validator

from wsdesc.core.errors import WSDescError
from wsdesc.core.options import Options

Vector = tuple[float, float, float]
if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from wsdesc.registration.result import Registration

    InitialPose = ArrayLike | Registration | str | os.PathLike[str] | None
    DirectionOption = str | Sequence[float] | Sequence[str | Sequence[float]] | NDArray[Any] | None
else:
    DirectionOption = InitialPose = Any  # `wsdesc --help` does not wait for NumPy

_AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}
_DIRECTIONS = _AXES | {f"-{name}": (-x, -y, -z) for name, (x, y, z) in _AXES.items()}
_FORMS = '"x", "y", "z", "-x", "-y", "-z", or three numbers that are not all zero'


def _read_matrix(value: Any) -> Any:
    if value is None:
        return None
    from wsdesc.core.geometry import check_rigid

    value = getattr(value, "T_target_source", value)  # of a result
    try:
        if isinstance(value, str | os.PathLike):
            from wsdesc.registration.pose_file import read_pose

            value = read_pose(value)
        return tuple(map(tuple, check_rigid(value, "the pose").tolist()))
    except WSDescError as error:
        raise ValueError(str(error)) from error


def _read_directions(value: Any) -> Any:
    """Return the unit vectors of source and target; one direction is for both."""
    if value is None:
        return None
    if isinstance(value, str) or len(_as_list(value)) == 3:
        direction = read_direction(value)
        return direction, direction
    pair = _as_list(value)
    if len(pair) != 2:
        raise ValueError(f"one direction, or two for source and target, are needed: {_FORMS}")
    return tuple(map(read_direction, pair))


def read_direction(value: Any) -> Vector:
    """Return the unit vector of a direction.

    Raises:
        ValueError: It is neither the name of an axis nor three numbers.
    """
    if isinstance(value, str):
        if value.strip().lower() not in _DIRECTIONS:
            raise ValueError(f"{value!r} is no direction: {_FORMS}")
        return _DIRECTIONS[value.strip().lower()]
    try:
        vector = [float(number) for number in value]
    except (TypeError, ValueError):
        vector = []
    largest = max(map(abs, vector), default=0.0)
    if len(vector) != 3 or not all(map(math.isfinite, vector)) or largest == 0:
        raise ValueError(f"a direction is {_FORMS}")
    scaled = [number / largest for number in vector]  # squares of tiny numbers would be zero
    x, y, z = (number / math.hypot(*scaled) for number in scaled)
    return x, y, z


def _as_list(value: Any) -> list[Any]:
    try:
        return list(value)
    except TypeError:
        return []


Matrix = Annotated[tuple[tuple[float, ...], ...] | None, PlainValidator(_read_matrix)]
"""Type of an option that takes a rigid transformation (4, 4), the result that holds one, or its file."""

Directions = Annotated[tuple[Vector, Vector] | None, PlainValidator(_read_directions)]
"""Type of an option that takes a direction: a name or a vector for both scans, or one for each."""


class PriorOptions(Options):
    """What is known about the pose beforehand. By default nothing is."""

    initial: Matrix = Field(
        None,
        description="Initial pose T_target_source, in the scans' coordinates: one more hypothesis. On the "
        "command line, a text file of its four rows, or the .json file of a result.",
    )
    search_radius: float | None = Field(
        None,
        ge=0,
        description="Largest distance from the initial pose, at the middle of the source, in the scans' unit "
        "(default: no limit). 0, with max_angle 0: refinement of the initial pose only.",
    )
    max_angle: float | None = Field(
        None, ge=0, le=180, description="Largest rotation from the initial pose, in degrees (default: any)."
    )
    up: Directions = Field(
        None,
        description="Up in the scans' coordinates: x, y, z, -x, -y, -z or X,Y,Z; two of them are for source "
        "and target. Poses that tilt by more than max_tilt are dropped.",
    )
    axis: Directions = Field(
        None,
        description="Axis of the rotation, in the same forms as up. The pose rotates about it exactly: no "
        "tilt remains.",
    )
    max_tilt: float = Field(
        5.0, gt=0, le=180, description="Largest tilt of a pose against up or axis, in degrees."
    )
    overlap_at_least: float = Field(
        0.0, ge=0, le=1, description="Least overlap, 0 … 1, of the scan that overlaps more."
    )

    @field_validator("search_radius", "max_angle")
    @classmethod
    def _need_initial(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("initial", 0) is None:
            raise ValueError("it limits the distance from an initial pose: give initial too")
        return value

    @field_validator("axis")
    @classmethod
    def _not_beside_up(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("up") is not None:
            raise ValueError("it includes up: give one of them")
        return value
