"""Options that the trainings of all peers share; each peer adds its own."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from wsdesc.core.options import NameOrPath, Options


class PeerTrainOptions(Options):
    """Options of the training of a peer."""

    scans: tuple[NameOrPath, ...] = Field((), description="Folders or files of scans.")
    unit: float | None = Field(
        None, gt=0, description="One metre in the scans' unit (default: measured; 1 for ModelNet40)."
    )
    steps: int = Field(10_000, ge=1, description="Training steps. The learning rate falls to 0 over them.")
    batch: int = Field(64, ge=2, description="Samples per step.")
    learning_rate: float = Field(1e-3, gt=0, description="Learning rate of the first step (Adam).")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay of Adam.")
    precision: Literal["float32", "bf16"] = Field(
        "bf16", description="Precision of the network on CUDA; the CPU always computes in float32."
    )
    seed: int = Field(0, ge=0, description="Seed of all random choices.")
    checkpoint_minutes: float = Field(1.0, gt=0, description="Minutes between checkpoints.")
