"""Base class of all option models: validated, immutable, with one-line errors, stored as YAML."""

from __future__ import annotations

import difflib
import math
import re
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import InputError

_MAX_INTEGER = 2**53  # no count or seed needs more

NameOrPath = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)]
"""Type of an option that takes a name, or a path as text or as `Path`."""


def _check_position(value: Any) -> Any:
    if value is None or (isinstance(value, str) and value == "none"):
        return value
    try:
        numbers = tuple(float(number) for number in value)
    except (TypeError, ValueError):
        numbers = ()
    if isinstance(value, str) or len(numbers) != 3 or not all(map(math.isfinite, numbers)):
        raise ValueError('three finite numbers x, y, z are needed, or "none"')
    return numbers


Position = Annotated[Literal["none"] | tuple[float, float, float] | None, PlainValidator(_check_position)]
"""Type of an option that takes a position (x, y, z), as numbers or as an array, "none", or None."""


def rephrase(message: str, value: Any = None) -> str:
    """Rephrase a message of pydantic: "must be …, not VALUE"; messages of our own stay as they are."""
    if message.startswith("Tuple should have at least "):
        return "must not be empty"
    if not message.startswith("Input should be "):
        return message.removeprefix("Value error, ")
    requirement = re.sub(", (unable|got) .*", "", message.replace("Input should be ", "must be ", 1))
    requirement = requirement.replace("a valid tuple", "a sequence").replace("a valid string", "text")
    return f"{requirement}, not {value!r}" if isinstance(value, str | int | float) else requirement


def _plain_value(value: Any) -> Any:
    """Convert a number of NumPy or torch to one of Python, and a `torch.device` to its name."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    kind = type(value)
    return str(value) if (kind.__module__, kind.__name__) == ("torch", "device") else value


def _alternatives(annotation: Any) -> list[Any]:
    """Return the types of a union, without their constraints."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [one for member in get_args(annotation) for one in _alternatives(member)]
    return [annotation]


class Options(BaseModel):
    """Options of one subject. Every field has a default and a description; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _check_type(cls, value: Any, info: ValidationInfo) -> Any:
        value = _plain_value(value)
        if isinstance(value, bool) and info.field_name is not None:
            types = _alternatives(cls.model_fields[info.field_name].annotation)
            if bool not in types and (int in types or float in types):
                raise ValueError(f"must be a number, not {value}")
        return value

    @field_validator("*")
    @classmethod
    def _check_magnitude(cls, value: Any) -> Any:
        if isinstance(value, int) and abs(value) > _MAX_INTEGER:
            raise ValueError("the number is too large")
        return value

    @classmethod
    def read(cls, values: dict[str, Any]) -> Self:
        """Validate values by option name.

        Raises:
            InputError: An option is unknown or its value is invalid; only the first problem is reported.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problem = error.errors(include_context=False, include_url=False)[0]
            location = problem["loc"]
            name = ".".join(map(str, location)) or "options"
            if problem["type"] == "extra_forbidden":
                raise InputError(f"unknown option {name!r}{cls._suggestion(location)}") from error
            raise InputError(f"{name}: {rephrase(problem['msg'], problem['input'])}") from error

    @classmethod
    def load(cls, path: str | Path, **changes: Any) -> Self:
        """Read a YAML file; `changes` replace values of the file.

        Raises:
            FileFormatError: The file is not readable YAML.
            InputError: An option is unknown or its value is invalid.
        """
        from wsdesc.core.plain_yaml import read_yaml

        try:
            return cls.read({**read_yaml(path), **changes})
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write all options into a YAML file."""
        import yaml

        with atomic_write(path) as temporary:
            temporary.write_text(yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False), "utf-8")

    @classmethod
    def _suggestion(cls, location: tuple[int | str, ...]) -> str:
        """Return what to write instead of an unknown option: the nearest name, or all names."""
        group: Any = cls
        for name in location[:-1]:
            annotation = group.model_fields[name].annotation
            # the type of a group of options, or of an optional one
            types = (annotation, *get_args(annotation))
            group = next(t for t in types if isinstance(t, type) and issubclass(t, Options))
        near = difflib.get_close_matches(str(location[-1])[:100], group.model_fields, n=1)
        return f": did you mean {near[0]!r}?" if near else f"; options are: {', '.join(group.model_fields)}"
