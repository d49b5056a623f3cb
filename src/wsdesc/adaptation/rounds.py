"""One round of an adaptation: each step stores its result in the folder of the round."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from wsdesc.adaptation.check import MAX_FORGOTTEN, PairFigures, compare, measure, measure_synthetic
from wsdesc.adaptation.keep_out import MIN_PLACED, checked_pairs, choose_kept_out, limited
from wsdesc.adaptation.mixing import choose_mixture
from wsdesc.adaptation.result import Comparison, Round
from wsdesc.adaptation.scans import TaughtScan, load_scans
from wsdesc.adaptation.setup import Setup
from wsdesc.adaptation.steps import read_step, write_step
from wsdesc.adaptation.teachers import TeacherPair, Teachers, find_teachers
from wsdesc.adaptation.teaching import Teaching
from wsdesc.adaptation.weights import WeightFiles, with_orientation
from wsdesc.core.errors import InputError
from wsdesc.core.folders import make_folder
from wsdesc.descriptor.model import WSDesc
from wsdesc.descriptor.pretrained import RUN_WEIGHTS
from wsdesc.reconstruction.pipeline import reconstruct
from wsdesc.reconstruction.result import Reconstruction

logger = logging.getLogger(__name__)

KEPT_OUT_SHARE = 2 / 3  # share of the teaching steps before the check; the others use all scans
_COMPARED_PAIRS = 80


class _Outcome(NamedTuple):
    """New weights of a round, what they gain, and why they are rejected."""

    weights: WeightFiles | None = None
    final: Comparison = Comparison([], [])
    synthetic: tuple[float, float] = (0.0, 0.0)
    share: float = 1.0
    rejection: str | None = None


class RoundRunner:
    """Run the steps of a round. Steps whose result is in the folder are not repeated.

    Args:
        folder: Folder of the round.
        setup: Options and devices of the adaptation.
    """

    def __init__(self, folder: Path, setup: Setup) -> None:
        make_folder(folder)
        self.folder, self.setup = folder, setup
        self.options, self.plan, self.device = setup.options, setup.plan, setup.device
        self.pool, self.timer = setup.pool, setup.timer
        self.scans: list[TaughtScan] = []
        self.teachers = Teachers([], [], {}, [])

    def reconstruct(self, paths: Sequence[Path], weights: Path) -> Reconstruction:
        """Find the poses of the scans with the given weights."""
        o = self.options
        reconstruction = reconstruct(
            list(paths),
            self.folder / "reconstruction",
            model=weights,
            resolution=o.resolution,
            keypoints=o.reconstruct_keypoints,
            more_keypoints=2 * o.reconstruct_keypoints,
            device=self.device,
            seed=o.seed,
            jobs=self.setup.jobs,
            progress=self.timer,
        )
        sizes = ", ".join(f"{len(names)}" for names in reconstruction.components) or "none"
        logger.info("%d of %d scans placed; frames: %s", len(reconstruction.T_world_scan), len(paths), sizes)
        return reconstruction

    def run(self, reconstruction: Reconstruction, start: WeightFiles) -> tuple[Round, WeightFiles | None]:
        """Teach and check.

        Returns:
            Data and results of the round, and the new weights; None if they are not better.
        """
        self._find_teachers(reconstruction)
        kept_out = choose_kept_out(self.teachers, self.options.keep_out, self.options.seed)
        part = self.teachers.without(kept_out)
        checked = checked_pairs(self.teachers, kept_out, self.options.seed)
        if not part.pairs or not checked:
            raise InputError(
                f"{len(self.teachers.pairs)} overlapping pairs of {len(self.teachers.placed)} scans are too "
                "few to teach with some and check with the others: more scans are needed"
            )
        logger.info(
            "%d pairs teach, %d without poses beside them; %d scans kept out for the check",
            len(part.pairs), len(part.neighbours), len(kept_out),
        )  # fmt: skip
        radius = self.options.orientation_radius
        oriented = start if radius is None else with_orientation(start, radius, self.folder)
        old, first = (files.to_teach(self.plan.distill_steps > 0) for files in (start, oriented))
        teaching = Teaching(self.folder, self.setup, self.scans)
        plan = teaching.limit_steps(part, first)
        steps = round(KEPT_OUT_SHARE * plan.steps)
        taught = teaching.teach("teach", part, first, max(1, steps))
        check = self._compared("check", old, taught, checked)
        outcome = _Outcome(rejection=compare(check.before, check.after))
        if outcome.rejection is None:
            complete = teaching.teach("teach on all scans", self.teachers, taught, max(1, plan.steps - steps))
            outcome = self._mix(start, oriented, teaching.distil(plan, self.teachers, complete, oriented))
        adapted = outcome.weights
        used = taught if adapted is None else adapted.full or adapted.fast
        done = Round(
            placed=len(reconstruction.T_world_scan),
            components=[len(names) for names in reconstruction.components],
            pairs=len(self.teachers.pairs),
            wrong_pairs=sum(pair.wrong for pair in self.teachers.pairs),
            neighbours=len(self.teachers.neighbours),
            left_out=self.teachers.left_out,
            kept_out=sorted(self.scans[k].name for k in kept_out),
            steps=(plan.steps, plan.distill_steps, plan.fast_steps),
            support=(_support(first), _support(used)),
            check=check,
            final=outcome.final,
            synthetic=outcome.synthetic,
            share=outcome.share,
            rejection=outcome.rejection,
        )
        return done, None if outcome.rejection else adapted

    def _mix(self, start: WeightFiles, oriented: WeightFiles, taught: WeightFiles) -> _Outcome:
        """Mix the weights before (`oriented`) and after the teaching, and compare them with the start."""
        weights, share, synthetic = choose_mixture(oriented, taught, self.folder, self._measure_synthetic)
        final = self.compare(start.fast, weights.fast)
        rejection = compare(final.before, final.after)
        if rejection is None and synthetic[1] < synthetic[0] - MAX_FORGOTTEN:
            rejection = (
                f"the inlier ratio on synthetic scenes fell from {100 * synthetic[0]:.1f} to "
                f"{100 * synthetic[1]:.1f} %"
            )
        return _Outcome(weights, final, synthetic, share, rejection)

    def _measure_synthetic(self, weights: Path, step: str) -> float:
        return measure_synthetic(weights, self.pool, device=self.device, progress=self.timer, step=step)

    def compare(self, before: Path, after: Path) -> Comparison:
        """Compare weights on all pairs of the round."""
        pairs = limited(self.teachers.pairs, _COMPARED_PAIRS, self.options.seed)
        return self._compared(f"compare with {_label(before)}", before, after, pairs)

    def _find_teachers(self, reconstruction: Reconstruction) -> None:
        o = self.options
        with self.timer("read scans again"):
            self.scans = load_scans(reconstruction.paths, reconstruction.resolution)
        with self.timer("find teachers"):
            self.teachers = find_teachers(
                self.scans, reconstruction,
                min_overlap=o.min_overlap, wrong=o.wrong_teachers, check=o.check_teachers, seed=o.seed,
            )  # fmt: skip
        if len(self.teachers.placed) < MIN_PLACED:
            raise InputError(
                f"an adaptation needs {MIN_PLACED} scans that overlap; {len(reconstruction.T_world_scan)} of "
                f"{len(reconstruction.paths)} were placed. `wsdesc reconstruct` names the reasons for the "
                "others; the weights are unchanged"
            )

    def _compared(self, name: str, before: Path, after: Path, pairs: list[TeacherPair]) -> Comparison:
        """Measure weights before and after, or read the figures that an earlier run measured."""
        file = self.folder / f"{name.replace(' ', '_')}.json"
        if file.is_file():
            return Comparison.read(read_step(file))
        sides: list[list[PairFigures]] = []
        for weights, when in ((before, "before"), (after, "after")):
            sides.append(
                measure(
                    weights, self.scans, pairs,
                    registered=self.plan.registered_pairs, device=self.device, seed=self.options.seed,
                    progress=self.timer, step=f"{name.split(' with ')[0]}, {when}",
                )
            )  # fmt: skip
        result = Comparison(*sides)
        write_step(file, asdict(result))
        return result


def _label(weights: Path) -> str:
    return f"{weights.parent.parent.name} {weights.parent.name}" if weights.name == RUN_WEIGHTS else "start"


def _support(weights: Path) -> float:
    """Return the support in metres of the model; 0 if each keypoint has its own."""
    size = getattr(WSDesc.from_pretrained(weights).support, "size", None)
    return 0.0 if size is None else float(size.detach())
