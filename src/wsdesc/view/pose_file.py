"""Read the pose of a .json or text file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import Floats, check_rigid


def read_pose(path: str | Path) -> Floats:
    """Read a pose `T_target_source` (4, 4).

    Args:
        path: A .json file that `Registration.save` wrote or that holds the matrix only; otherwise text
            with four rows of four numbers.

    Raises:
        FileFormatError: The file cannot be read, or holds no rigid transformation.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        values: Any = json.loads(text) if path.suffix.lower() == ".json" else _parse_rows(text)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # of JSON, of numbers, of the text's encoding
        raise FileFormatError(f"{path}: contains no pose: {error}") from error
    if isinstance(values, dict):
        if "T_target_source" not in values:
            raise FileFormatError(f"{path}: contains no pose: the key T_target_source is missing")
        values = values["T_target_source"]
    try:
        T = check_rigid(values, "T_target_source")
        if T.shape != (4, 4):
            raise InputError("T_target_source must be one 4 × 4 matrix")
    except (InputError, OverflowError) as error:
        raise FileFormatError(f"{path}: contains no pose: {error}") from error
    return T


def _parse_rows(text: str) -> list[list[float]]:
    return [[float(word) for word in line.split()] for line in text.splitlines() if line.strip()]
