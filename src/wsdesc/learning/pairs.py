"""Which scans overlap, found without any pose: by their order, by a check of the points, or by both.

A trained descriptor serves the check, and where none exists, hand-made histograms do.
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
from wsdesc.learning.overlap import (
    Describe,
    OverlapEstimate,
    OverlapOptions,
    estimate_overlap,
    histogram_describe,
)

__all__ = [
    "Checked",
    "Describe",
    "OverlapEstimate",
    "OverlapOptions",
    "Pair",
    "PairGraph",
    "estimate_overlap",
    "find_pairs",
    "histogram_describe",
    "pairs_by_order",
    "pairs_by_overlap",
]

Origin = Literal["order", "overlap"]
Mode = Literal["order", "overlap", "both"]

WINDOW = 4  # places apart up to which scans count as neighbours in order
_STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Pair(BaseModel):
    """Two scans of a sequence that overlap, as far as is known."""

    model_config = _STRICT

    sequence: int = Field(ge=0)
    i: int = Field(ge=0)
    j: int = Field(ge=0)  # j > i
    overlap: float | None = Field(None, ge=0, le=1)  # estimated; None: not checked
    inliers: int | None = Field(None, ge=0)
    origin: Origin = "order"  # what proposed the pair; an overlap beside "order" confirms it

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.i >= self.j:
            raise ValueError(f"a pair needs i < j, not {self.i} and {self.j}")
        return self


class PairGraph(BaseModel):
    """The pairs of some sequences, which a training draws from; a JSON file keeps them."""

    model_config = _STRICT

    version: Literal[1] = 1
    sequences: tuple[str, ...]  # their names
    lengths: tuple[int, ...]  # how many scans each has, unreadable ones included
    pairs: tuple[Pair, ...]
    checked: int = Field(0, ge=0)  # candidates whose points were looked at
    dropped: int = Field(0, ge=0)  # neighbours in order that the check did not confirm

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.sequences) != len(self.lengths):
            raise ValueError(f"{len(self.sequences)} sequences, but {len(self.lengths)} lengths")
        for pair in self.pairs:
            if pair.sequence >= len(self.lengths) or pair.j >= self.lengths[pair.sequence]:
                raise ValueError(f"pair {pair.i}, {pair.j} of sequence {pair.sequence}: no such scan")
        if len({(p.sequence, p.i, p.j) for p in self.pairs}) < len(self.pairs):
            raise ValueError("a pair occurs twice")
        return self

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        with atomic_write(path) as temporary:
            temporary.write_text(self.model_dump_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> PairGraph:
        """Read what `save` wrote; FileFormatError where the file is anything else."""
        try:
            return cls.model_validate_json(Path(path).read_bytes())
        except OSError as error:
            raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise FileFormatError(f"{path}: not a list of scan pairs: {where}: {first['msg']}") from error

    def histogram(self) -> list[tuple[str, int]]:
        """How many pairs have an estimated overlap in each tenth, and how many have none."""
        tenths = [0] * 10
        for pair in self.pairs:
            if pair.overlap is not None:
                tenths[min(int(pair.overlap * 10), 9)] += 1
        rows = [(f"{t / 10:.1f} … {(t + 1) / 10:.1f}", n) for t, n in enumerate(tenths)]
        return [*rows, ("not checked", len(self.pairs) - sum(tenths))]

    def summary(self) -> str:
        """Some lines for people: pairs by sequence, and by estimated overlap."""
        count = [0] * len(self.sequences)
        for pair in self.pairs:
            count[pair.sequence] += 1
        lines = [f"{len(self.pairs)} pairs of {sum(self.lengths)} scans; {self.checked} candidates checked"]
        if self.dropped:
            lines.append(f"{self.dropped} neighbours in order left out: their points do not show an overlap")
        rows = zip(self.sequences, self.lengths, count, strict=True)
        lines += [f"  {name}: {length} scans, {pairs} pairs" for name, length, pairs in rows]
        if any(pair.overlap is not None for pair in self.pairs):
            lines += [f"  overlap {label:<11} {n:>6}" for label, n in self.histogram() if n]
        return "\n".join(lines)


def pairs_by_order(present: Sequence[int | Collection[int]], window: int = WINDOW) -> list[Pair]:
    """Scans at most `window` places apart. `present` gives for each sequence its length, or the places of
    the scans that could be read; the others make no pairs, and nobody moves up into their place."""
    if window < 1:
        raise InputError(f"the window of neighbours must be at least 1, not {window}")
    pairs = []
    for number, scans in enumerate(present):
        places = range(scans) if isinstance(scans, int) else sorted(set(scans))
        here = set(places)
        near = ((i, i + step) for i in places for step in range(1, window + 1) if i + step in here)
        pairs += [Pair(sequence=number, i=i, j=j) for i, j in near]
    return pairs


class Checked(NamedTuple):
    """Candidates of one sequence, after the check."""

    pairs: list[Pair]
    refused: list[tuple[int, int]]


class _Described(NamedTuple):
    grid: NeighbourGrid
    keys: Tensor  # (K, 3)
    features: Tensor  # (K, C)


@torch.no_grad()
def pairs_by_overlap(
    clouds: Mapping[int, Tensor],
    describe: Describe | None = None,
    candidates: Iterable[tuple[int, int]] | None = None,
    *,
    sequence: int = 0,
    origin: Origin = "overlap",
    unit: float = 1.0,
    seed: int = 0,
    options: OverlapOptions | None = None,
    progress: ProgressHook = no_progress,
) -> Checked:
    """Check which of `clouds`, (N, 3) each by its place in the sequence, overlap.

    Args:
        clouds: points at the working resolution, 0.025 of the unit.
        describe: a `WSDesc` model (`partial(model, unit=unit)`), or any such function; None: histograms.
        candidates: pairs of places to check; None: all, whose number grows with the square of the clouds'.
        sequence, origin: what the pairs found are to say of themselves.
        progress: hook that is entered around both steps.
    """
    options = options or OverlapOptions()
    describe = describe or histogram_describe(unit)
    chosen = sorted({(min(c), max(c)) for c in candidates or [] if c[0] != c[1]})
    if candidates is None:
        chosen = list(combinations(sorted(clouds), 2))
    needed = sorted({place for pair in chosen for place in pair})
    absent = [place for place in needed if place not in clouds]
    if absent:
        raise InputError(f"there is no cloud for scan {absent[0]} of sequence {sequence}, a candidate")

    described = {}
    with progress("describe scans", len(needed)) as advance:
        for place in needed:
            points = clouds[place]
            start = torch.Generator().manual_seed(seed + place)
            keys = points[farthest_points(points, options.keypoints, start)]
            described[place] = _Described(NeighbourGrid.of(points), keys, describe(points, keys))
            advance(1)
    checked = Checked([], [])
    with progress("check pairs", len(chosen)) as advance:
        for i, j in chosen:
            p, q = described[i], described[j]
            found = estimate_overlap(
                p.grid, q.grid, p.features, q.features, p.keys, q.keys, unit, seed, options
            )
            if found.accepted:
                overlap, inliers = found.overlap, found.inliers
                pair = Pair(sequence=sequence, i=i, j=j, overlap=overlap, inliers=inliers, origin=origin)
                checked.pairs.append(pair)
            else:
                checked.refused.append((i, j))
            advance(1)
    return checked


def find_pairs(
    sequences: Sequence[Mapping[int, Tensor]],
    mode: Mode = "both",
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
    """The pairs of whole sequences, each a mapping from places to clouds (N, 3) of the scans at hand.

    "order" takes neighbours within the window at their word, "both" keeps those that the check confirms,
    "overlap" checks every two scans of a sequence. Other arguments as in `pairs_by_overlap`.
    """
    if mode not in ("order", "overlap", "both"):
        raise InputError(f"pairs come by order, overlap or both, not by {mode!r}")
    by_order = pairs_by_order([list(clouds) for clouds in sequences], window)
    pairs, checked, dropped = by_order, 0, 0
    if mode != "order":
        pairs = []
        for number, clouds in enumerate(sequences):
            near = [(pair.i, pair.j) for pair in by_order if pair.sequence == number]
            found, refused = pairs_by_overlap(
                clouds,
                describe,
                near if mode == "both" else None,
                sequence=number,
                origin="order" if mode == "both" else "overlap",
                unit=unit,
                seed=seed,
                options=options,
                progress=progress,
            )
            pairs += found
            checked += len(found) + len(refused)
            dropped += len(refused) if mode == "both" else 0
    return PairGraph(
        sequences=tuple(names or (f"sequence {n}" for n in range(len(sequences)))),
        lengths=tuple(lengths or (max(clouds, default=-1) + 1 for clouds in sequences)),
        pairs=tuple(pairs),
        checked=checked,
        dropped=dropped,
    )
