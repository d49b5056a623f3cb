"""TensorBoard's view of a run: the rows of its log as curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from wsdesc.core.errors import MissingExtraError

FOLDER = "tensorboard"  # in that of the run
_EVENTS = "events.out.tfevents.*"


class Writer(Protocol):
    """What is used of TensorBoard's writer."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


def check_installed() -> None:
    """Say what is missing before anything takes time."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("TensorBoard", "logs") from error


class Board:
    """Writes rows of a log for TensorBoard.

    The log is what counts, its picture is drawn anew whenever a run goes on: what a stop had taken back
    is gone here, too, and nothing is there twice.
    """

    def __init__(
        self,
        folder: Path,
        rows: Iterable[dict[str, Any]] = (),
        make: Callable[[Path], Writer] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(_EVENTS):
            old.unlink()
        self._writer = (make or _writer)(folder)
        for row in rows:
            self.add(row)

    def add(self, row: dict[str, Any]) -> None:
        """Draw the numbers of one row."""
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and math.isfinite(value):
                held_out = name.startswith("held_out_")
                tag = f"held_out/{name.removeprefix('held_out_')}" if held_out else f"train/{name}"
                self._writer.add_scalar(tag, float(value), row["step"])
        self._writer.flush()  # a run may be killed at any time

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


def _writer(folder: Path) -> Writer:
    check_installed()
    from torch.utils.tensorboard import SummaryWriter

    writer: Writer = SummaryWriter(str(folder))
    return writer
