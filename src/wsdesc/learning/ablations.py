"""Train the rows of the paper's ablation table: the function behind `wsdesc ablate`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.core.executors import end_if_starting
from wsdesc.core.file_parts import as_path, training_paths
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.evaluation.methods import load_methods
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.evaluation.threedmatch import run_threedmatch
from wsdesc.learning.data import TrainingData, load_training_data
from wsdesc.learning.options import ABLATION_STEPS, TrainOptions
from wsdesc.learning.run import StepHook, TrainingRun, TrainingSource, run_training
from wsdesc.learning.run_folder import OPTIONS_FILE, WEIGHTS_FILE
from wsdesc.learning.training import Scans, change, time_limit

FULL, ORACLE, SMOOTHNET = "full", "oracle", "3DSmoothNet"

# Changes of each row, by the paper's names. LLS: learned support. LP, GP: supports by a local and a global
# PointNet. LRF: local reference frames. w: weights of matches. L_o, L_c: terms of the loss.
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
EXTRA_ROWS = (SMOOTHNET,)  # trained only by name
_SUPERVISED = {ORACLE: FULL, SMOOTHNET: "w/o LLS"}  # the same variant, trained on poses
_ALL_ROOMS = 1_000_000  # keep all synthetic rooms: each row uses them again

RowHook = Callable[[str, Path], StepHook]
"""Called with a row and its folder before its training; returns the hook of its steps."""


def ablate(
    scans: Scans | None = None,
    out: str | Path = "runs/ablation",
    *,
    rows: Sequence[str] | None = None,
    options: TrainOptions | str | Path | None = None,
    steps: int = ABLATION_STEPS,
    seed: int | None = None,
    synthetic: float | None = None,
    device: str = "auto",
    minutes: float | None = None,
    progress: ProgressHook | None = None,
    on_row: RowHook | None = None,
) -> dict[str, TrainingRun]:
    """Train every row of the paper's ablation table on the same pairs in the same order.

    Each row has a folder of its own below `out`. Finished rows are not trained again, and stopped ones
    continue.

    Args:
        scans: Folders or files of scans, in the order of their names; None: synthetic rooms.
        out: Folder of the runs.
        rows: Names of rows, for example "full", "w/o LRF", "oracle" or "3DSmoothNet"; None: all but
            "3DSmoothNet".
        options: Options that all rows share, or a YAML file of them.
        steps: Number of training steps per row.
        seed: Seed of all random choices.
        synthetic: Share of steps on synthetic rooms, 0 … 1.
        device: "cpu", "cuda" or "auto".
        minutes: Stop after this time with a checkpoint.
        progress: Hook for the steps before the training.
        on_row: Called before the training of each row; returns the hook of its steps.

    Returns:
        The run of each row, in the given order; `finished` is False for rows that are not trained yet.

    Raises:
        InputError: A row is unknown or options are invalid.
    """
    end_if_starting()
    out = as_path(out, "out")
    names = list(rows or ROWS)
    unknown = [row for row in names if row not in (*ROWS, *EXTRA_ROWS)]
    if unknown:
        raise InputError(f"unknown row {unknown[0]!r}: choose from {', '.join((*ROWS, *EXTRA_ROWS))}")
    base = TrainOptions.load(options) if isinstance(options, str | Path) else options or TrainOptions()
    paths = [str(scan) for scan in training_paths(scans)]
    changes = {"steps": steps, "seed": seed, "data": {"rooms": _ALL_ROOMS, "synthetic": synthetic}}
    base = change(base, {**changes, "scans": paths or None})
    if all((out / folder_name(row) / WEIGHTS_FILE).is_file() for row in names):
        return {row: _finished_run(out / folder_name(row)) for row in names}
    chosen = choose_device(device)
    data = load_training_data(base.scans, base, progress=progress or no_progress)
    return train_rows(names, base, data, out, device=chosen, stop_after=time_limit(minutes), on_row=on_row)


def train_rows(
    rows: Sequence[str],
    base: TrainOptions,
    data: TrainingData,
    out: Path,
    *,
    device: str = "cpu",
    stop_after: float = float("inf"),
    on_row: RowHook | None = None,
) -> dict[str, TrainingRun]:
    """Train rows on loaded data, which is closed at the end; see `ablate`."""
    end = time.monotonic() + stop_after
    runs: dict[str, TrainingRun] = {}
    try:
        for row in rows:
            folder = out / folder_name(row)
            options = variant(row, base)
            seconds = end - time.monotonic()
            if (folder / WEIGHTS_FILE).is_file():
                runs[row] = _finished_run(folder)
            elif seconds <= 0:
                runs[row] = TrainingRun(folder, options, 0, None)
            else:
                torch.compiler.reset()  # it compiles a function for a few models only
                on_step: StepHook = on_row(row, folder) if on_row else lambda progress: None
                runs[row] = run_training(
                    options,
                    _row_source(data, options),
                    folder,
                    device=device,
                    resume=True,
                    stop_after=seconds,
                    on_step=on_step,
                )
    finally:
        data.source.close()
    return runs


def evaluate_rows(
    runs: dict[str, TrainingRun],
    test: str | Path,
    out: str | Path,
    *,
    keypoints: int = 5000,
    device: str = "auto",
    progress: ProgressHook | None = None,
) -> list[BenchmarkResults]:
    """Evaluate the finished rows on test scenes, as they are and rotated at random.

    Args:
        runs: Runs of `ablate`.
        test: Folder in the layout of 3DMatch.
        out: Folder of the results.
        keypoints: Keypoints per test scan.
        device: "cpu", "cuda" or "auto".
        progress: Hook for progress bars.

    Returns:
        Results on the scans as they are, and on rotated ones.
    """
    models = [f"{row}={run.weights}" for row, run in runs.items() if run.finished]
    methods = load_methods(models, [], choose_device(device))
    return [
        run_threedmatch(
            Path(test),
            methods,
            PairwiseOptions(keypoints=(keypoints,), rotated=rotated),
            Path(out),
            command="wsdesc ablate",
            progress=progress,
        )
        for rotated in (False, True)
    ]


def variant(row: str, base: TrainOptions) -> TrainOptions:
    """Return the options `base` with the changes of a row."""
    changes: dict[str, Any] = dict(VARIANTS[_SUPERVISED.get(row, row)])
    if row in _SUPERVISED:
        changes["oracle"] = "batch-hard"
    return change(base, changes)


def folder_name(row: str) -> str:
    """Return a valid file name for a row: "w/o w_f" becomes "without-w_f"."""
    return re.sub(r"\W+", "-", row.replace("w/o", "without").replace("w/", "with")).strip("-")


def _finished_run(folder: Path) -> TrainingRun:
    options = TrainOptions.load(folder / OPTIONS_FILE)
    return TrainingRun(folder, options, options.steps, folder / WEIGHTS_FILE)


def _row_source(data: TrainingData, options: TrainOptions) -> TrainingSource:
    if options.oracle:
        from wsdesc.learning.oracle import oracle_source

        return oracle_source(data, options)
    return _SharedSource(data.source)


class _SharedSource:
    """A source that several rows use; closing it has no effect."""

    def __init__(self, source: TrainingSource) -> None:
        self._source = source

    def pair(self, index: int) -> tuple[Tensor, ...]:
        """Return the pair of the source."""
        return self._source.pair(index)

    def close(self) -> None:
        """Do nothing: other rows need the source."""
