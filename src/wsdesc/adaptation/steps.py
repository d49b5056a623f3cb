"""Results of steps as JSON files: a stopped adaptation reads them instead of repeating the steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError


def read_step(file: Path) -> Any:
    """Read the result of a step.

    Raises:
        FileFormatError: The file cannot be read.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{file}: damaged; delete it to repeat the step") from error


def write_step(file: Path, values: Any) -> None:
    """Write the result of a step, atomically."""
    with atomic_write(file) as temporary:
        temporary.write_text(json.dumps(values), encoding="utf-8")
