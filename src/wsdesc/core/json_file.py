"""Read JSON files that this package wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wsdesc.core.errors import FileFormatError
from wsdesc.core.file_parts import as_path


def read_object(path: str | Path, *, largest: int, kind: str, invalid: str) -> dict[str, Any]:
    """Read a JSON file that contains an object.

    Args:
        path: The file.
        largest: Largest size in bytes.
        kind: Name of the expected content, with its article, for messages.
        invalid: Message about other content, after the name of the file.

    Raises:
        InputError: `path` is not a path.
        FileFormatError: The file cannot be read, is too large, or contains something else.
    """
    path = as_path(path, f"the file of {kind}")
    try:
        if path.stat().st_size > largest:
            raise FileFormatError(f"{path}: too large for {kind}")
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: {invalid}") from error
    if not isinstance(values, dict):
        raise FileFormatError(f"{path}: {invalid}")
    return values
