"""Paths that users give, and names of parts of files: `scans.e57#2` is the second station in scans.e57."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from wsdesc.core.errors import InputError

_PART = re.compile(r"(.+\.\w+)#(\d{1,9})")


def as_path(value: Any, name: str) -> Path:
    """Return text or a path-like object as a `Path`.

    Args:
        value: The path.
        name: Name of the argument in error messages.

    Raises:
        InputError: It is something else.
    """
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name} must be a path, not {type(value).__name__}")
    return Path(value)


def split_part(path: str | Path) -> tuple[Path, int | None]:
    """Split `scans.e57#2` into the file and the number of the part, which counts from 1.

    The number is None if there is none, or if a file has exactly this name.
    """
    path = Path(path)
    part = _PART.fullmatch(path.name)
    try:
        if part is None or path.exists():
            return path, None
    except OSError:  # the caller finds out why the file cannot be read
        return path, None
    return path.with_name(part[1]), int(part[2])
