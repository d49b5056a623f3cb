"""Train the networks of an adaptation: teach them matches, and distil the fast one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from wsdesc.adaptation.options import Plan
from wsdesc.adaptation.scans import TaughtScan
from wsdesc.adaptation.setup import Setup
from wsdesc.adaptation.sources import DescribedPairs, TaughtPairs
from wsdesc.adaptation.steps import read_step, write_step
from wsdesc.adaptation.teachers import Teachers
from wsdesc.adaptation.trainer import AdaptTrainer
from wsdesc.adaptation.weights import WeightFiles
from wsdesc.core.rng import generator_of
from wsdesc.descriptor.model import WSDesc
from wsdesc.descriptor.pretrained import RUN_WEIGHTS
from wsdesc.learning.distillation import run_distillation, student_options
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.run import StepHook, TrainingProgress, run_training
from wsdesc.learning.self_training import MatchProposer

logger = logging.getLogger(__name__)

SUPPORT_RATE = 0.2  # learning rate of the support, relative to the network's
_PROBED_STEPS = 3


class Teaching:
    """Train networks on scans and synthetic scenes. A training with weights in the folder is not repeated.

    Args:
        folder: Folder of the round; each training has a folder in it.
        setup: Options and devices of the adaptation.
        scans: Scans of the round.
    """

    def __init__(self, folder: Path, setup: Setup, scans: Sequence[TaughtScan]) -> None:
        self.folder, self.scans = folder, scans
        self.options, self.plan, self.device = setup.options, setup.plan, setup.device
        self.pool, self.timer = setup.pool, setup.timer

    def limit_steps(self, teachers: Teachers, start: Path) -> Plan:
        """Reduce the steps to the available time, and store how many there are."""
        file = self.folder / "plan.json"
        if file.is_file():
            return Plan(*read_step(file))
        plan = self.plan
        if plan.minutes is not None:
            with self.timer("measure a step"):
                seconds = self._probe(teachers, start)
            plan = plan.limited(60 * plan.minutes / max(seconds * _teaching_steps(plan), 1e-9))
            expected = seconds * _teaching_steps(plan) / 60
            logger.info("expected time: %d steps, about %.0f minutes", sum(plan[:3]), max(expected, 1))
        write_step(file, list(plan))
        return plan

    def _probe(self, teachers: Teachers, start: Path) -> float:
        """Measure the seconds of a teaching step."""
        options = self._teach_options(start, _PROBED_STEPS)
        trainer, source = AdaptTrainer(options, self.device), self._source(teachers, start, synthetic=0.0)
        trainer.load_start(WSDesc.from_pretrained(start))
        seconds = []
        for step in range(_PROBED_STEPS):
            begin = time.perf_counter()
            trainer.step([trainer.prepare(*source.pair(step), generator_of(step))])
            seconds.append(time.perf_counter() - begin)
        return min(seconds)

    def teach(self, name: str, teachers: Teachers, start: Path, steps: int) -> Path:
        """Teach the network of `start`; return the file of the new weights."""
        folder = self.folder / name.replace(" ", "_")
        if (folder / RUN_WEIGHTS).is_file():
            return folder / RUN_WEIGHTS
        with self.timer(name, steps) as advance:
            run = run_training(
                self._teach_options(start, steps),
                self._source(teachers, start),
                folder,
                device=self.device,
                resume=True,
                on_step=_advance_to(advance),
                make_trainer=AdaptTrainer,
            )
        assert run.weights is not None
        return run.weights

    def _teach_options(self, start: Path, steps: int) -> TrainOptions:
        o, descriptor = self.options, WSDesc.from_pretrained(start).options
        return TrainOptions.read(
            {
                "descriptor": descriptor.model_dump(),
                "start": str(start),
                "self_training": "infonce",
                "steps": steps,
                "keypoints": self.plan.keypoints,
                "learning_rate": o.learning_rate,
                "support_learning_rate": SUPPORT_RATE * o.learning_rate,
                "cooldown": 0.8,
                "checkpoint_minutes": 1.0,
                "compile": False,  # the compiler takes longer than it saves
                "seed": o.seed,
            }
        )

    def _source(self, teachers: Teachers, start: Path, synthetic: float | None = None) -> TaughtPairs:
        o = self.options
        model = WSDesc.from_pretrained(start, self.device).accelerate("bf16", compile=False)
        return TaughtPairs(
            self.scans,
            teachers,
            self.pool,
            MatchProposer(model),
            synthetic=o.synthetic if synthetic is None else synthetic,
            rigidity=o.rigidity,
            seed=o.seed,
        )

    def distil(self, plan: Plan, teachers: Teachers, taught: Path, start: WeightFiles) -> WeightFiles:
        """Distil the taught network to the fast one, and teach that; return both."""
        if not plan.distill_steps:
            return WeightFiles(taught, None)
        folder = self.folder / "distill"
        if not (folder / RUN_WEIGHTS).is_file():
            student, teacher = WSDesc.from_pretrained(start.fast), WSDesc.from_pretrained(taught)
            options = student_options(
                teacher,
                descriptor=student.options.model_dump(),
                start=str(start.fast),
                steps=plan.distill_steps,
                keypoints=max(16, plan.keypoints // 2),
                learning_rate=1e-3,
                checkpoint_minutes=1.0,
                compile=False,
                seed=self.options.seed,
                distill={"teacher": str(taught), "warmup_steps": min(100, plan.distill_steps // 10)},
            )
            clouds = [scan.points for scan in self.scans]
            source = DescribedPairs(clouds, self.pool, self.options.synthetic, self.options.seed)
            with self.timer("distil", plan.distill_steps) as advance:
                run_distillation(
                    teacher, source, options, folder,
                    device=self.device, resume=True, on_step=_advance_to(advance),
                )  # fmt: skip
        fast = folder / RUN_WEIGHTS
        if plan.fast_steps:
            fast = self.teach("teach the fast network", teachers, fast, plan.fast_steps)
        return WeightFiles(fast, taught)


def _teaching_steps(plan: Plan) -> float:
    """Return how many teaching steps take the time of a plan; a distillation step takes half of one."""
    return plan.steps + 0.5 * plan.distill_steps + plan.fast_steps


def _advance_to(advance: Callable[[int], None]) -> StepHook:
    """Return a step hook that also counts the steps of an earlier process."""
    done = 0

    def hook(progress: TrainingProgress) -> None:
        nonlocal done
        advance(progress.step - done)
        done = progress.step

    return hook
