"""Options of maps. Without torch, so that the CLI checks options at once."""

from __future__ import annotations

from pydantic import Field

from wsdesc.core.options import NameOrPath, Options, Position
from wsdesc.descriptor.options import DEFAULT_MODEL, KeypointCounts


class MapOptions(Options):
    """Options of `Map.build`. The defaults suit most maps."""

    model: NameOrPath = Field(
        DEFAULT_MODEL, description="Weights: a name, a file, or the folder of a training run."
    )
    resolution: float | None = Field(
        None, gt=0, description="Working resolution in the scans' unit (default: derived from the scans)."
    )
    points_per_keypoint: float = Field(
        25.0,
        ge=1,
        description="Points, at the working resolution, for each keypoint. Fewer give a larger map, "
        "in which more scans are located.",
    )
    device: str = Field("auto", description="Device: cpu, cuda, or auto.")
    seed: int = Field(0, ge=0, description="Seed of all random choices.")


class LocateOptions(Options):
    """Options of `Map.locate`. The defaults suit most scans."""

    keypoints: KeypointCounts = Field(
        (300, 1200),
        min_length=1,
        description="Keypoints of the scan; each further number is a retry after a result without success.",
    )
    viewpoint: Position = Field(
        None,
        description="Position of the scanner, in the scan's coordinates (default: from the file, or "
        "detected at the origin). none: no free space.",
    )
    neighbours: int = Field(
        20, ge=1, le=100, description="Most similar map descriptors that each keypoint votes for."
    )
    places: int = Field(
        16, ge=1, le=1000, description="Places of the map that are compared with the scan in each round."
    )
    refined: int = Field(6, ge=1, description="Hypotheses that are refined, those that fit the map best.")
    device: str = Field("auto", description="Device: cpu, cuda, or auto.")
    seed: int = Field(0, ge=0, description="Seed of all random choices.")
