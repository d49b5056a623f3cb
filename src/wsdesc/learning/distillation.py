"""Distill a small, fast network from a large one, on any scans. Needs neither pairs nor poses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wsdesc.cloud.sampling import random_sample
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.descriptor.model import WSDesc
from wsdesc.descriptor.options import NetworkLayers
from wsdesc.learning import distributed
from wsdesc.learning.data import load_clouds
from wsdesc.learning.options import STUDENT_CUTOFF, STUDENT_WIDTH, DistillOptions, TrainOptions
from wsdesc.learning.run import StepHook, TrainingRun, run_training
from wsdesc.learning.run_folder import OPTIONS_FILE
from wsdesc.learning.sources import PairSource
from wsdesc.learning.student_pairs import student_source
from wsdesc.learning.trainer import PreparedPair, Trainer
from wsdesc.learning.training import Scans, change, resolve_options
from wsdesc.learning.validation import compare_with_teacher

_VOXEL_FIELDS = ("sigma", "cutoff")  # options of voxel grids that may differ between student and teacher


def distill(
    teacher: str | Path | WSDesc,
    scans: Scans = (),
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
        scans: Folders or files of scans, one is enough; none: synthetic rooms.
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
    out = Path(out)
    if tensorboard:
        from wsdesc.learning.tensorboard import check_installed

        check_installed()
    model = teacher if isinstance(teacher, WSDesc) else WSDesc.from_pretrained(teacher)
    name = None if isinstance(teacher, WSDesc) else str(teacher)
    resolved = _resolve(model, name, scans, out, width, options, resume)
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
        stop_after=float("inf") if minutes is None else 60 * minutes,
        on_step=on_step or (lambda progress: None),
        tensorboard=tensorboard,
    )


def _resolve(
    teacher: WSDesc,
    name: str | None,
    scans: Scans,
    out: Path,
    width: float | None,
    options: TrainOptions | None,
    resume: bool,
) -> TrainOptions:
    """Return the given options, those of the run to resume, or those of a student of this width."""
    if options is None and not (resume and (out / OPTIONS_FILE).is_file()):
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


class Distiller(Trainer):
    """Train a student's network; its support is the teacher's and stays constant.

    Args:
        teacher: Model whose descriptors are the target.
        options: Options of the training.
        device: Device of both models.
    """

    term_names = ("distance", "relation")

    def __init__(self, teacher: WSDesc, options: TrainOptions, device: torch.device | str = "cpu") -> None:
        super().__init__(options, device)
        _check_same_descriptor(teacher, self.model)
        self.distill_options = options.distill or DistillOptions()
        self.model.support.load_state_dict(teacher.support.state_dict())
        self.model.support.requires_grad_(False)
        self.teacher = _copy(teacher).to(self.device).eval().requires_grad_(False)
        if self._on_cuda:
            self.teacher.accelerate(options.precision, options.compile)
        self._same_voxels = all(
            getattr(teacher.options, name) == getattr(self.model.options, name) for name in _VOXEL_FIELDS
        )
        rate, decay = options.learning_rate, self.distill_options.weight_decay
        network = list(self.model.network.parameters())
        self.optimizers = {
            "network": torch.optim.AdamW(network, rate, weight_decay=decay, fused=self._on_cuda)
        }
        self._compute_loss = torch.compile(self._imitation_loss) if self._compiles else self._imitation_loss

    def load_start(self, start: WSDesc) -> None:
        """Take the network of another student; the support stays the teacher's."""
        self.model.network.load_state_dict(start.network.state_dict())

    def set_learning_rates(self, step: int) -> None:
        """Set the learning rate of a step: a linear warm-up, then as of every trainer."""
        super().set_learning_rates(step)
        factor = min(1.0, (step + 1) / (self.distill_options.warmup_steps + 1))
        for group in self.optimizers["network"].param_groups:
            group["lr"] *= factor

    @torch.no_grad()
    def prepare(self, p: Tensor, q: Tensor, generator: torch.Generator) -> PreparedPair:
        """Sample random keypoints of two clouds (N, 3) and (M, 3), in metres, and compute their frames."""
        prepared = []
        for cloud in (p, q):
            grid = self.grid(cloud, generator)
            sampled = random_sample(len(cloud), self.options.keypoints, generator).to(self.device)
            prepared.append(self.prepare_rows(grid, sampled))
        return PreparedPair(*prepared)

    def gradients(self, pairs: list[PreparedPair]) -> Tensor:
        """Add the mean gradient over `pairs` to the parameters.

        Returns:
            (pairs, 4): loss, distance, relation and 1.
        """
        rows = []
        for p, q in pairs:
            with torch.no_grad():  # the support is constant
                voxels = torch.cat([self.model.voxels(p), self.model.voxels(q)])
                seen = voxels
                if not self._same_voxels:
                    seen = torch.cat([self.teacher.voxels(p), self.teacher.voxels(q)])
                target = self.teacher.describe(seen)
            row = self._compute_loss(voxels, target)
            (row[0] / len(pairs)).backward()
            rows.append(row.detach())
        return torch.stack(rows)

    def _imitation_loss(self, voxels: Tensor, target: Tensor) -> Tensor:
        """Compute a row of `gradients` from voxel grids (K, h, h, h) and the teacher's descriptors (K, C)."""
        with self._autocast():
            descriptors = self.model.network(voxels)
        distance = 1 - (descriptors * target).sum(1).mean()  # half the squared distance of unit vectors
        # Similarities decide about nearest neighbours; a common rotation of all descriptors keeps them.
        relation = (descriptors @ descriptors.T - target @ target.T).square().mean()
        loss = distance + self.distill_options.relation_weight * relation
        return torch.stack([loss, distance, relation, torch.ones_like(loss)])


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
    on_device = _copy(teacher).to(device).eval()

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


def _copy(model: WSDesc) -> WSDesc:
    """Copy a model, so that the caller's stays unchanged on its device."""
    copy = WSDesc(**model.options.model_dump())
    copy.load_state_dict(model.state_dict())
    return copy


def _check_same_descriptor(teacher: WSDesc, student: WSDesc) -> None:
    """Raise InputError unless both models differ only in the network and in the softness of voxels."""
    free = {"layers", "width", "support_start", *_VOXEL_FIELDS}
    ours, theirs = (m.options.model_dump(exclude=free) for m in (teacher, student))
    differ = [name for name in ours if ours[name] != theirs[name]]
    if differ:
        raise InputError(
            "a student may differ from its teacher only in layers, width, sigma and cutoff, got other "
            f"{', '.join(differ)}"
        )
