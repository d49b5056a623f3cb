"""The folder of a training run: write and read its files.

Files of a run's folder:

- `options.yaml`: options of the training, read again by a resumed run,
- `pairs.json`: overlapping pairs of the scans,
- `log.jsonl`: losses, support and held-out figures, one JSON object per line,
- `checkpoint.safetensors`: weights, optimizers and step,
- `model.safetensors`: the trained weights; `--model RUN_FOLDER` uses this file,
- `tensorboard/`: curves, if requested.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.folders import make_folder
from wsdesc.descriptor.model import WSDesc
from wsdesc.descriptor.pretrained import RUN_WEIGHTS
from wsdesc.learning.checkpoint import load_checkpoint, save_checkpoint
from wsdesc.learning.tensorboard import FOLDER, TensorBoardLog
from wsdesc.learning.trainer import Trainer

OPTIONS_FILE = "options.yaml"
PAIRS_FILE = "pairs.json"
LOG_FILE = "log.jsonl"
CHECKPOINT_FILE = "checkpoint.safetensors"
WEIGHTS_FILE = RUN_WEIGHTS


class RunFolder:
    """The files of a run; only the first process writes them."""

    def __init__(self, path: Path, writes: bool) -> None:
        self.path, self.writes = path, writes
        self.skipped = 0  # steps
        self.tensorboard: TensorBoardLog | None = None

    def open(self, trainer: Trainer, resume: bool, tensorboard: bool) -> int:
        """Create the folder or load its checkpoint; return the number of finished steps."""
        checkpoint = self.path / CHECKPOINT_FILE
        make_folder(self.path)
        if checkpoint.exists() and not resume:
            raise InputError(
                f"{self.path}: contains a training; continue it with --resume (resume=True) "
                "or choose another folder"
            )
        step = 0
        if resume and checkpoint.exists():
            step = load_checkpoint(checkpoint, trainer)
        else:
            _load_start(trainer)
        if self.writes:
            trainer.options.save(self.path / OPTIONS_FILE)
            rows = self._truncate_log(step)
            if tensorboard:
                self.tensorboard = TensorBoardLog(self.path / FOLDER, rows)
        return step

    def close(self) -> None:
        """Close the log for TensorBoard."""
        if self.tensorboard is not None:
            self.tensorboard.close()

    def _truncate_log(self, step: int) -> list[dict[str, Any]]:
        """Remove rows after the checkpoint, restore the count of skipped steps, return the remaining rows."""
        path = self.path / LOG_FILE
        rows = [row for row in read_log(path) if row["step"] <= step]
        self.skipped = next((row["skipped"] for row in reversed(rows) if "skipped" in row), 0)
        with atomic_write(path) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return rows

    def log(self, row: dict[str, Any]) -> None:
        """Append a row to the log."""
        path = self.path / LOG_FILE
        try:
            if self.writes:
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise FileFormatError(f"{path}: cannot be written: {error.strerror or error}") from error
        if self.tensorboard is not None:
            self.tensorboard.add(row)

    def save_checkpoint(self, trainer: Trainer, step: int) -> None:
        """Write the state after a step; see `load_checkpoint`."""
        if self.writes:
            save_checkpoint(self.path / CHECKPOINT_FILE, trainer, step)

    def save_weights(self, trainer: Trainer) -> Path:
        """Write the trained weights; return the file."""
        path = self.path / WEIGHTS_FILE
        if self.writes:
            trainer.model.save(path)
        return path


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a run's log, without a last line that was cut off.

    Raises:
        FileFormatError: The file is no log.
    """
    try:
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith(b"\n")]
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path}: not a training log ({error})") from error


def _load_start(trainer: Trainer) -> None:
    """Load the weights that `options.start` names."""
    name, options = trainer.options.start, trainer.options.descriptor
    if name is None:
        return
    start = WSDesc.from_pretrained(name)
    learned = {"support_start", "support_range"}
    current, saved = options.model_dump(exclude=learned), start.options.model_dump(exclude=learned)
    differ = [key for key in current if current[key] != saved[key]]
    if differ:
        raise InputError(f"{name}: descriptor options differ from those of the training: {', '.join(differ)}")
    trainer.load_start(start)
