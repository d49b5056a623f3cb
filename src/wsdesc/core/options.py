"""What all groups of options share: they are validated, stay as they are, and say in a line what is wrong."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import InputError

_LARGEST = 2**53  # of whole numbers, which no count or seed needs to exceed


class Options(BaseModel):
    """A subject's options. Every field has a default; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _check_magnitude(cls, value: Any) -> Any:
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise ValueError("is too large a number")
        return value

    @classmethod
    def read(cls, values: dict[str, Any]) -> Self:
        """Validate `values`; the first thing that is wrong becomes one readable `InputError`."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_context=False, include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "options"
            if first["type"] == "extra_forbidden":
                raise InputError(f"unknown option {where!r}" + cls._suggestion(first["loc"])) from error
            raise InputError(f"{where}: {first['msg']}") from error

    @classmethod
    def load(cls, path: str | Path, **changes: Any) -> Self:
        """Read a YAML file; `changes`, by name, stand in for what it says."""
        from wsdesc.core.plain_yaml import read_yaml

        try:
            return cls.read({**read_yaml(path), **changes})
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write a YAML file, whole or not at all."""
        import yaml

        with atomic_write(path) as temporary:
            temporary.write_text(yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False), "utf-8")

    @classmethod
    def _suggestion(cls, place: tuple[int | str, ...]) -> str:
        group: Any = cls
        for name in place[:-1]:
            kind = group.model_fields[name].annotation
            # a group, or a group that may be absent
            group = next(k for k in (kind, *get_args(kind)) if isinstance(k, type) and issubclass(k, Options))
        near = difflib.get_close_matches(str(place[-1])[:100], group.model_fields, n=1)
        return f": did you mean {near[0]!r}?" if near else ""
