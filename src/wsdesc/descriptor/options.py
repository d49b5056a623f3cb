"""Options of the descriptor and of `wsdesc.describe`. This module imports neither torch nor numba."""

from __future__ import annotations

from numbers import Integral
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from wsdesc.core.options import NameOrPath, Options, Position

DEFAULT_MODEL = "indoor-fast"


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, Integral) and not isinstance(value, bool) else value


KeypointCounts = Annotated[tuple[Annotated[int, Field(ge=3)], ...], BeforeValidator(_as_tuple)]
"""Type of an option that takes a number of keypoints, or several that are tried one after the other."""

SupportKind = Literal["universal", "fixed", "local", "global"]
NetworkLayers = Literal["paper", "compact"]


class DescriptorOptions(Options):
    """Options of the descriptor network; the header of a weights file stores them.

    Defaults are those of the paper. Lengths are metres of the model: a `unit` scales a scan to them.
    """

    frame_radius: float = Field(
        0.3, gt=0, description="Radius of the neighbourhood that gives the axis z of a frame."
    )
    orientation_radius: float | None = Field(
        None,
        gt=0,
        description="Radius of the neighbourhood that gives the sign of z, and x (default: frame_radius).",
    )
    use_frames: bool = Field(
        True, description="Align voxel grids with local frames. Without, descriptors change with rotation."
    )
    support: SupportKind = Field(
        "universal",
        description="Support size: universal (one learned size), fixed (2 r/√3), local or global "
        "(one size per keypoint, predicted by a PointNet).",
    )
    support_start: float = Field(1.5, gt=0, description="Support (side of the voxel grid) before training.")
    support_range: tuple[float, float] = Field((0.3, 3.0), description="Bounds of the learned support.")
    resolution: int = Field(16, ge=4, le=64, description="Voxels per axis of the grid.")
    sigma: float = Field(1e-3, gt=0, description="Softness of a voxel's surface, a squared length.")
    cutoff: float | None = Field(
        1e-3,
        gt=0,
        lt=0.5,
        description="Smallest probability of a point in a voxel that counts; None: all of them.",
    )
    layers: NetworkLayers = Field(
        "paper", description="Convolutions of the network: paper (six), or compact (four, fast on a CPU)."
    )
    width: float = Field(1.0, gt=0, le=16, description="Factor on the number of channels of the network.")
    dimension: int = Field(32, ge=1, le=4096, description="Length of a descriptor.")

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        low, high = self.support_range
        if not 0 < low <= self.support_start <= high:
            raise ValueError(f"support_start {self.support_start} must lie in support_range [{low}, {high}]")
        outer = self.orientation_radius
        if outer is not None and outer < self.frame_radius:
            raise ValueError(f"orientation_radius {outer} must not be below frame_radius {self.frame_radius}")
        return self


class DescribeOptions(Options):
    """Options of `wsdesc.describe`, with their defaults."""

    model: NameOrPath = Field(
        DEFAULT_MODEL,
        description="Weights: a shipped name, a .safetensors file, or the folder of a training run.",
    )
    keypoints: int = Field(1500, ge=3, description="Keypoints per scan, at most.")
    resolution: float | None = Field(
        None,
        gt=0,
        description="Working resolution (voxel size) in the scan's unit (default: derived from the scan).",
    )
    viewpoint: Position = Field(
        None,
        description="Position of the scanner, in the scan's coordinates (default: from the file, or "
        "detected at the origin). none: no free space.",
    )
    device: str = Field("auto", description="Device: cpu, cuda, or auto (CUDA where available).")
    seed: int = Field(0, ge=0, description="Seed of the random choices: same seed and device, same bits.")
