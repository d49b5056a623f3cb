"""From folders of scans to pairs a training can draw from. Poses are never looked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from wsdesc.cloud.clean import clean
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION, measure
from wsdesc.datasets.scans import Reading, Sequence, check_enough, find_sequences, read_all
from wsdesc.errors import InputError
from wsdesc.learn.chance import generator_of
from wsdesc.learn.options import DataOptions, TrainOptions
from wsdesc.learn.pairs import PairGraph, Watch, find_pairs
from wsdesc.learn.sources import (
    CloudPair,
    MixedPairs,
    PairSource,
    RoomPairs,
    ScanPairs,
    ShapePairs,
    drop_sparse,
)

Say = Callable[[str], None]

_FRAME_RADIUS = 0.3
_FEWEST_TO_HOLD_OUT = 10  # pairs; of fewer all are for learning


@dataclass(frozen=True)
class TrainingData:
    """Where pairs come from, and some that are kept aside."""

    source: PairSource
    held_out: list[CloudPair]
    graph: PairGraph | None  # of the scans' pairs; None for shapes and synthetic rooms


def gather(
    places: list[Path],
    options: TrainOptions,
    *,
    say: Say = lambda line: None,
    watch: Watch = lambda name, total: nullcontext(lambda done: None),
    workers: int | None = None,
) -> TrainingData:
    """Read all scans below `places` and find their pairs; without places, synthetic rooms.

    `say` hears what a person should know: what could not be read, which unit was found, how many pairs.
    """
    data, seed = options.data, options.seed
    rooms = RoomPairs(seed, data.rooms, data.steps_per_room, data.least_coverage, workers)
    if not places:
        say("no scans given: learning from synthetic rooms")
        return TrainingData(rooms, [], None)
    sequences, readings = _read(places, say, watch)
    if any(sequence.objects for sequence in sequences):
        shapes = [points for clouds, _ in readings for points in clouds.values()]
        say(f"{len(shapes)} shapes: pairs are partial views of one shape")
        return TrainingData(ShapePairs(shapes, seed, data.noise), [], None)
    clouds = _ready(readings, data, say)
    names, lengths = [s.name for s in sequences], [len(s.scans) for s in sequences]
    graph = find_pairs(
        clouds, data.pairs, names=names, lengths=lengths, window=data.window, seed=seed, watch=watch
    )
    if not graph.pairs:
        raise InputError("no two scans were found to overlap; is their order right? try other --pairs")
    say(graph.summary())
    learning, held_out = _divide(clouds, graph, data.hold_out, seed)
    if data.synthetic == 0:
        return TrainingData(learning, held_out, graph)
    mixed = MixedPairs([learning, rooms], [1 - data.synthetic, data.synthetic], seed)
    return TrainingData(mixed, held_out, graph)


def _read(places: list[Path], say: Say, watch: Watch) -> tuple[list[Sequence], list[Reading]]:
    sequences = find_sequences(places)
    check_enough(sequences)
    with watch("read scans", sum(len(s.scans) for s in sequences)) as advance:
        readings = [read_all(sequence, lambda scan: advance(1)) for sequence in sequences]
    problems = [problem for _, some in readings for problem in some]
    if problems:
        say(
            f"{len(problems)} scans left out: "
            + "; ".join(problems[:5])
            + (" …" if len(problems) > 5 else "")
        )
    check_enough(sequences, readings)
    return sequences, readings


def _ready(readings: list[Reading], data: DataOptions, say: Say) -> list[dict[int, Tensor]]:
    """Clouds in the model's metres, not denser than they need be, without what is sparse."""
    every = [points for clouds, _ in readings for points in clouds.values()]
    scale = measure(*every[:: max(1, len(every) // 20)])
    unit = data.unit or scale.unit
    say(str(scale) if data.unit is None else f"a metre is {unit:g} of the scans' own unit, as told")
    dense = scale.spacing / unit < INDOOR_RESOLUTION / 3
    ready = []
    for clouds, _ in readings:
        made = {place: torch.from_numpy(clean(points / unit).points) for place, points in clouds.items()}
        if dense:
            made = {
                place: voxel_downsample(points, 0.8 * INDOOR_RESOLUTION) for place, points in made.items()
            }
        ready.append(
            {i: drop_sparse(points, _FRAME_RADIUS, data.least_coverage) for i, points in made.items()}
        )
    return ready


def _divide(
    clouds: list[dict[int, Tensor]], graph: PairGraph, share: float, seed: int
) -> tuple[ScanPairs, list[CloudPair]]:
    """Pairs to learn from, and pairs to look at."""
    place = {(s, i): n for n, (s, i) in enumerate((s, i) for s, some in enumerate(clouds) for i in some)}
    flat = [cloud for some in clouds for cloud in some.values()]
    pairs = [(place[p.sequence, p.i], place[p.sequence, p.j]) for p in graph.pairs]
    count = round(share * len(pairs)) if len(pairs) >= _FEWEST_TO_HOLD_OUT else 0
    order = torch.randperm(len(pairs), generator=generator_of(seed, 4)).tolist()
    aside = [(flat[pairs[n][0]], flat[pairs[n][1]]) for n in sorted(order[:count])]
    return ScanPairs(flat, [pairs[n] for n in sorted(order[count:])], seed), aside
