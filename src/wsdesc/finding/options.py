"""Options of `wsdesc.find`. Without torch, so that the CLI checks options at once."""

from __future__ import annotations

from numbers import Integral
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from wsdesc.core.options import Options, Position


def _check_instances(value: Any) -> Any:
    if isinstance(value, str) and value == "all":
        return value
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1:
        return int(value)
    raise ValueError(f'must be a whole number of at least 1, or "all", not {value!r}')


Instances = Annotated[Literal["all"] | int, PlainValidator(_check_instances)]


class FindOptions(Options):
    """Options of the search for an object in a scene. The defaults suit most scenes."""

    instances: Instances = Field(
        "all", description="Largest number of instances to return, the most probable ones; or all."
    )
    resolution: float | None = Field(
        None,
        gt=0,
        description="Working resolution in the unit of the files (default: 1/50 of the object's diameter; "
        "up to 1/25 if the scene is sparse).",
    )
    viewpoint: Position = Field(
        None,
        description="Position of the scene's scanner, in its coordinates (default: from the file, or "
        "detected at the origin). none: no free space.",
    )
    hypotheses: int = Field(
        2500, ge=1, description="Poses that are verified on more points: the best of all that are proposed."
    )
    refined: int = Field(24, ge=1, description="Poses that are refined, those that fit the scene best.")
