"""Options of `wsdesc.adapt`. Without torch, so that the CLI checks options at once."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from wsdesc.core.options import NameOrPath, Options

DEFAULT_START = "indoor"
FULL_WEIGHTS = "full.safetensors"  # in the folder of an adaptation, beside the fast model.safetensors


class AdaptOptions(Options):
    """Options of an adaptation to a folder of scans. The defaults suit most scans."""

    start: NameOrPath = Field(
        DEFAULT_START,
        description="Weights to start from: indoor, the folder of an adaptation, or a file of weights.",
    )
    rounds: int = Field(
        2, ge=1, description="Largest number of rounds; another round follows if more scans are placed."
    )
    steps: int | None = Field(
        None, ge=1, description="Teaching steps (default: 2400 on a GPU; 1200 on the CPU)."
    )
    distill_steps: int | None = Field(
        None,
        ge=0,
        description="Distillation steps to the fast network (default: 2000 on a GPU). 0 teaches the fast "
        "network alone, the default on the CPU.",
    )
    fast_steps: int | None = Field(
        None,
        ge=0,
        description="Teaching steps of the fast network after the distillation (default: 800 on a GPU).",
    )
    minutes: float | None = Field(
        None,
        gt=0,
        description="Time for all training steps of a round; fewer steps are made if they do not fit "
        "(default: 30 on the CPU, no limit on a GPU).",
    )
    keypoints: int | None = Field(
        None, ge=16, description="Keypoints per scan and step (default: 512 on a GPU, 192 on the CPU)."
    )
    learning_rate: float = Field(5e-4, gt=0, description="Learning rate of the network.")
    min_overlap: float = Field(
        0.05, ge=0, lt=1, description="Smallest overlap of a pair that gives matches, at the found poses."
    )
    synthetic: float = Field(
        0.35,
        ge=0,
        lt=1,
        description="Share of steps on synthetic scenes, which keep the quality on other scans.",
    )
    rigidity: float = Field(
        0.1, ge=0, lt=1, description="Share of steps with the weakly supervised loss on the scans."
    )
    keep_out: float = Field(
        0.2,
        gt=0,
        le=0.5,
        description="Share of placed scans that the check uses and the teaching leaves out.",
    )
    resolution: float | None = Field(
        None, gt=0, description="Working resolution in the scans' unit (default: derived from all scans)."
    )
    reconstruct_keypoints: int = Field(2000, ge=3, description="Keypoints per scan of the reconstruction.")
    orientation_radius: float | None = Field(
        None,
        gt=0,
        description="Orientation radius of the frames of the new weights, in metres of the model (default: "
        "that of the weights to start from).",
    )
    scenes: int | None = Field(
        None, ge=8, description="Number of synthetic scenes (default: 72 on a GPU, 16 on the CPU)."
    )
    replay: NameOrPath | None = Field(
        None, description="Folder of synthetic scenes that several adaptations share (default: their own)."
    )
    wrong_teachers: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of pairs that receive a wrong pose: an experiment on wrong reconstructions.",
    )
    check_teachers: bool = Field(
        True, description="Leave out pairs that contradict triangles of pairs or free space."
    )
    device: str = Field("auto", description="Device: cpu, cuda, or auto (CUDA where available).")
    seed: int = Field(0, ge=0, description="Seed of all random choices.")


class Plan(NamedTuple):
    """Numbers of steps and sizes of an adaptation on a device."""

    steps: int  # teaching steps: first without the kept-out scans, then on all scans
    distill_steps: int  # 0: the fast network itself is taught
    fast_steps: int  # teaching steps of the fast network after the distillation
    keypoints: int  # per scan and step
    scenes: int  # number of synthetic scenes
    minutes: float | None  # time limit for all steps of a round
    registered_pairs: int  # largest number of pairs that the check registers

    def limited(self, share: float) -> Plan:
        """Return the plan with this share of the steps, at most all."""
        if share >= 1:
            return self
        steps, distilled, fast = (max(1, round(share * n)) if n else 0 for n in self[:3])
        return self._replace(steps=steps, distill_steps=distilled, fast_steps=fast)


_GPU_PLAN = Plan(
    steps=2400,
    distill_steps=2000,
    fast_steps=800,
    keypoints=512,
    scenes=72,
    minutes=None,
    registered_pairs=60,
)
_CPU_PLAN = Plan(
    steps=1200, distill_steps=0, fast_steps=0, keypoints=192, scenes=16, minutes=30.0, registered_pairs=16
)


def make_plan(options: AdaptOptions, on_gpu: bool) -> Plan:
    """Fill the options that depend on the device."""
    plan = _GPU_PLAN if on_gpu else _CPU_PLAN
    names = ("steps", "distill_steps", "fast_steps", "keypoints", "scenes", "minutes")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    plan = plan._replace(**given)
    return plan if plan.distill_steps else plan._replace(fast_steps=0)
