"""What all groups of options share: they are validated, stay as they are, and say in a line what is wrong."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from wsdesc.cloud.atomic import atomic_write
from wsdesc.errors import FileFormatError, InputError


class Options(BaseModel):
    """A subject's options. Every field has a default; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def read(cls, values: dict[str, Any]) -> Self:
        """Validate `values`; the first thing that is wrong becomes one readable `InputError`."""
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "options"
            if first["type"] == "extra_forbidden":
                raise InputError(f"unknown option {where!r}" + cls._suggestion(first["loc"])) from error
            raise InputError(f"{where}: {first['msg']}") from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a YAML file."""
        import yaml

        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise FileFormatError(f"{path}: not a YAML file that can be read ({error})") from error
        if not isinstance(values, dict):
            raise FileFormatError(f"{path}: should hold names and values, not {type(values).__name__}")
        try:
            return cls.read(values)
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
            group = group.model_fields[name].annotation
        near = difflib.get_close_matches(str(place[-1]), group.model_fields, n=1)
        return f": did you mean {near[0]!r}?" if near else ""
