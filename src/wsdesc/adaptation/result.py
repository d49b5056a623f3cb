"""Result of an adaptation."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wsdesc.adaptation.check import PairFigures, Summary, summarise
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError
from wsdesc.core.file_parts import as_path

RESULT_FILE = "adaptation.json"
BINS = ((0.05, 0.1), (0.1, 0.3), (0.3, 0.5), (0.5, 1.01))  # overlaps of the rows of a report


@dataclass(frozen=True)
class Comparison:
    """Figures of the same pairs before and after, in the same order."""

    before: list[PairFigures]
    after: list[PairFigures]

    def by_overlap(self) -> list[tuple[str, Summary, Summary]]:
        """Return label and summaries of each range of overlap that has pairs, and of all pairs."""
        rows = []
        for low, high in BINS:
            label = f"{low:g} … {min(high, 1):g}"
            parts = [[f for f in side if low <= f.overlap < high] for side in (self.before, self.after)]
            if parts[0]:
                rows.append((label, summarise(parts[0]), summarise(parts[1])))
        return [*rows, ("all", summarise(self.before), summarise(self.after))]

    @classmethod
    def read(cls, plain: dict[str, Any]) -> Comparison:
        """Read values that `asdict` returned."""
        return cls(*([PairFigures(**row) for row in plain[side]] for side in ("before", "after")))


@dataclass(frozen=True)
class Round:
    """One round: its training data, and the results of the check.

    Attributes:
        placed: Number of scans with a pose.
        components: Sizes of the frames.
        pairs: Number of pairs that taught.
        wrong_pairs: Number of these with an injected wrong pose.
        neighbours: Number of pairs without a pose that were used by the weakly supervised loss.
        left_out: Number of pairs that were left out, by reason.
        kept_out: Names of the scans that only the check used.
        steps: Steps of teaching, distillation and teaching of the fast network.
        support: Support before and after, in metres of the model.
        check: Figures of the scans that were kept out, before and after the first part of the teaching.
        final: Figures of all pairs with the fast weights, before and after the round.
        synthetic: Inlier ratio on synthetic scenes before and after, with the fast weights.
        rejection: Why the weights were not better; None if they were.
        share: Share of the taught weights in the new ones; the rest is that of the weights before.
    """

    placed: int
    components: list[int]
    pairs: int
    wrong_pairs: int
    neighbours: int
    left_out: dict[str, int]
    kept_out: list[str]
    steps: tuple[int, int, int]
    support: tuple[float, float]
    check: Comparison
    final: Comparison
    synthetic: tuple[float, float]
    rejection: str | None
    share: float = 1.0


@dataclass(frozen=True)
class Adaptation:
    """The result of `wsdesc.adapt`.

    `--model` and `model=` of all functions accept the folder. Its file `model.safetensors` holds the fast
    weights, `full.safetensors` the full ones.

    Attributes:
        folder: Folder of the adaptation.
        improved: True if the weights are better than those before. If not, the folder holds the old ones.
        reason: Why they are not better; empty if they are.
        start: Weights that the adaptation began with.
        device: Device of the training.
        scans: Number of readable scans.
        rounds: Data and results of each round.
        comparison: Figures of all pairs before and after, with the fast weights.
        seconds: Time of each step, in this process.
    """

    folder: Path
    improved: bool
    reason: str
    start: str
    device: str
    scans: int
    rounds: list[Round]
    comparison: Comparison
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def report(self) -> Path:
        """The report, in Markdown."""
        return self.folder / "report.md"

    def __repr__(self) -> str:
        return f"Adaptation({str(self.folder)!r}, improved={self.improved}, scans={self.scans})"

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """Describe the result in a few lines."""
        _, old, new = self.comparison.by_overlap()[-1]
        state = "adapted weights" if self.improved else f"not better, the old weights are kept: {self.reason}"
        lines = [f"{self.folder}: {state}"]
        if old.pairs:
            lines += [
                f"  inlier ratio of {old.pairs} pairs: {100 * old.inlier_ratio:.1f} → "
                f"{100 * new.inlier_ratio:.1f} %",
                f"  registered by RANSAC with few keypoints: {100 * old.ransac_recall:.1f} → "
                f"{100 * new.ransac_recall:.1f} %",
            ]
        return "\n".join(lines)

    def save(self) -> None:
        """Write adaptation.json."""
        values = asdict(self) | {"folder": None}
        with atomic_write(self.folder / RESULT_FILE) as temporary:
            temporary.write_text(json.dumps(values), encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Adaptation:
        """Read the result in the folder of a finished adaptation.

        Raises:
            FileFormatError: adaptation.json is missing or damaged.
        """
        folder = as_path(folder, "the folder")
        path = folder / RESULT_FILE
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            rounds = [_read_round(row) for row in values["rounds"]]
            comparison = Comparison.read(values["comparison"])
            return cls(**values | {"folder": folder, "rounds": rounds, "comparison": comparison})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise FileFormatError(f"{path}: not the result of a finished adaptation") from error


def _read_round(values: dict[str, Any]) -> Round:
    tuples = {name: tuple(values[name]) for name in ("steps", "support", "synthetic")}
    comparisons = {name: Comparison.read(values[name]) for name in ("check", "final")}
    return Round(**values | tuples | comparisons)
