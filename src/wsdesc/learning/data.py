"""From folders of scans to pairs a training can draw from. Poses are never looked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.cloud.clean import clean
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION, measure
from wsdesc.core.errors import InputError
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.core.rng import generator_of
from wsdesc.datasets.scans import LoadedScans, ScanSequence, check_enough, find_sequences, read_all
from wsdesc.descriptor.model import WSDesc
from wsdesc.learning.options import DataOptions, TrainOptions
from wsdesc.learning.overlap import Describe, OverlapOptions
from wsdesc.learning.pairs import PairGraph, find_pairs
from wsdesc.learning.sources import (
    CloudPair,
    MixedPairs,
    PairSource,
    RoomPairs,
    ScanPairs,
    ShapePairs,
    drop_sparse,
)

Say = Callable[[str], None]

Two = tuple[int, int]  # numbers of two clouds

_FRAME_RADIUS = 0.3
_FEWEST_TO_HOLD_OUT = 10  # pairs; of fewer all are for learning
_FEWEST_SCANS = 20  # from which on whole scans are held out


class Origin(NamedTuple):
    """How a cloud was made from a scan: cloud = scan / unit − shift, of fewer points."""

    path: Path
    unit: float
    shift: NDArray[np.float64]  # (3,) in the cloud's metres


@dataclass(frozen=True)
class TrainingData:
    """Where pairs come from, and some that are kept aside. What is about scans is empty without them."""

    source: PairSource
    held_out: list[CloudPair]
    graph: PairGraph | None  # of the scans' pairs; None for shapes and synthetic rooms
    clouds: list[Tensor] = field(default_factory=list)  # all scans, (N, 3) each
    origins: list[Origin] = field(default_factory=list)  # and what they were made of
    learning: list[Two] = field(default_factory=list)  # pairs of them that the source brings
    aside: list[Two] = field(default_factory=list)  # those of `held_out`

    def unseen(self) -> list[int]:
        """Clouds of held-out pairs that no learning pair has."""
        seen = {cloud for pair in self.learning for cloud in pair}
        return sorted({cloud for pair in self.aside for cloud in pair} - seen)


def gather(
    places: list[Path],
    options: TrainOptions,
    *,
    say: Say = lambda line: None,
    progress: ProgressHook = no_progress,
    workers: int | None = None,
) -> TrainingData:
    """Read all scans below `places` and find their pairs; without places, synthetic rooms.

    `say` hears what a person should know: what could not be read, which unit was found, how many pairs.
    """
    data, seed = options.data, options.seed
    rooms = RoomPairs(seed, data.rooms, data.steps_per_room, data.least_coverage, workers, far=data.far)
    if not places:
        say("no scans given: learning from synthetic rooms")
        return TrainingData(rooms, [], None)
    sequences, readings = _read(places, say, progress)
    if any(sequence.objects for sequence in sequences):
        shapes = [points for clouds, _ in readings for points in clouds.values()]
        say(f"{len(shapes)} shapes: pairs are partial views of one shape")
        return TrainingData(ShapePairs(shapes, seed, data.noise), [], None)
    clouds, origins = _ready(sequences, readings, data, say)
    names, lengths = [s.name for s in sequences], [len(s.scans) for s in sequences]
    graph = find_pairs(
        clouds,
        data.pairs,
        _describer(options),
        names=names,
        lengths=lengths,
        window=data.window,
        seed=seed,
        options=OverlapOptions(least_overlap=data.least_overlap),
        progress=progress,
    )
    if not graph.pairs:
        raise InputError("no two scans were found to overlap; is their order right? try other --pairs")
    say(graph.summary())
    flat = [cloud for some in clouds for cloud in some.values()]
    learning, aside = divide([list(some) for some in clouds], graph, data.hold_out, seed)
    source: PairSource = ScanPairs(flat, learning, seed)
    if data.synthetic > 0:
        source = MixedPairs([source, rooms], [1 - data.synthetic, data.synthetic], seed)
    held_out = [(flat[i], flat[j]) for i, j in aside]
    made = TrainingData(source, held_out, graph, flat, origins, learning, aside)
    if aside:
        unseen = made.unseen()
        whole = len(unseen) == len({scan for pair in aside for scan in pair})
        of = (
            f"of {len(unseen)} scans that are never trained on" if whole else "of scans that other pairs have"
        )
        say(f"{len(learning)} pairs to learn from, {len(aside)} held out, {of}")
    return made


def _describer(options: TrainOptions) -> Describe | None:
    """Who describes scans for the check of their overlap: the weights to start from, where there are any."""
    return None if options.start is None else WSDesc.from_pretrained(options.start)


def gather_clouds(
    places: list[Path],
    options: TrainOptions,
    *,
    say: Say = lambda line: None,
    progress: ProgressHook = no_progress,
) -> list[Tensor]:
    """All scans below `places` as `gather` makes them ready, for whom pairs do not matter; one is enough."""
    sequences, readings = _read(places, say, progress, pairs=False)
    if any(sequence.objects for sequence in sequences):
        shapes = [torch.from_numpy(points).float() for clouds, _ in readings for points in clouds.values()]
        say(f"{len(shapes)} shapes")
        return shapes
    clouds, _ = _ready(sequences, readings, options.data, say)
    return [cloud for some in clouds for cloud in some.values()]


def _read(
    places: list[Path], say: Say, progress: ProgressHook, pairs: bool = True
) -> tuple[list[ScanSequence], list[LoadedScans]]:
    sequences = find_sequences(places)
    if pairs:
        check_enough(sequences)
    with progress("read scans", sum(len(s.scans) for s in sequences)) as advance:
        readings = [read_all(sequence, lambda scan: advance(1)) for sequence in sequences]
    problems = [problem for _, some in readings for problem in some]
    if problems:
        say(
            f"{len(problems)} scans left out: "
            + "; ".join(problems[:5])
            + (" …" if len(problems) > 5 else "")
        )
    if pairs:
        check_enough(sequences, readings)
    elif not any(clouds for clouds, _ in readings):
        raise InputError(f"no scan that can be read; the first: {problems[0]}")
    return sequences, readings


def _ready(
    sequences: list[ScanSequence], readings: list[LoadedScans], data: DataOptions, say: Say
) -> tuple[list[dict[int, Tensor]], list[Origin]]:
    """Clouds in the model's metres, not denser than they need be, without what is sparse; and the origins of
    all, one sequence after the other."""
    every = [points for clouds, _ in readings for points in clouds.values()]
    scale = measure(*every[:: max(1, len(every) // 20)])
    unit = data.unit or scale.unit
    say(str(scale) if data.unit is None else f"a metre is {unit:g} of the scans' own unit, as told")
    thin = data.thin
    if thin is None and scale.spacing / unit < INDOOR_RESOLUTION / 3:
        thin = 0.8 * INDOOR_RESOLUTION
    ready: list[dict[int, Tensor]] = []
    origins = []
    for sequence, (clouds, _) in zip(sequences, readings, strict=True):
        ready.append({})
        for place, scan in clouds.items():
            cleaned = clean(scan / unit)
            points = torch.from_numpy(cleaned.points)
            if thin is not None:
                points = voxel_downsample(points, thin)
            shift = cleaned.offset + points.mean(0).double().numpy()  # which `drop_sparse` takes away
            ready[-1][place] = drop_sparse(points, _FRAME_RADIUS, data.least_coverage)
            origins.append(Origin(sequence.scans[place].path, unit, shift))
    return ready, origins


def divide(
    present: list[list[int]], graph: PairGraph, share: float, seed: int
) -> tuple[list[Two], list[Two]]:
    """Pairs to learn from, and pairs to look at, as numbers of the scans `present` in each sequence, one
    sequence after the other.

    With many scans a few at the ends of sequences are held out, and pairs between those and others belong
    to neither side: what is looked at was never learned from. With few, some pairs are held out.
    """
    number = {(s, i): n for n, (s, i) in enumerate((s, i) for s, some in enumerate(present) for i in some)}
    pairs = [(number[p.sequence, p.i], number[p.sequence, p.j]) for p in graph.pairs]
    if len(number) >= _FEWEST_SCANS:
        apart = _scans_apart([[number[s, i] for i in some] for s, some in enumerate(present)], share, seed)
        learning = [pair for pair in pairs if not apart & set(pair)]
        aside = [pair for pair in pairs if apart >= set(pair)]
        if learning and aside:
            return learning, aside
    count = round(share * len(pairs)) if len(pairs) >= _FEWEST_TO_HOLD_OUT else 0
    order = torch.randperm(len(pairs), generator=generator_of(seed, 4)).tolist()
    return [pairs[n] for n in sorted(order[count:])], [pairs[n] for n in sorted(order[:count])]


def _scans_apart(sequences: list[list[int]], share: float, seed: int) -> set[int]:
    """That share of all scans, neighbours from an end of one sequence after another, a third of each at
    most: at an end the fewest pairs are cut."""
    generator = generator_of(seed, 4)
    left = round(share * sum(map(len, sequences)))
    apart: set[int] = set()
    for n in torch.randperm(len(sequences), generator=generator).tolist():
        at_start = bool(torch.rand(1, generator=generator) < 0.5)
        count = min(left, len(sequences[n]) // 3)
        if count >= 2:  # one alone makes no pair
            apart |= set(sequences[n][:count] if at_start else sequences[n][-count:])
            left -= count
    return apart
