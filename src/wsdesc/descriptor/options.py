"""Everything that defines a descriptor, in one validated model: what stands in the header of its weights."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from wsdesc.core.options import Options

DEFAULT_MODEL = "indoor-fast"  # weights that every command and function uses by default

SupportKind = Literal["universal", "fixed", "local", "global"]


class DescriptorOptions(Options):
    """The paper's descriptor, unless told otherwise. Lengths are metres; a `unit` brings a cloud to them."""

    frame_radius: float = Field(0.3, gt=0)  # neighbours that fix a keypoint's frame
    use_frames: bool = True  # False: grids stand as the cloud does, descriptors turn with it
    support: SupportKind = "universal"  # one learnable size, a fixed one, or one a keypoint by a PointNet
    support_start: float = Field(1.5, gt=0)  # side of the voxel grid before training
    support_range: tuple[float, float] = (0.3, 3.0)  # and the bounds it keeps
    resolution: int = Field(16, ge=4, le=64)  # voxels an axis
    sigma: float = Field(1e-3, gt=0)  # softness of a voxel's surface, a squared length
    cutoff: float | None = Field(1e-3, gt=0, lt=0.5)  # least probability that counts; None: all of them
    width: float = Field(1.0, gt=0, le=16)  # factor on the network's channels
    dimension: int = Field(32, ge=1, le=4096)  # of a descriptor

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Self:
        low, high = self.support_range
        if not 0 < low <= self.support_start <= high:
            raise ValueError(f"support_start {self.support_start} must lie in support_range [{low}, {high}]")
        return self


class DescribeOptions(Options):
    """Options of `wsdesc.describe`. The defaults suit most scans."""

    model: str = Field(DEFAULT_MODEL, description="Weights: a name, a file, or the folder of a training run.")
    keypoints: int = Field(1500, ge=3, description="Keypoints, spread over the scan.")
    resolution: float | None = Field(
        None, gt=0, description="Working resolution in the scan's unit (default: derived from the scan)."
    )
    device: str = Field("auto", description="Device: cpu, cuda, or auto.")
    seed: int = Field(0, ge=0, description="Seed of all random choices.")
