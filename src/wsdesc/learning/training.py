"""Train a descriptor on scans: the function behind `wsdesc train`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.core.executors import end_if_starting
from wsdesc.core.file_parts import as_path, training_paths
from wsdesc.core.folders import make_folder
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.descriptor import pretrained
from wsdesc.descriptor.model import WSDesc
from wsdesc.descriptor.options import DEFAULT_MODEL
from wsdesc.learning import distributed
from wsdesc.learning.data import TrainingData, load_training_data
from wsdesc.learning.losses import RigidityLoss
from wsdesc.learning.options import MatchLoss, PairMode, TrainOptions, preset_options
from wsdesc.learning.run import StepHook, TrainingRun, TrainingSource, run_training
from wsdesc.learning.run_folder import OPTIONS_FILE, PAIRS_FILE
from wsdesc.learning.trainer import Trainer
from wsdesc.learning.validation import Validation, ValidationPair, validate

Preset = Literal["indoor", "objects", "smoothnet", "small"]
Scans = str | Path | Sequence[str | Path]


def train(
    scans: Scans | None = None,
    out: str | Path = "runs/wsdesc",
    *,
    preset: Preset | str | None = None,
    options: TrainOptions | str | Path | None = None,
    start: str | Path | None = None,
    steps: int | None = None,
    seed: int | None = None,
    pairs: PairMode | None = None,
    window: int | None = None,
    synthetic: float | None = None,
    self_training: MatchLoss | None = None,
    oracle: MatchLoss | None = None,
    device: str = "auto",
    minutes: float | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    progress: ProgressHook | None = None,
    on_step: StepHook | None = None,
) -> TrainingRun:
    """Train a descriptor on unlabelled scans that overlap.

    The folder `out` receives the options, a log, checkpoints and, as `model.safetensors`, the trained
    weights. `WSDesc.from_pretrained(out)` and `--model` accept the folder. Arguments that are None keep the
    value of the preset or of `options`.

    Args:
        scans: Folders or files of scans, in the order of their names; None: synthetic rooms.
        out: Folder of the run.
        preset: "indoor" (default) or "objects", the paper's settings; "smoothnet", supervised 3DSmoothNet; or
            "small", which trains in minutes on a laptop.
        options: `TrainOptions` or a YAML file of them, instead of a preset.
        start: Weights to start from: a name, a file or a run's folder. They define the descriptor.
        steps: Number of training steps.
        seed: Seed of all random choices.
        pairs: Source of overlapping pairs: "order" (neighbours in a sequence), "overlap" (all pairs of a
            sequence, checked) or "both" (neighbours, checked).
        window: Largest distance of two neighbours in a sequence, in scans.
        synthetic: Share of steps on synthetic rooms, 0 … 1.
        self_training: Loss on matches that the weights of `start` propose: "infonce" or "batch-hard".
        oracle: Loss on matches from ground-truth poses, for comparison: "batch-hard" or "infonce".
        device: "cpu", "cuda" or "auto".
        minutes: Stop after this time with a checkpoint.
        resume: Continue the run in `out` with its own options and scans; arguments given here replace them.
        tensorboard: Write curves for TensorBoard into the folder.
        progress: Hook for the steps before the training.
        on_step: Called with a `TrainingProgress` after each step.

    Returns:
        The run, with figures on held-out pairs beside those of the shipped weights once it is finished.

    Raises:
        InputError: Options are invalid, no scans overlap, or the folder contains another training.
        FileFormatError: A file cannot be read or written.
    """
    end_if_starting()
    out = as_path(out, "out")
    changes: dict[str, Any] = {
        "steps": steps,
        "seed": seed,
        "start": None if start is None else str(start),
        "descriptor": None if start is None else _descriptor_options(start),
        "oracle": oracle,
        "self_training": self_training,
        "data": {"pairs": pairs, "window": window, "synthetic": synthetic},
    }
    paths = training_paths(scans)
    resolved = resolve_options(paths, out, preset=preset, options=options, resume=resume, changes=changes)
    if tensorboard:
        from wsdesc.learning.tensorboard import check_installed

        check_installed()
    chosen = choose_device(device)
    data = load_training_data(resolved.scans, resolved, progress=progress or no_progress)
    source = _source(data, resolved, chosen)
    if data.graph is not None:
        make_folder(out)
        data.graph.save(out / PAIRS_FILE)
    validator = _Validator(_held_out_pairs(data), resolved) if data.held_out else None
    run = run_training(
        resolved,
        source,
        out,
        device=chosen,
        resume=resume,
        stop_after=time_limit(minutes),
        validate=validator,
        on_step=on_step or (lambda progress: None),
        tensorboard=tensorboard,
    )
    if validator is None or run.weights is None or not distributed.is_main_process():
        return run
    return validator.complete(run, chosen)


def time_limit(minutes: float | None) -> float:
    """Return the seconds after which a training stops; None: never."""
    return float("inf") if minutes is None else 60 * minutes


def resolve_options(
    scans: Sequence[Path],
    out: Path,
    *,
    preset: str | None = None,
    options: TrainOptions | str | Path | None = None,
    resume: bool = False,
    changes: dict[str, Any] | None = None,
) -> TrainOptions:
    """Combine a base (options, a preset, or those of a run to resume) with changes; None keeps a value.

    Raises:
        InputError: The options are invalid, or there is nothing to resume.
    """
    if preset is not None and options is not None:
        raise InputError("give either a preset or options, not both")
    saved = out / OPTIONS_FILE
    base: TrainOptions
    if isinstance(options, TrainOptions):
        base = options
    elif options is not None:
        base = _load_options(options, changes or {})
    elif preset is not None:
        base = preset_options(preset)
    elif resume and saved.is_file():
        base = TrainOptions.load(saved)
    elif resume and not scans:
        raise InputError(f"{out}: no training to resume, {OPTIONS_FILE} is missing")
    else:
        base = preset_options("indoor")
    paths = [str(scan) for scan in scans]
    if not paths and resume and saved.is_file():
        paths = list(TrainOptions.load(saved).scans)
    return change(base, {**(changes or {}), "scans": paths or None})


def change(options: TrainOptions, changes: dict[str, Any]) -> TrainOptions:
    """Return options with changed values, also inside groups; None keeps a value."""
    return TrainOptions.read(_merge(options.model_dump(), changes))


def _merge(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in changes.items() if value is not None}
    for name, value in given.items():
        if isinstance(value, dict) and isinstance(values.get(name), dict):
            given[name] = _merge(values[name], value)
    return {**values, **given}


def _load_options(path: str | Path, changes: dict[str, Any]) -> TrainOptions:
    """Read options from YAML; a recipe may need the changes to be valid (self-training needs `start`)."""
    given = {k: changes[k] for k in ("start", "descriptor") if changes.get(k) is not None}
    return TrainOptions.load(path, **given)


def _descriptor_options(weights: str | Path) -> dict[str, Any]:
    return pretrained.load(pretrained.find(weights))[0].model_dump()


def _source(data: TrainingData, options: TrainOptions, device: str) -> TrainingSource:
    if options.oracle:
        from wsdesc.learning.oracle import oracle_source

        return oracle_source(data, options)
    if options.self_training:
        from wsdesc.learning.self_training import self_training_source

        return self_training_source(data, options, device)
    return data.source


def _held_out_pairs(data: TrainingData) -> list[ValidationPair]:
    from wsdesc.learning.oracle import held_out_poses  # for figures only

    poses = held_out_poses(data)
    return [(p, q, T_q_p) for (p, q), T_q_p in zip(data.held_out, poses, strict=True)]


class _Validator:
    """Validate a training on its held-out pairs, and at the end the shipped weights as well."""

    def __init__(self, pairs: list[ValidationPair], options: TrainOptions) -> None:
        self.pairs, self.options = pairs, options
        self.last: Validation | None = None

    def __call__(self, trainer: Trainer) -> dict[str, float]:
        self.last = self._validate(trainer.model)
        return self.last.figures()

    def complete(self, run: TrainingRun, device: str) -> TrainingRun:
        """Add the figures of the trained weights and of the shipped ones to a finished run."""
        assert run.weights is not None
        validation = self.last or self._validate(WSDesc.from_pretrained(run.weights, device))
        shipped = self._validate(WSDesc.from_pretrained(DEFAULT_MODEL, device))
        return replace(run, validation=validation, shipped=shipped, shipped_name=DEFAULT_MODEL)

    def _validate(self, model: WSDesc) -> Validation:
        loss = RigidityLoss(**self.options.loss.model_dump())
        return validate(model, self.pairs, keypoints=self.options.keypoints, loss=loss)
