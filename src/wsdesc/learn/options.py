"""Everything that defines a training, in one validated model: YAML in, YAML saved beside the run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from wsdesc.describe.options import DescriptorOptions
from wsdesc.errors import InputError
from wsdesc.learn.losses import Direction, Reduction
from wsdesc.options import Options


class LossOptions(Options):
    """The rigidity loss. Lengths in metres, as those of the descriptor."""

    reduction: Reduction = "mean"  # of matrix entries; "sum" is the paper's text
    direction: Direction = "published"  # which side of a match is the regressor; see RigidityLoss
    use_w_f: bool = True  # weigh matches by the similarity of descriptors
    use_w_sm: bool = True  # and by their agreement with each other
    lambda_o: float = Field(1.0, ge=0)  # weight of the orthogonality term
    lambda_c: float = Field(1.0, ge=0)  # weight of the cycle term
    sigma_d: float = Field(0.1, gt=0)  # length distortion at which two matches stop agreeing
    temperature: float = Field(1.0, gt=0)  # of the soft nearest neighbour


class DataOptions(Options):
    """Where pairs come from."""

    pairs: Literal["order", "overlap", "both"] = "order"  # how overlapping scans are found
    window: int = Field(4, ge=1)  # scans up to this far apart in a sequence are taken for overlapping
    synthetic: float = Field(0.0, ge=0, le=1)  # share of steps on synthetic rooms; 1 where there are no scans
    steps_per_room: int = Field(8, ge=1)  # synthetic pairs until a new room joins
    rooms: int = Field(64, ge=1)  # synthetic rooms at hand at a time
    least_coverage: float = Field(
        0.45, ge=0
    )  # points with less surface around than this share of the median go
    unit: float | None = Field(
        None, gt=0
    )  # length of a metre in the scans' own measure; None: found from them
    noise: float = Field(0.0, ge=0)  # added to partial views of shapes, a standard deviation
    hold_out: float = Field(0.1, ge=0, lt=1)  # share of the pairs kept for validation


class TrainOptions(Options):
    """A training run. The defaults are the paper's for indoor scans."""

    descriptor: DescriptorOptions = DescriptorOptions()
    loss: LossOptions = LossOptions()
    data: DataOptions = DataOptions()
    steps: int = Field(16_000, ge=1)
    pairs_per_step: int = Field(1, ge=1)  # of each process
    keypoints: int = Field(512, ge=8)  # of each cloud, by farthest point sampling
    learning_rate: float = Field(1e-3, gt=0)  # Adam, constant, for the network
    support_learning_rate: float = Field(1e-3, gt=0)  # a second Adam, for the support alone
    support_weight_decay: float = Field(0.002, ge=0)
    clip: float = Field(0.5, gt=0)  # the gradient's norm
    skip_above: float = Field(10.0, gt=0)  # a loss beyond this is an accident: the step is left out
    rotate: bool = True  # turn both clouds at random in each step
    seed: int = Field(0, ge=0)
    precision: Literal["float32", "bf16"] = "bf16"  # of the network on CUDA
    compile: bool = True  # network and loss on CUDA
    checkpoint_minutes: float = Field(3.0, gt=0)
    validate_every: int = Field(1000, ge=1)  # steps


PRESETS = {
    "indoor": TrainOptions(),
    "objects": TrainOptions(
        descriptor=DescriptorOptions(support_start=0.375, support_range=(0.15, 0.75)),
        data=DataOptions(least_coverage=0.0),
        steps=20_000,
        keypoints=128,
    ),
    "small": TrainOptions(
        descriptor=DescriptorOptions(width=0.25, resolution=8, support_start=1.2),
        data=DataOptions(pairs="both"),
        steps=240,
        keypoints=256,
        validate_every=120,
    ),
}


def preset(name: str) -> TrainOptions:
    """The options of that name: "indoor" and "objects" are the paper's, "small" is for a laptop's minutes."""
    if name not in PRESETS:
        raise InputError(f"no preset {name!r}: choose {', '.join(PRESETS)}")
    return PRESETS[name]
