"""Options of `wsdesc.register`. Without torch, so that the CLI checks options at once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from wsdesc.core.options import NameOrPath, Position
from wsdesc.descriptor.options import DEFAULT_MODEL, KeypointCounts
from wsdesc.registration.prior_options import PriorOptions

Solver = Literal["consensus", "ransac"]
_FACTORS = (1e-9, 1e9)  # of lengths: from nanometres to metres and back


def _check_scale(value: Any) -> Any:
    if isinstance(value, str) and value == "estimate":
        return value
    try:
        factor = float(value)
    except (TypeError, ValueError):
        factor = 0.0
    if isinstance(value, bool) or not _FACTORS[0] <= factor <= _FACTORS[1]:
        raise ValueError('a positive factor is needed, or "estimate"')
    return factor


ScaleOption = Literal["estimate"] | float
"""Factor of lengths by which the source is multiplied, or "estimate"."""


class RegisterOptions(PriorOptions):
    """Options of the registration of two scans. The defaults suit most scans."""

    model: NameOrPath = Field(
        DEFAULT_MODEL, description="Weights: a name, a file, or the folder of a training run."
    )
    resolution: float | None = Field(
        None, gt=0, description="Working resolution in the target's unit (default: derived from both scans)."
    )
    keypoints: KeypointCounts = Field(
        (300, 1200, 4000),
        min_length=1,
        description="Keypoints per scan; each further number is a retry after a result without success.",
    )
    scale: Annotated[ScaleOption, PlainValidator(_check_scale)] = Field(
        1.0,
        description="Factor of lengths by which the source is multiplied before it is aligned, as 0.3048 for "
        "feet to metres. estimate: the factor is unknown; the pose then contains the estimated one.",
    )
    source_viewpoint: Position = Field(
        None,
        description="Position of the source's scanner, in its coordinates (default: from the file, or "
        "detected at the origin). none: no free space.",
    )
    target_viewpoint: Position = Field(None, description="Position of the target's scanner; as above.")
    solver: Solver = Field("consensus", description="Pose solver: consensus or ransac.")
    hypotheses: int = Field(
        12, ge=1, description="Hypotheses that the solver proposes; 5 times as many in the last round."
    )
    refined: int = Field(
        4, ge=1, description="Hypotheses that are refined, the best fits; 9 times as many in the last round."
    )
    refine: bool = Field(True, description="Refinement of the pose on the surfaces of both scans.")
    device: str = Field("auto", description="Device: cpu, cuda, or auto.")
    seed: int = Field(0, ge=0, description="Seed of all random choices.")
