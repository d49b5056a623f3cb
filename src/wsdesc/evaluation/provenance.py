"""Record which command produced results, on which machine and on which day.

The results of one folder may come from several runs, for example of models on a GPU and of peers elsewhere.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError
from wsdesc.core.folders import make_folder

RUNS = "runs.json"


@dataclass(frozen=True)
class Run:
    """A command that added results."""

    command: str
    machine: str
    date: str  # ISO 8601, UTC


def this_run(command: str) -> Run:
    """Describe a command on this machine, today."""
    return Run(command, machine(), datetime.now(UTC).date().isoformat())


class RunLog:
    """The runs that results of a folder come from. The present run is added with its first new result."""

    def __init__(self, folder: Path, command: str, fresh: bool = False) -> None:
        self._path, self._present = folder / RUNS, this_run(command)
        self.runs = [] if fresh else _read(self._path)

    def add_present(self) -> None:
        """Add the present run, once."""
        if self._present not in self.runs:
            self.runs.append(self._present)
            make_folder(self._path.parent)
            text = json.dumps([asdict(run) for run in self.runs], indent=1, ensure_ascii=False)
            with atomic_write(self._path) as temporary:
                temporary.write_text(text + "\n", encoding="utf-8")


def _read(path: Path) -> list[Run]:
    if not path.is_file():
        return []
    try:
        return [Run(**values) for values in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise FileFormatError(f"{path}: not a list of runs ({error}); start again with --fresh") from error


def machine() -> str:
    """Return processor, GPU and versions in one line."""
    import torch

    parts = [f"{_processor()}, {os.cpu_count()} cores"]
    parts += [f"{torch.cuda.get_device_name()}, bf16"] if torch.cuda.is_available() else []
    return ", ".join([*parts, f"Python {sys.version.split()[0]}", f"torch {torch.__version__}"])


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
