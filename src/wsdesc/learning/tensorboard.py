"""Write the log of a training for TensorBoard."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from wsdesc.core.errors import MissingExtraError

FOLDER = "tensorboard"  # in the folder of the run
_EVENTS = "events.out.tfevents.*"


class ScalarWriter(Protocol):
    """The methods of TensorBoard's `SummaryWriter` in use."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


def check_installed() -> None:
    """Check that TensorBoard is installed.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("TensorBoard", "logs") from error


class TensorBoardLog:
    """Write rows of a training log as TensorBoard scalars.

    Old event files are replaced: a resumed run has dropped the rows after its checkpoint, and each of the
    other rows must occur once.

    Args:
        folder: Folder of the event files.
        rows: Rows logged so far.
        make_writer: Function that opens a writer; None: TensorBoard's.
    """

    def __init__(
        self,
        folder: Path,
        rows: Iterable[dict[str, Any]] = (),
        make_writer: Callable[[Path], ScalarWriter] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(_EVENTS):
            old.unlink()
        self._writer = (make_writer or _open_writer)(folder)
        for row in rows:
            self.add(row)

    def add(self, row: dict[str, Any]) -> None:
        """Write the finite numbers of one row."""
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and math.isfinite(value):
                held_out = name.startswith("held_out_")
                tag = f"held_out/{name.removeprefix('held_out_')}" if held_out else f"train/{name}"
                self._writer.add_scalar(tag, float(value), row["step"])
        self._writer.flush()  # the run may be killed at any time

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()


def _open_writer(folder: Path) -> ScalarWriter:
    check_installed()
    from torch.utils.tensorboard import SummaryWriter

    writer: ScalarWriter = SummaryWriter(str(folder))
    return writer
