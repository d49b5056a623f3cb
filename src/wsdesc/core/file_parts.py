"""Paths and lists that users pass, and names of parts of files: `scans.e57#2` is a station in scans.e57."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from wsdesc.core.errors import InputError

_PART = re.compile(r"(.+\.\w+)#(\d{1,9})")


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Return a path with ~ at its start replaced by the home folder."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - names such as ~$a.csv stay as they are


def as_path(value: Any, name: str) -> Path:
    """Return text or a path-like object as a `Path`; ~ at its start is the home folder.

    Args:
        value: The path.
        name: Name of the argument in error messages.

    Raises:
        InputError: It is something else.
    """
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name} must be a path, not {type(value).__name__}")
    return expand_home(value)


def is_several(value: Any) -> TypeGuard[Iterable[Any]]:
    """Return whether this is a collection of values, and not text, a path, a mapping or an open file."""
    single = str | bytes | os.PathLike | Mapping | io.IOBase
    return isinstance(value, Iterable) and not isinstance(value, single)


def as_list(values: Any, name: str) -> list[Any]:
    """Return the values of a collection as a list.

    Args:
        values: The collection.
        name: Name of the argument in error messages.

    Raises:
        InputError: It is something else.
    """
    if not is_several(values):
        raise InputError(f"{name} must be a list, not {type(values).__name__}")
    return list(values)


def training_paths(scans: Any) -> list[Path]:
    """Return the folders and files of scans that a training reads; None is an empty list.

    Raises:
        InputError: The list is empty, or a scan is not a path. The options of a run name its scans, so that
            it can be resumed.
    """
    if scans is None:
        return []
    paths = list(scans) if is_several(scans) else [scans]
    if not paths:
        raise InputError(
            "scans is an empty list: name at least one folder or file, or leave the argument out"
        )
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise InputError(
                f"training reads files and folders of scans, not {type(path).__name__}: write scans in "
                "memory to files with wsdesc.write_cloud"
            )
    return [expand_home(path).absolute() for path in paths]


def split_part(path: str | Path) -> tuple[Path, int | None]:
    """Split `scans.e57#2` into the file and the number of the part, which counts from 1.

    The number is None if there is none, or if a file has exactly this name.
    """
    path = expand_home(path)
    part = _PART.fullmatch(path.name)
    try:
        if part is None or path.exists():
            return path, None
    except OSError:  # the caller finds out why the file cannot be read
        return path, None
    return path.with_name(part[1]), int(part[2])
