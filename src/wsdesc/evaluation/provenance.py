"""Who measured what: the commands, machines and days that the results in a folder come from.

Results of one folder may come from several runs, say models on a machine with a GPU and peers on another.
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

RUNS = "runs.json"


@dataclass(frozen=True)
class Run:
    """A command that added results."""

    command: str
    machine: str
    date: str  # of the day, UTC

    def markdown(self) -> str:
        """The command in a block, and where and when under it."""
        return f"```\n{self.command}\n```\n\n{self.machine}; {self.date}.\n"


def this_run(command: str) -> Run:
    """The command here and today."""
    return Run(command, machine(), datetime.now(UTC).date().isoformat())


class Runs:
    """The runs of a folder. The present one joins them with its first new result."""

    def __init__(self, folder: Path, command: str, fresh: bool = False) -> None:
        self._path, self._now = folder / RUNS, this_run(command)
        self.all = [] if fresh else _read(self._path)

    def note(self) -> None:
        """The present run is about to add a result."""
        if self._now not in self.all:
            self.all.append(self._now)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps([asdict(run) for run in self.all], indent=1, ensure_ascii=False)
            with atomic_write(self._path) as temporary:
                temporary.write_text(text + "\n", encoding="utf-8")


def _read(path: Path) -> list[Run]:
    if not path.is_file():
        return []
    try:
        return [Run(**values) for values in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise FileFormatError(f"{path}: not a list of runs ({error}); --fresh begins anew") from error


def machine() -> str:
    """Processor, GPU and versions, in a line."""
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
