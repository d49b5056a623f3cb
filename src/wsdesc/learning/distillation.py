"""Distill a small, fast network from a large one, on any scans. Needs neither pairs nor poses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wsdesc.core.devices import choose_device
from wsdesc.core.executors import end_if_starting
from wsdesc.core.file_parts import as_path, training_paths
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.descriptor.model import WSDesc
from wsdesc.descriptor.options import NetworkLayers
from wsdesc.learning import distributed
from wsdesc.learning.data import load_clouds
from wsdesc.learning.distiller import Distiller, copy_model
from wsdesc.learning.options import STUDENT_CUTOFF, STUDENT_WIDTH, DistillOptions, TrainOptions
from wsdesc.learning.run import StepHook, TrainingRun, run_training
from wsdesc.learning.run_folder import OPTIONS_FILE
from wsdesc.learning.sources import PairSource
from wsdesc.learning.student_pairs import student_source
from wsdesc.learning.trainer import Trainer
from wsdesc.learning.training import Scans, change, resolve_options, time_limit
from wsdesc.learning.validation import compare_with_teacher


def distill(
    teacher: str | Path | WSDesc,
    scans: Scans | None = None,
    out: str | Path = "runs/fast",
    *,
    width: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    synthetic: float | None = None,
    options: TrainOptions | None = None,
    device: str = "auto",
    minutes: float | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    progress: ProgressHook | None = None,
    on_step: StepHook | None = None,
) -> TrainingRun:
    """Train a small network to give the descriptors of a large one.

    The student has the teacher's support and descriptor options, but compact layers and voxels that cost
    less. The folder `out` receives the same files as that of `wsdesc.train`.

    Args:
        teacher: Model, or its weights: a name, a file or a run's folder.
        scans: Folders or files of scans, one is enough; None: synthetic rooms.
        out: Folder of the run.
        width: Factor on the channels of the compact network, 1 by default.
        steps: Number of training steps, 8 000 by default.
        seed: Seed of all random choices.
        synthetic: Share of steps on synthetic rooms, 0 … 1.
        options: Options of the training instead of `student_options`.
        device: "cpu", "cuda" or "auto".
        minutes: Stop after this time with a checkpoint.
        resume: Continue the run in `out` with its own options and scans.
        tensorboard: Write curves for TensorBoard into the folder.
        progress: Hook for reading the scans.
        on_step: Called with a `TrainingProgress` after each step.

    Returns:
        The run, with the agreement of student and teacher on held-out scans once it is finished.

    Raises:
        InputError: Options are invalid or the folder contains another training.
        FileFormatError: A file cannot be read or written.
    """
    end_if_starting()
    out = as_path(out, "out")
    if tensorboard:
        from wsdesc.learning.tensorboard import check_installed

        check_installed()
    model = teacher if isinstance(teacher, WSDesc) else WSDesc.from_pretrained(teacher)
    name = None if isinstance(teacher, WSDesc) else str(teacher)
    resolved = _resolve(model, name, training_paths(scans), out, width, options, resume)
    resolved = change(resolved, {"steps": steps, "seed": seed, "data": {"synthetic": synthetic}})
    chosen = choose_device(device)
    clouds = load_clouds(resolved.scans, resolved, progress=progress or no_progress) if resolved.scans else []
    source, held_out = student_source(clouds, resolved)
    return run_distillation(
        model,
        source,
        resolved,
        out,
        held_out=held_out,
        device=chosen,
        resume=resume,
        stop_after=time_limit(minutes),
        on_step=on_step or (lambda progress: None),
        tensorboard=tensorboard,
    )


def _resolve(
    teacher: WSDesc,
    name: str | None,
    scans: Sequence[Path],
    out: Path,
    width: float | None,
    options: TrainOptions | None,
    resume: bool,
) -> TrainOptions:
    """Return the given options, those of the run to resume, or those of a student of this width."""
    resumed = resume and ((out / OPTIONS_FILE).is_file() or not scans)
    if options is None and not resumed:
        options = student_options(teacher, width or STUDENT_WIDTH, distill={"teacher": name})
    changes: dict[str, Any] = {"descriptor": {"width": width}}
    return resolve_options(scans, out, options=options, resume=resume, changes=changes)


def student_options(
    teacher: WSDesc,
    width: float = STUDENT_WIDTH,
    layers: NetworkLayers = "compact",
    cutoff: float | None = STUDENT_CUTOFF,
    **changes: Any,
) -> TrainOptions:
    """Return the options of a distillation: the teacher's descriptor by a faster network.

    Args:
        teacher: The teacher.
        width: Factor on the network's channels.
        layers: Convolutions of the network.
        cutoff: Smallest probability of a point in a voxel that counts.
        changes: Other fields of `TrainOptions`.
    """
    values = {
        "descriptor": {
            **teacher.options.model_dump(),
            "width": width,
            "layers": layers,
            "cutoff": cutoff,
        },
        "distill": DistillOptions(),
        "steps": 8000,
        "keypoints": 256,
        "learning_rate": 2e-3,
        "cooldown": 1.0,
        **changes,
    }
    return TrainOptions.read(values)


def run_distillation(
    teacher: WSDesc,
    source: PairSource,
    options: TrainOptions,
    out: Path,
    *,
    held_out: list[Tensor] | None = None,
    **run_options: Any,
) -> TrainingRun:
    """Train a student in the folder `out`; `run_options` are those of `run_training`.

    Args:
        teacher: Model whose descriptors are the target.
        source: Any pairs of clouds, for example `RandomPairs`.
        options: Options of the training.
        out: Folder of the run.
        held_out: Clouds on which student and teacher are compared for the log.
    """

    device = run_options.get("device", "cpu")
    on_device = copy_model(teacher).to(device).eval()

    def make_trainer(options: TrainOptions, device: torch.device | str) -> Trainer:
        return Distiller(teacher, options, device)

    def validate(trainer: Trainer) -> dict[str, float]:
        return compare_with_teacher(on_device, trainer.model, held_out or [], options.seed).figures()

    if held_out:
        run_options.setdefault("validate", validate)
    run = run_training(options, source, out, make_trainer=make_trainer, **run_options)
    if run.weights is None or not held_out or not distributed.is_main_process():
        return run
    student = WSDesc.from_pretrained(run.weights, device)
    return replace(run, agreement=compare_with_teacher(on_device, student, held_out, options.seed))
