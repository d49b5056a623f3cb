"""Options of `wsdesc.reconstruct`. Without torch, so that the CLI checks options at once."""

from __future__ import annotations

from pydantic import Field

from wsdesc.core.options import NameOrPath, Options
from wsdesc.descriptor.options import DEFAULT_MODEL

JOURNAL = "journal.jsonl"  # file in the folder of a run; marks it as such
POSES = "poses.json"  # file in the folder of a saved reconstruction


class ReconstructOptions(Options):
    """Options of the reconstruction of many scans. The defaults suit most scans."""

    model: NameOrPath = Field(
        DEFAULT_MODEL, description="Weights: a name, a file, or the folder of a training run."
    )
    resolution: float | None = Field(
        None, gt=0, description="Working resolution in the scans' unit (default: derived from all scans)."
    )
    keypoints: int = Field(2000, ge=3, description="Keypoints per scan.")
    more_keypoints: int = Field(
        4000, ge=0, description="Keypoints per unconnected scan in a second round; 0: no second round."
    )
    neighbours: int = Field(
        10, ge=1, description="Number of most similar scans that each scan is registered with."
    )
    distinct: bool = Field(
        False,
        description="No two parts of the place are equal: skip the checks for repetitive structure, which "
        "leave scans out.",
    )
    device: str = Field("auto", description="Device: cpu, cuda, or auto.")
    seed: int = Field(0, ge=0, description="Seed of all random choices.")


class KnownOptions(Options):
    """Standard deviations of what is known about poses beforehand."""

    prior_sigma: float | None = Field(
        None,
        gt=0,
        description="Standard deviation of the position of known poses, in the scans' unit (default: 20 "
        "times the resolution).",
    )
    prior_angle: float = Field(
        5.0, gt=0, le=180, description="Standard deviation of the rotation of known poses, in degrees."
    )
    control_sigma: float | None = Field(
        None,
        gt=0,
        description="Standard deviation of control points without their own, in the scans' unit (default: a "
        "fifth of the resolution).",
    )
    up_angle: float = Field(1.0, gt=0, le=90, description="Standard deviation of up, in degrees.")
