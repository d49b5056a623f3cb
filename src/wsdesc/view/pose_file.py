"""Read the pose of a .json or text file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import Floats, check_rigid

if TYPE_CHECKING:
    from wsdesc.registration.result import AlternativePose


def read_pose(path: str | Path) -> Floats:
    """Read a pose `T_target_source` (4, 4).

    Args:
        path: A .json file that `Registration.save` wrote or that holds the matrix only; otherwise text
            with four rows of four numbers. Further matrices after a line that begins with # are ignored.

    Raises:
        FileFormatError: The file cannot be read, or holds no rigid transformation.
    """
    path = Path(path)
    values = _read_values(path)
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


def read_alternatives(path: str | Path) -> tuple[list[AlternativePose], float]:
    """Read the alternatives of a .json file that `Registration.save` wrote, and its confidence.

    Other files have no alternatives.

    Raises:
        FileFormatError: The file cannot be read, or its alternatives are invalid.
    """
    from wsdesc.registration.result import Registration

    values = _read_values(Path(path))
    if not (isinstance(values, dict) and values.get("alternatives")):
        return [], 0.0
    result = Registration.load(path)
    return result.alternatives, result.confidence


def _read_values(path: Path) -> Any:
    """Read the JSON values of a .json file, or the rows of the first matrix of a text file."""
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix.lower() == ".json" else _parse_rows(text)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # of JSON, of numbers, of the text's encoding
        raise FileFormatError(f"{path}: contains no pose: {error}") from error


def _parse_rows(text: str) -> list[list[float]]:
    rows: list[list[float]] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            if rows:  # the next matrix
                break
        elif line.strip():
            rows.append([float(word) for word in line.split()])
    return rows
