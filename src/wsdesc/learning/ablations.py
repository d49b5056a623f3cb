"""The rows of the paper's ablation table, and the oracle, as configurations of one training."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wsdesc.learning.data import TrainingData
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.run import WEIGHTS, Source, Watch
from wsdesc.learning.run import train as train_run

FULL, ORACLE, SMOOTHNET = "full", "oracle", "3DSmoothNet"

# What each row changes, by the paper's names: LLS learned support, LP and GP supports by a local and a global
# PointNet, LRF local frames, w the weights of matches, L_o and L_c the two terms of the loss.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    FULL: {},
    "w/o LLS": {"descriptor": {"support": "fixed"}},
    "w/ LP": {"descriptor": {"support": "local"}},
    "w/ GP": {"descriptor": {"support": "global"}},
    "w/o LRF": {"descriptor": {"use_frames": False}},
    "w/o w": {"loss": {"use_w_f": False, "use_w_sm": False}},
    "w/o w_f": {"loss": {"use_w_f": False}},
    "w/o w_sm": {"loss": {"use_w_sm": False}},
    "w/o L_o": {"loss": {"lambda_o": 0.0}},
    "w/o L_c": {"loss": {"lambda_c": 0.0}},
}
ROWS = (*VARIANTS, ORACLE)
_SUPERVISED = {ORACLE: FULL, SMOOTHNET: "w/o LLS"}  # the same, learning from poses
EXTRA = (SMOOTHNET,)  # what the paper began from: to be asked for by name


def variant(name: str, base: TrainOptions) -> TrainOptions:
    """The options `base` with what the row of this name changes."""
    values = base.model_dump()
    if name in _SUPERVISED:
        values["oracle"], name = "batch-hard", _SUPERVISED[name]
    for group, changes in VARIANTS[name].items():
        values[group].update(changes)
    return TrainOptions.read(values)


def folder_name(name: str) -> str:
    """A name that every file system takes: "w/o w_f" becomes "without-w_f"."""
    return re.sub(r"\W+", "-", name.replace("w/o", "without").replace("w/", "with")).strip("-")


class _Shared:
    """A source that outlives the rows it serves."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def pair(self, number: int) -> tuple[Tensor, ...]:
        """As of the source."""
        return self._source.pair(number)

    def close(self) -> None:
        """Not yet: another row will ask."""


def train_rows(
    rows: Sequence[str],
    base: TrainOptions,
    data: TrainingData,
    out: Path,
    *,
    device: str = "cpu",
    stop_after: float = math.inf,
    begin: Callable[[str, Path], Watch] = lambda row, folder: lambda progress: None,
) -> list[str]:
    """Train each row in a folder of its own below `out`, on the same pairs in the same order.

    Rows that are trained already are left as they are, one that was stopped goes on. `begin` hears of a row
    and its folder, and gives what watches its steps. Returns the rows that are not finished after
    `stop_after` seconds. The data are closed.
    """
    from wsdesc.learning.oracle import posed_source

    end = time.monotonic() + stop_after
    unfinished = []
    try:
        for row in rows:
            folder = out / folder_name(row)
            if (folder / WEIGHTS).is_file():
                continue
            options = variant(row, base)
            left = end - time.monotonic()
            if left <= 0:
                unfinished.append(row)
                continue
            source: Source = posed_source(data, options) if options.oracle else _Shared(data.source)
            torch.compiler.reset()  # it compiles each piece of code for a few models alone
            watch = begin(row, folder)
            done = train_run(
                options, source, folder, device=device, resume=True, stop_after=left, watch=watch
            )
            if done is None:
                unfinished.append(row)
    finally:
        data.source.close()
    return unfinished
