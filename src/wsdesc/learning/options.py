"""Options of a training: validated, read from YAML and saved beside the run.

This module imports no torch, so that the command line can show help without waiting.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from wsdesc.core.errors import InputError
from wsdesc.core.options import Options
from wsdesc.descriptor.options import DescriptorOptions

MatchLoss = Literal["batch-hard", "infonce"]
PairMode = Literal["order", "overlap", "both"]
Reduction = Literal["mean", "sum"]
Direction = Literal["published", "paper"]


ABLATION_STEPS = 4000  # default number of steps per row of an ablation
STUDENT_WIDTH = 1.0  # default width of a distilled network, which has the compact layers
STUDENT_CUTOFF = 0.02  # default cutoff of its voxels, which take half the time of the paper's


class LossOptions(Options):
    """The rigidity loss. Lengths are in metres."""

    reduction: Reduction = Field(
        "mean", description='Reduction of matrix entries: "mean" (published code) or "sum" (paper).'
    )
    direction: Direction = Field(
        "published", description='Direction of the affine fit: "published" or "paper"; see RigidityLoss.'
    )
    use_w_f: bool = Field(True, description="Weight matches by descriptor similarity (w_f).")
    use_w_sm: bool = Field(True, description="Weight matches by spatial consistency (w_sm).")
    lambda_o: float = Field(1.0, ge=0, description="Weight of the orthogonality loss L_o.")
    lambda_c: float = Field(1.0, ge=0, description="Weight of the cycle-consistency loss L_c.")
    sigma_d: float = Field(
        0.1,
        gt=0,
        description="Difference of pair distances at which two matches are incompatible, in metres.",
    )
    temperature: float = Field(1.0, gt=0, description="Temperature of the soft nearest neighbour.")


class DataOptions(Options):
    """The training pairs."""

    pairs: PairMode = Field(
        "order",
        description="Source of overlapping pairs: order (neighbours in a sequence), overlap (all pairs of a "
        "sequence, checked) or both (neighbours, checked).",
    )
    window: int = Field(4, ge=1, description="Largest distance of two neighbours in a sequence, in scans.")
    min_overlap: float = Field(
        0.3, ge=0, le=1, description="Smallest estimated overlap of a checked pair, in both scans."
    )
    synthetic: float = Field(
        0.0, ge=0, le=1, description="Share of steps on synthetic rooms (1 without scans)."
    )
    sites: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of sites, indoors and outdoors and seen by all sensors, among synthetic rooms; "
        "the oracle has rooms only.",
    )
    steps_per_room: int = Field(8, ge=1, description="Synthetic pairs until a new room replaces the oldest.")
    rooms: int = Field(64, ge=1, description="Synthetic rooms to draw from at a time.")
    far_share: float = Field(
        0.0, ge=0, le=1, description="Share of synthetic pairs that skip one scan and overlap less."
    )
    min_coverage: float = Field(
        0.45,
        ge=0,
        description="Smallest surface around a point, as a share of the median; sparser points are removed.",
    )
    unit: float | None = Field(
        None, gt=0, description="Length of one metre in the scans' unit (default: measured)."
    )
    voxel: float | None = Field(
        None,
        gt=0,
        description="Voxel size for downsampling scans, in metres (default: only for very dense scans).",
    )
    noise: float = Field(
        0.0, ge=0, description="Standard deviation of the noise on every second pair of shape views."
    )
    hold_out: float = Field(0.1, ge=0, lt=1, description="Share of scans or pairs held out for validation.")


class DistillOptions(Options):
    """How a small network learns the descriptors of a large one."""

    teacher: str | None = Field(None, description="Name or file of the teacher's weights.")
    relation_weight: float = Field(
        1.0, ge=0, description="Weight of the loss on similarities between descriptors."
    )
    warmup_steps: int = Field(200, ge=0, description="Steps over which the learning rate rises from 0.")
    weight_decay: float = Field(0.01, ge=0, description="Weight decay of AdamW.")


class TrainOptions(Options):
    """A training run. The defaults are the paper's for indoor scans."""

    scans: tuple[str, ...] = Field((), description="Folders or files of scans; none: synthetic rooms.")
    descriptor: DescriptorOptions = Field(DescriptorOptions(), description="Options of the descriptor.")
    loss: LossOptions = Field(LossOptions(), description="Options of the rigidity loss.")
    data: DataOptions = Field(DataOptions(), description="Options of the training pairs.")
    steps: int = Field(16_000, ge=1, description="Number of training steps.")
    pairs_per_step: int = Field(1, ge=1, description="Pairs per step and process.")
    keypoints: int = Field(512, ge=8, description="Keypoints per scan, by farthest point sampling.")
    learning_rate: float = Field(1e-3, gt=0, description="Learning rate of Adam for the network.")
    support_learning_rate: float = Field(1e-3, gt=0, description="Learning rate of Adam for the support.")
    support_weight_decay: float = Field(0.002, ge=0, description="Weight decay of the support.")
    cooldown: float = Field(
        0.0, ge=0, le=1, description="Share of the steps, at the end, over which learning rates fall to 0."
    )
    max_gradient_norm: float = Field(0.5, gt=0, description="Largest gradient norm; longer ones are clipped.")
    max_loss: float = Field(10.0, gt=0, description="Largest loss; a step with a larger one is skipped.")
    rotate: bool = Field(False, description="Rotate both scans at random in each step.")
    seed: int = Field(0, ge=0, description="Seed of all random choices.")
    precision: Literal["float32", "bf16"] = Field(
        "bf16", description="Precision of the network on CUDA: float32 or bf16."
    )
    compile: bool = Field(True, description="Compile network and loss on CUDA.")
    checkpoint_minutes: float = Field(3.0, gt=0, description="Minutes between checkpoints.")
    validate_every: int = Field(1000, ge=1, description="Steps between validations on held-out pairs.")
    start: str | None = Field(
        None, description="Weights to start from: a name, a file or a run's folder (default: random)."
    )
    oracle: MatchLoss | None = Field(
        None,
        description="Loss of the supervised oracle, which learns from ground-truth poses, for comparison: "
        "batch-hard or infonce (default: no poses).",
    )
    self_training: MatchLoss | None = Field(
        None,
        description="Loss of self-training on matches that the weights of `start` propose: "
        "infonce or batch-hard (default: rigidity loss).",
    )
    distill: DistillOptions | None = Field(None, description="Options of a distillation.")

    @model_validator(mode="after")
    def _check_source_of_matches(self) -> Self:
        if self.self_training and self.oracle:
            raise ValueError("`oracle` and `self_training` exclude each other, not both can be set")
        if self.self_training and self.start is None:
            raise ValueError("`self_training` needs trained weights: name them by `start`")
        return self


PRESETS = {
    "indoor": TrainOptions(),
    "objects": TrainOptions(
        descriptor=DescriptorOptions(support_start=0.375, support_range=(0.15, 0.75)),
        data=DataOptions(min_coverage=0.0),
        steps=20_000,
        keypoints=128,
    ),
    "smoothnet": TrainOptions(descriptor=DescriptorOptions(support="fixed"), oracle="batch-hard"),
    # Few keypoints are far apart, hence the large sigma_d. The other values made the loss of one object fall
    # fastest among about ten settings, with one seed.
    "small": TrainOptions(
        descriptor=DescriptorOptions(width=0.125, resolution=8, support_start=1.8),
        loss=LossOptions(sigma_d=0.3, temperature=0.2),
        data=DataOptions(pairs="both", voxel=0.025, hold_out=0.25),
        steps=240,
        keypoints=256,
        learning_rate=2e-3,
        cooldown=0.3,
        validate_every=60,
    ),
}


def preset_options(name: str) -> TrainOptions:
    """Return the options of a preset.

    Args:
        name: "indoor" and "objects" are the paper's settings, "smoothnet" is 3DSmoothNet (supervised by
            poses, the paper's baseline), "small" trains in minutes on a laptop.

    Raises:
        InputError: No preset has this name.
    """
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
