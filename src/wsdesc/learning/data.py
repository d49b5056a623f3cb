"""Load folders of scans as training pairs. No pose is read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from wsdesc.cloud.clean import clean
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION, measure
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, transform
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.core.rng import generator_of
from wsdesc.datasets.scans import LoadedScans, ScanSequence, check_enough, find_sequences, read_all
from wsdesc.descriptor.model import WSDesc
from wsdesc.learning.options import DataOptions, TrainOptions
from wsdesc.learning.overlap import Describe, OverlapOptions
from wsdesc.learning.pair_graph import PairGraph, find_pairs
from wsdesc.learning.sources import (
    COVERAGE_RADIUS,
    CloudPair,
    MixedPairs,
    PairSource,
    RoomPairs,
    ScanPairs,
    ShapePairs,
    drop_sparse,
)

IndexPair = tuple[int, int]
"""Indices of two clouds."""

_MIN_PAIRS_TO_HOLD_OUT = 10  # with fewer pairs, none is held out
_MIN_SCANS_TO_HOLD_OUT = 20  # from this number on, whole scans are held out instead of pairs

logger = logging.getLogger(__name__)


class CloudOrigin(NamedTuple):
    """The file of a cloud and its pose: scan / unit = T_scan_cloud · cloud, with fewer points."""

    path: Path
    unit: float
    T_scan_cloud: Floats  # (4, 4) in metres


@dataclass(frozen=True)
class TrainingData:
    """A source of training pairs, and held-out pairs. Lists about scans are empty without scans."""

    source: PairSource
    held_out: list[CloudPair]
    graph: PairGraph | None  # None for shapes and synthetic rooms
    clouds: list[Tensor] = field(default_factory=list)  # (N, 3) of each scan, in metres
    origins: list[CloudOrigin] = field(default_factory=list)  # origin of each cloud
    training_pairs: list[IndexPair] = field(default_factory=list)  # pairs that the source draws
    held_out_pairs: list[IndexPair] = field(default_factory=list)  # indices of `held_out`

    def unseen_scans(self) -> list[int]:
        """Return the scans of held-out pairs that occur in no training pair."""
        trained = {cloud for pair in self.training_pairs for cloud in pair}
        return sorted({cloud for pair in self.held_out_pairs for cloud in pair} - trained)


def load_training_data(
    scans: Sequence[str | Path],
    options: TrainOptions,
    *,
    progress: ProgressHook = no_progress,
    workers: int | None = None,
) -> TrainingData:
    """Read scans and find their overlapping pairs.

    Logs the unreadable scans, the unit of length and the number of pairs.

    Args:
        scans: Folders or files of scans; none: synthetic rooms.
        options: Options of the training.
        progress: Hook for reading, describing and checking.
        workers: Processes that make synthetic rooms; None: one less than the cores.

    Raises:
        InputError: Fewer than two scans are readable, or no two of them overlap.
    """
    data, seed = options.data, options.seed
    rooms = synthetic_pairs(data, seed, workers)
    if not scans:
        logger.info("no scans given: training on synthetic rooms")
        return TrainingData(rooms, [], None)
    sequences, readings = _read(scans, progress)
    if any(sequence.objects for sequence in sequences):
        shapes = [points for clouds, _ in readings for points in clouds.values()]
        logger.info("%d shapes: training on partial views of each shape", len(shapes))
        return TrainingData(ShapePairs(shapes, seed, data.noise), [], None)
    sequence_clouds, origins = _prepare(sequences, readings, data)
    graph = find_pairs(
        sequence_clouds,
        data.pairs,
        _descriptor(options),
        names=[s.name for s in sequences],
        lengths=[len(s.scans) for s in sequences],
        window=data.window,
        seed=seed,
        options=OverlapOptions(min_overlap=data.min_overlap),
        progress=progress,
    )
    if not graph.pairs:
        raise InputError(
            "no two scans overlap: check their order (file names), or choose pairs by order, overlap or both"
        )
    logger.info("%s", graph.summary())
    clouds = [cloud for by_index in sequence_clouds for cloud in by_index.values()]
    training, held_out = split_pairs(
        [list(by_index) for by_index in sequence_clouds], graph, data.hold_out, seed
    )
    source: PairSource = ScanPairs(clouds, training, seed)
    if data.synthetic > 0:
        source = MixedPairs([source, rooms], [1 - data.synthetic, data.synthetic], seed)
    held_out_clouds = [(clouds[i], clouds[j]) for i, j in held_out]
    loaded = TrainingData(source, held_out_clouds, graph, clouds, origins, training, held_out)
    if held_out:
        unseen = loaded.unseen_scans()
        whole = len(unseen) == len({scan for pair in held_out for scan in pair})
        scope = f"{len(unseen)} scans excluded from training" if whole else "scans that training pairs share"
        logger.info("%d training pairs, %d held-out pairs of %s", len(training), len(held_out), scope)
    return loaded


def synthetic_pairs(data: DataOptions, seed: int, workers: int | None = None) -> RoomPairs:
    """Return a source of pairs of synthetic rooms and sites."""
    make = None
    if data.sites:
        from wsdesc.learning.synthetic_scenes import make_room_or_site

        make = partial(make_room_or_site, sites=data.sites)
    return RoomPairs(
        seed, data.rooms, data.steps_per_room, data.min_coverage, workers, make, far_share=data.far_share
    )


def _descriptor(options: TrainOptions) -> Describe | None:
    """Return the descriptor for the overlap check: that of the weights to start from, if any."""
    return None if options.start is None else WSDesc.from_pretrained(options.start)


def load_clouds(
    scans: Sequence[str | Path], options: TrainOptions, *, progress: ProgressHook = no_progress
) -> list[Tensor]:
    """Read scans as `load_training_data` does, without looking for pairs; one scan is enough.

    Returns:
        Points (N, 3) of each scan, in metres.
    """
    sequences, readings = _read(scans, progress, need_pairs=False)
    if any(sequence.objects for sequence in sequences):
        shapes = [torch.from_numpy(points).float() for clouds, _ in readings for points in clouds.values()]
        logger.info("%d shapes", len(shapes))
        return shapes
    sequence_clouds, _ = _prepare(sequences, readings, options.data)
    return [cloud for by_index in sequence_clouds for cloud in by_index.values()]


def _read(
    scans: Sequence[str | Path], progress: ProgressHook, need_pairs: bool = True
) -> tuple[list[ScanSequence], list[LoadedScans]]:
    sequences = find_sequences(scans)
    if need_pairs:
        check_enough(sequences)
    with progress("read scans", sum(len(s.scans) for s in sequences)) as advance:
        readings = [read_all(sequence, lambda scan: advance(1)) for sequence in sequences]
    problems = [problem for _, reasons in readings for problem in reasons]
    if problems:
        listed = "; ".join(problems[:5]) + (" …" if len(problems) > 5 else "")
        logger.warning("unreadable scans skipped (%d): %s", len(problems), listed)
    if need_pairs:
        check_enough(sequences, readings)
    elif not any(clouds for clouds, _ in readings):
        raise InputError(f"no scan is readable; the first: {problems[0]}")
    return sequences, readings


def _prepare(
    sequences: list[ScanSequence], readings: list[LoadedScans], data: DataOptions
) -> tuple[list[dict[int, Tensor]], list[CloudOrigin]]:
    """Clean and downsample scans in metres; return clouds by index for each sequence, and all origins."""
    scans = [points for clouds, _ in readings for points in clouds.values()]
    scale = measure(*scans[:: max(1, len(scans) // 20)])
    unit = data.unit or scale.unit
    if data.unit is None:
        logger.info("%s", scale)
    else:
        logger.info("one metre is %g of the scans' unit, as given", unit)
    voxel = data.voxel
    if voxel is None and scale.spacing / unit < INDOOR_RESOLUTION / 3:
        voxel = 0.8 * INDOOR_RESOLUTION
    prepared: list[dict[int, Tensor]] = []
    origins = []
    for sequence, (clouds, _) in zip(sequences, readings, strict=True):
        prepared.append({})
        for index, scan in clouds.items():
            cleaned = clean(scan / unit)
            points = torch.from_numpy(cleaned.points)
            if voxel is not None:
                points = voxel_downsample(points, voxel)
            T_scan_cloud = cleaned.T_scan_local.copy()
            mean = points.mean(0, keepdim=True).double().numpy()  # `drop_sparse` subtracts the mean
            T_scan_cloud[:3, 3] = transform(mean, cleaned.T_scan_local)[0]
            prepared[-1][index] = drop_sparse(points, COVERAGE_RADIUS, data.min_coverage)
            origins.append(CloudOrigin(sequence.scans[index].path, unit, T_scan_cloud))
    return prepared, origins


def split_pairs(
    present: list[list[int]], graph: PairGraph, share: float, seed: int
) -> tuple[list[IndexPair], list[IndexPair]]:
    """Split pairs into training pairs and held-out pairs.

    With at least 20 scans, scans at the ends of sequences are held out. Pairs of a held-out scan and another
    one belong to neither part: no held-out scan is trained on. With fewer scans, pairs are held out.

    Args:
        present: Indices of the readable scans of each sequence.
        graph: Pairs of these sequences.
        share: Share of scans or pairs to hold out.
        seed: Seed of the choice.

    Returns:
        Training pairs and held-out pairs, as indices into all readable scans.
    """
    scans = [(sequence, i) for sequence, indices in enumerate(present) for i in indices]
    cloud = {scan: index for index, scan in enumerate(scans)}
    pairs = [(cloud[p.sequence, p.i], cloud[p.sequence, p.j]) for p in graph.pairs]
    if len(cloud) >= _MIN_SCANS_TO_HOLD_OUT:
        sequences = [[cloud[s, i] for i in indices] for s, indices in enumerate(present)]
        excluded = _held_out_scans(sequences, share, seed)
        training = [pair for pair in pairs if not excluded & set(pair)]
        held_out = [pair for pair in pairs if excluded >= set(pair)]
        if training and held_out:
            return training, held_out
    count = round(share * len(pairs)) if len(pairs) >= _MIN_PAIRS_TO_HOLD_OUT else 0
    order = torch.randperm(len(pairs), generator=generator_of(seed, 4)).tolist()
    return [pairs[n] for n in sorted(order[count:])], [pairs[n] for n in sorted(order[:count])]


def _held_out_scans(sequences: list[list[int]], share: float, seed: int) -> set[int]:
    """Select scans at the ends of sequences, where the fewest pairs are lost; at most a third of each."""
    generator = generator_of(seed, 4)
    missing = round(share * sum(map(len, sequences)))
    selected: set[int] = set()
    for n in torch.randperm(len(sequences), generator=generator).tolist():
        at_start = bool(torch.rand(1, generator=generator) < 0.5)
        count = min(missing, len(sequences[n]) // 3)
        if count >= 2:  # a single scan forms no pair
            selected |= set(sequences[n][:count] if at_start else sequences[n][-count:])
            missing -= count
    return selected
