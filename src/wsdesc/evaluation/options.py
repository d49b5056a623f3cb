"""Options of the benchmark protocols. This module imports no torch, so that `--help` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from wsdesc.core.options import Options

Solver = Literal["ransac", "consensus"]
UNTRAINED = {"untrained": 1.0, "untrained-fast": 0.25}  # widths of networks with random weights
PROTOCOLS = ("prnet-clean", "prnet-noisy", "rpm-45", "rpm-180")  # protocols on ModelNet40


def split_model(text: str) -> tuple[str | None, str]:
    """Split NAME=MODEL into name and model; without a name it is None. File names may contain "="."""
    label, separator, source = text.partition("=")
    return (label, source) if separator and not Path(text).is_file() else (None, text)


class PairwiseOptions(Options):
    """Options of the protocols on pairs. The defaults are those of the paper; lengths are in units."""

    keypoints: tuple[int, ...] = Field(
        (5000,), description="Keypoints per scan; several counts are separated by commas: 5000,1000,250."
    )
    rotated: bool = Field(False, description="Rotation and shift of every scan, drawn at random.")
    low_overlap: bool = Field(False, description="Pairs with little overlap: those of SCENE-evaluation-lo.")
    unit: float | None = Field(
        1.0,
        gt=0,
        description="Length of one metre in the unit of the files; `pairs` measures it by default.",
    )
    voxel: float = Field(
        0.025, ge=0, description="Voxel size for downsampling, in units; 0 keeps all points."
    )
    solver: Solver = Field("ransac", description="Pose solver: ransac or consensus.")
    tau1: float = Field(0.1, gt=0, description="Distance below which a match is correct, in units.")
    threshold: float = Field(0.05, gt=0, description="Inlier distance of the pose solver, in units.")
    iterations: int = Field(50_000, ge=1, description="Largest number of RANSAC iterations.")
    seed: int = Field(0, ge=0, description="Seed of all random choices.")


class EthOptions(PairwiseOptions):
    """Options of the protocol on ETH."""

    voxel: float = Field(0.02, ge=0, description="Voxel size for downsampling, in units; 0 keeps all points.")


class ShapeOptions(Options):
    """Options of the protocols on ModelNet40. The shapes lie in a sphere of radius 1."""

    protocols: tuple[str, ...] = Field(PROTOCOLS, description=f"Protocols: {', '.join(PROTOCOLS)}.")
    limit: int | None = Field(
        None, ge=1, description="Number of test shapes, drawn at random (default: all)."
    )
    unit: float = Field(1.0, gt=0, description="Length in the shapes that the model takes for one metre.")
    threshold: float = Field(0.05, gt=0, description="Inlier distance of RANSAC, in units.")
    iterations: int = Field(50_000, ge=1, description="Largest number of RANSAC iterations.")
    seed: int = Field(0, ge=0, description="Seed of all random choices.")


class TimingOptions(Options):
    """Options of the timing protocol. A time is the median of `repeats` runs after one warm-up run."""

    pairs: int = Field(5, ge=1, description="Pairs of scans to time; the tables show means over them.")
    keypoints: int = Field(1000, ge=1, description="Keypoints per scan.")
    repeats: int = Field(3, ge=1, description="Timed repetitions; the median counts.")
    unit: float = Field(1.0, gt=0, description="Length of one metre in the unit of the files.")
    sizes: tuple[int, ...] = Field(
        (10_000, 30_000, 100_000, 300_000, 1_000_000),
        description="Point counts for the table of time over points, separated by commas.",
    )
    counts: tuple[int, ...] = Field(
        (100, 200, 500, 1000, 2000, 5000),
        description="Keypoint counts for the table of time over keypoints, separated by commas.",
    )
    probes: int = Field(200, ge=1, description="Keypoints described in each cloud of the table over points.")
    seed: int = Field(0, ge=0, description="Seed of all random choices.")
