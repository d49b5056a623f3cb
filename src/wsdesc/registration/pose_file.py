"""Read the pose of a .json or text file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from wsdesc.core.errors import FileFormatError, InputError, WSDescError
from wsdesc.core.file_parts import as_path
from wsdesc.core.geometry import Floats
from wsdesc.core.similarity import check_similarity

_LARGEST_TEXT = 10_000  # bytes of a matrix as text


def read_pose(path: str | os.PathLike[str]) -> Floats:
    """Read a pose `T_target_source` (4, 4).

    Args:
        path: A .json file that `Registration.save` wrote or that holds the matrix only; otherwise text
            with four rows of four numbers. Further matrices after a line that begins with # are ignored.

    Raises:
        FileFormatError: The file cannot be read, or holds no rotation and translation, perhaps with a scale.
    """
    path = as_path(path, "the file of a pose")
    values = _read_values(path)
    if isinstance(values, dict):
        if "T_target_source" not in values:
            raise FileFormatError(f"{path}: contains no pose: the key T_target_source is missing")
        values = values["T_target_source"]
    try:
        return check_similarity(values, "T_target_source")
    except InputError as error:
        raise FileFormatError(f"{path}: contains no pose: {error}") from error


def is_pose_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is meant to hold a pose: it is .json, or text with four rows of four numbers."""
    path = Path(path)
    if path.suffix.lower() == ".json":
        return True
    try:
        if path.suffix.lower() not in ("", ".txt", ".mat") or path.stat().st_size > _LARGEST_TEXT:
            return False
        rows = _read_values(path)
    except (OSError, WSDescError):
        return False
    return [len(row) for row in rows] == [4, 4, 4, 4]


def _read_values(path: Path) -> Any:
    """Read the JSON values of a .json file, or the rows of the first matrix of a text file."""
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix.lower() == ".json" else _parse_rows(text)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path}: contains no pose: it is not a text file") from error
    except json.JSONDecodeError as error:
        problem = f"invalid JSON in line {error.lineno}" if text.strip() else "the file is empty"
        raise FileFormatError(f"{path}: contains no pose: {problem}") from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: contains no pose: {error}") from error


def _parse_rows(text: str) -> list[list[float]]:
    rows: list[list[float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            if rows:  # the next matrix
                break
        elif line.strip():
            try:
                rows.append([float(word) for word in line.split()])
            except ValueError as error:
                raise ValueError(f"line {number} has words that are not numbers") from error
    if not rows:
        raise ValueError("the file has no numbers")
    return rows
