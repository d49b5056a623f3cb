"""Select overlapping scans without poses: by scan order, by an overlap check, or by both.

The overlap check uses trained descriptors where they exist, point feature histograms otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal, NamedTuple, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.learning.options import PairMode
from wsdesc.learning.overlap import Describe, OverlapOptions, estimate_overlap, histogram_describe

PairOrigin = Literal["order", "overlap"]

WINDOW = 4  # largest distance of two neighbours in a sequence, in scans
_STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class OverlappingPair(BaseModel):
    """Two scans of a sequence that overlap, by their indices."""

    model_config = _STRICT

    sequence: int = Field(ge=0, description="Index of the sequence.")
    i: int = Field(ge=0, description="Index of the first scan in the sequence.")
    j: int = Field(ge=0, description="Index of the second scan, larger than i.")
    overlap: float | None = Field(None, ge=0, le=1, description="Estimated overlap; None: not checked.")
    inliers: int | None = Field(None, ge=0, description="Inliers of the overlap check; None: not checked.")
    origin: PairOrigin = Field("order", description="Proposed by scan order or by the overlap check.")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.i >= self.j:
            raise ValueError(f"a pair needs i < j, got {self.i} and {self.j}")
        return self


class PairGraph(BaseModel):
    """The overlapping pairs of one or more sequences, saved as JSON."""

    model_config = _STRICT

    version: Literal[1] = 1
    sequences: tuple[str, ...] = Field(description="Names of the sequences.")
    lengths: tuple[int, ...] = Field(description="Scans of each sequence, unreadable ones included.")
    pairs: tuple[OverlappingPair, ...]
    checked: int = Field(0, ge=0, description="Number of pairs whose overlap was checked.")
    dropped: int = Field(0, ge=0, description="Number of neighbours in order that the check rejected.")

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if len(self.sequences) != len(self.lengths):
            raise ValueError(f"{len(self.sequences)} sequences, but {len(self.lengths)} lengths")
        for pair in self.pairs:
            if pair.sequence >= len(self.lengths) or pair.j >= self.lengths[pair.sequence]:
                raise ValueError(f"pair {pair.i}, {pair.j} of sequence {pair.sequence}: no such scan")
        if len({(p.sequence, p.i, p.j) for p in self.pairs}) < len(self.pairs):
            raise ValueError("a pair occurs twice")
        return self

    def save(self, path: str | Path) -> None:
        """Write the graph as JSON."""
        with atomic_write(path) as temporary:
            temporary.write_text(self.model_dump_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> PairGraph:
        """Read a graph that `save` wrote.

        Raises:
            FileFormatError: The file cannot be read or is no pair graph.
        """
        try:
            return cls.model_validate_json(Path(path).read_bytes())
        except OSError as error:
            raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "the file"
            raise FileFormatError(f"{path}: not a list of scan pairs: {field}: {first['msg']}") from error

    def histogram(self) -> list[tuple[str, int]]:
        """Count the pairs per tenth of estimated overlap, and the unchecked ones."""
        tenths = [0] * 10
        for pair in self.pairs:
            if pair.overlap is not None:
                tenths[min(int(pair.overlap * 10), 9)] += 1
        rows = [(f"{t / 10:.1f} … {(t + 1) / 10:.1f}", n) for t, n in enumerate(tenths)]
        return [*rows, ("not checked", len(self.pairs) - sum(tenths))]

    def summary(self) -> str:
        """Describe the graph in a few lines: pairs by sequence and by estimated overlap."""
        count = [0] * len(self.sequences)
        for pair in self.pairs:
            count[pair.sequence] += 1
        lines = [f"{len(self.pairs)} pairs of {sum(self.lengths)} scans; {self.checked} pairs checked"]
        if self.dropped:
            lines.append(f"{self.dropped} neighbours in order rejected by the overlap check")
        rows = zip(self.sequences, self.lengths, count, strict=True)
        lines += [f"  {name}: {length} scans, {pairs} pairs" for name, length, pairs in rows]
        if any(pair.overlap is not None for pair in self.pairs):
            lines += [f"  overlap {label:<11} {n:>6}" for label, n in self.histogram() if n]
        return "\n".join(lines)


def pairs_by_order(present: Sequence[int | Collection[int]], window: int = WINDOW) -> list[OverlappingPair]:
    """Pair scans at most `window` apart in their sequence.

    Args:
        present: For each sequence its length, or the indices of its readable scans. Unreadable scans leave
            gaps: They form no pairs, and no scan moves into their place.
        window: Largest distance of two scans.
    """
    if window < 1:
        raise InputError(f"window must be at least 1, got {window}")
    pairs = []
    for sequence, scans in enumerate(present):
        indices = range(scans) if isinstance(scans, int) else sorted(set(scans))
        readable = set(indices)
        near = ((i, i + step) for i in indices for step in range(1, window + 1) if i + step in readable)
        pairs += [OverlappingPair(sequence=sequence, i=i, j=j) for i, j in near]
    return pairs


class CheckedPairs(NamedTuple):
    """Accepted and rejected pairs of one sequence."""

    accepted: list[OverlappingPair]
    rejected: list[tuple[int, int]]


class _DescribedScan(NamedTuple):
    grid: NeighbourGrid
    keypoints: Tensor  # (K, 3)
    descriptors: Tensor  # (K, C)


def _describe_scan(
    points: Tensor, describe: Describe, count: int, generator: torch.Generator
) -> _DescribedScan:
    keypoints = points[farthest_points(points, count, generator)]
    return _DescribedScan(NeighbourGrid.of(points), keypoints, describe(points, keypoints))


@torch.no_grad()
def pairs_by_overlap(
    clouds: Mapping[int, Tensor],
    describe: Describe | None = None,
    candidates: Iterable[tuple[int, int]] | None = None,
    *,
    sequence: int = 0,
    origin: PairOrigin = "overlap",
    unit: float = 1.0,
    seed: int = 0,
    options: OverlapOptions | None = None,
    progress: ProgressHook = no_progress,
) -> CheckedPairs:
    """Check which scans of a sequence overlap.

    Args:
        clouds: Points (N, 3) at the working resolution (0.025 of the unit), by scan index.
        describe: Descriptor function, for example a `WSDesc` model; None: point feature histograms.
        candidates: Pairs of scan indices to check; None: all pairs, whose number is quadratic.
        sequence, origin: Values of these fields in the accepted pairs.
        unit: Length of one metre in the unit of the points.
        seed: Seed of keypoints and RANSAC.
        options: Thresholds of the check.
        progress: Hook for the two steps, describing and checking.
    """
    options = options or OverlapOptions()
    describe = describe or histogram_describe(unit)
    selected = sorted({(min(c), max(c)) for c in candidates or [] if c[0] != c[1]})
    if candidates is None:
        selected = list(combinations(sorted(clouds), 2))
    needed = sorted({scan for pair in selected for scan in pair})
    missing = [scan for scan in needed if scan not in clouds]
    if missing:
        raise InputError(f"candidates: scan {missing[0]} of sequence {sequence} does not exist")

    described = {}
    with progress("describe scans", len(needed)) as advance:
        for scan in needed:
            generator = torch.Generator().manual_seed(seed + scan)
            described[scan] = _describe_scan(clouds[scan], describe, options.keypoints, generator)
            advance(1)
    checked = CheckedPairs([], [])
    with progress("check pairs", len(selected)) as advance:
        for i, j in selected:
            p, q = described[i], described[j]
            estimate = estimate_overlap(
                p.grid, q.grid, p.descriptors, q.descriptors, p.keypoints, q.keypoints, unit, seed, options
            )
            if estimate.accepted:
                pair = OverlappingPair(
                    sequence=sequence,
                    i=i,
                    j=j,
                    overlap=estimate.overlap,
                    inliers=estimate.inliers,
                    origin=origin,
                )
                checked.accepted.append(pair)
            else:
                checked.rejected.append((i, j))
            advance(1)
    return checked


def find_pairs(
    sequences: Sequence[Mapping[int, Tensor]],
    mode: PairMode = "both",
    describe: Describe | None = None,
    *,
    names: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    window: int = WINDOW,
    unit: float = 1.0,
    seed: int = 0,
    options: OverlapOptions | None = None,
    progress: ProgressHook = no_progress,
) -> PairGraph:
    """Find the overlapping pairs of sequences of scans.

    Args:
        sequences: Points (N, 3) by scan index, for each sequence.
        mode: "order" takes all neighbours within the window, "both" keeps those that pass the overlap check,
            "overlap" checks all pairs of a sequence.
        names: Names of the sequences.
        lengths: Number of scans of each sequence, unreadable ones included.
        window: Largest distance of two neighbours.
        describe, unit, seed, options, progress: See `pairs_by_overlap`.
    """
    if mode not in ("order", "overlap", "both"):
        raise InputError(f"pairs must be order, overlap or both, got {mode!r}")
    by_order = pairs_by_order([list(clouds) for clouds in sequences], window)
    pairs, checked, dropped = by_order, 0, 0
    if mode != "order":
        pairs = []
        for sequence, clouds in enumerate(sequences):
            neighbours = [(pair.i, pair.j) for pair in by_order if pair.sequence == sequence]
            accepted, rejected = pairs_by_overlap(
                clouds,
                describe,
                neighbours if mode == "both" else None,
                sequence=sequence,
                origin="order" if mode == "both" else "overlap",
                unit=unit,
                seed=seed,
                options=options,
                progress=progress,
            )
            pairs += accepted
            checked += len(accepted) + len(rejected)
            dropped += len(rejected) if mode == "both" else 0
    return PairGraph(
        sequences=tuple(names or (f"sequence {n}" for n in range(len(sequences)))),
        lengths=tuple(lengths or (max(clouds, default=-1) + 1 for clouds in sequences)),
        pairs=tuple(pairs),
        checked=checked,
        dropped=dropped,
    )
