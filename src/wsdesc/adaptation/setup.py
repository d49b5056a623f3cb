"""What all rounds of an adaptation share."""

from __future__ import annotations

from dataclasses import dataclass

from wsdesc.adaptation.options import AdaptOptions, Plan
from wsdesc.adaptation.replay import ReplayPool
from wsdesc.core.progress import StepTimer


@dataclass(frozen=True)
class Setup:
    """Options, and the means to train and measure."""

    options: AdaptOptions
    plan: Plan  # numbers of steps
    device: str
    pool: ReplayPool  # synthetic scenes
    timer: StepTimer  # measures the steps and passes them on to the progress hook
    jobs: int = 1  # processes of the reconstruction
