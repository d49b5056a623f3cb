"""Sources of overlapping pairs: scans, synthetic rooms, views of shapes, and mixtures.

The pair at an index depends only on that index and the seed. A training can therefore stop and resume at any
step, and several processes can share one source.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from threading import Lock
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.errors import WSDescError
from wsdesc.core.executors import NOT_STARTED, end_with_parent
from wsdesc.core.rng import generator_of

CloudPair = tuple[Tensor, Tensor]
"""Points (N, 3) and (M, 3), float32, in metres."""

MakeRoom = Callable[[int, int, float], list[Tensor]]
"""Make the scans of a room; arguments as of `make_room`."""

_FIRST_ROOMS = 24  # synthetic rooms to draw from at the start
MIN_SCAN_POINTS = 2000  # smaller synthetic scans are left out
COVERAGE_RADIUS = 0.3  # metres; argument `radius` of `drop_sparse` for scans


class PairSource(Protocol):
    """An endless, seeded sequence of pairs."""

    def pair(self, index: int) -> CloudPair:
        """Return the pair at this index."""

    def close(self) -> None:
        """End worker processes."""


class ScanPairs:
    """Pairs of given scans: each pair once per epoch, in an order that the seed and the epoch define.

    Args:
        clouds: Points (N, 3) of each scan, in metres.
        pairs: Indices of two scans each.
        seed: Seed of the order.
    """

    def __init__(self, clouds: list[Tensor], pairs: list[tuple[int, int]], seed: int) -> None:
        self.clouds, self.pairs, self.seed = clouds, pairs, seed

    def pair(self, index: int) -> CloudPair:
        """See `PairSource`."""
        i, j = self.pairs[shuffled(index, len(self.pairs), self.seed)]
        return self.clouds[i], self.clouds[j]

    def close(self) -> None:
        """Do nothing: no worker processes exist."""


class RoomPairs:
    """Pairs of successive scans of synthetic rooms, made ahead of time by worker processes.

    Args:
        seed: Seed of rooms and pairs.
        rooms: Rooms to draw from at a time.
        pairs_per_room: Pairs until a new room replaces the oldest.
        min_coverage: See `drop_sparse`.
        workers: Number of processes; None: one less than the cores.
        make: Function that makes the scans of a room; None: `make_room`.
        far_share: Share of pairs that skip one scan and therefore overlap less.
    """

    def __init__(
        self,
        seed: int,
        rooms: int,
        pairs_per_room: int,
        min_coverage: float,
        workers: int | None = None,
        make: MakeRoom | None = None,
        far_share: float = 0.0,
    ) -> None:
        self.make, self.far_share = make or make_room, far_share
        self.seed, self.rooms, self.pairs_per_room = seed, rooms, pairs_per_room
        self.min_coverage = min_coverage
        self.workers = workers if workers is not None else max(1, (os.cpu_count() or 2) - 1)
        self._made: dict[int, Future[list[Tensor]]] = {}
        self._pool: ProcessPoolExecutor | None = None
        self._lock = Lock()

    def pair(self, index: int) -> CloudPair:
        """See `PairSource`."""
        newest = index // self.pairs_per_room + min(self.rooms, _FIRST_ROOMS) - 1
        oldest = max(0, newest - self.rooms + 1)
        generator = generator_of(self.seed, 2, index)
        room = int(torch.randint(oldest, newest + 1, (1,), generator=generator))
        with self._lock:  # threads request other pairs at the same time
            self._schedule(oldest, newest + 2 * self.workers)
            future = self._made[room]
        try:
            scans = future.result()
        except BrokenProcessPool as error:
            finished = any(made.done() and made.exception() is None for made in self._made.values())
            died = "a worker process that makes rooms died, probably for lack of memory"
            raise WSDescError(died if finished else NOT_STARTED) from error
        far = float(torch.rand(1, generator=generator)) < self.far_share and len(scans) > 2
        gap = 2 if far else 1
        i = int(torch.randint(len(scans) - gap, (1,), generator=generator))
        return scans[i], scans[i + gap]

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _schedule(self, first: int, last: int) -> None:
        """Submit the rooms first … last that are missing, and forget older ones."""
        for room in [r for r in self._made if r < first]:
            del self._made[room]
        if self._pool is None:
            self._pool = room_makers(self.workers)
        for room in range(first, last + 1):
            if room not in self._made:
                self._made[room] = self._pool.submit(self.make, self.seed, room, self.min_coverage)


def room_makers(workers: int) -> ProcessPoolExecutor:
    """Start single-threaded processes for making rooms; they end with their parent."""
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _init_worker)


def _init_worker() -> None:
    torch.set_num_threads(1)
    end_with_parent()


def make_room(seed: int, index: int, min_coverage: float) -> list[Tensor]:
    """Make two or more successive scans (N, 3) of the room with this seed and index.

    min_coverage: see `drop_sparse`.
    """
    from wsdesc.datasets.synthetic import room_scans

    for attempt in range(100):
        scans = room_scans(room_seed(seed, index, attempt), 4)
        large = [torch.from_numpy(scan.points) for scan in scans if len(scan.points) >= MIN_SCAN_POINTS]
        if len(large) >= 2:
            return [drop_sparse(points, COVERAGE_RADIUS, min_coverage) for points in large]
    raise RuntimeError(f"no room could be made from seed {seed}, index {index}")


def room_seed(seed: int, index: int, attempt: int) -> int:
    """Return the seed of an attempt at making a room."""
    return (seed * 1_000_003 + index) * 100 + attempt


def shuffled(index: int, count: int, seed: int) -> int:
    """Map an index to an item: a new permutation of `count` items in each epoch."""
    epoch, position = divmod(index, count)
    order = torch.randperm(count, generator=generator_of(seed, 1, epoch))
    return int(order[position])


class ShapePairs:
    """Pairs of partial views of a shape, as in the paper's experiments on ModelNet40.

    Args:
        shapes: Points (N, 3) of each shape.
        seed: Seed of the order and of the views.
        noise: Standard deviation of the noise on every second pair.
    """

    def __init__(self, shapes: list[NDArray[Any]], seed: int, noise: float = 0.0) -> None:
        self.shapes, self.seed, self.noise = shapes, seed, noise

    def pair(self, index: int) -> CloudPair:
        """See `PairSource`."""
        from wsdesc.datasets.partial_views import item_generator, partial_pair

        shape = self.shapes[shuffled(index, len(self.shapes), self.seed)]
        points = min(1024, len(shape))
        views = partial_pair(
            shape,
            item_generator(self.seed, index),
            points=points,
            keep=points * 3 // 4,
            noise=self.noise if index % 2 else 0.0,
        )
        return torch.from_numpy(views.source), torch.from_numpy(views.target)

    def close(self) -> None:
        """Do nothing: no worker processes exist."""


class MixedPairs:
    """Pairs drawn at random from several sources.

    Args:
        sources: Sources to draw from.
        shares: Probability of each source, up to a common factor.
        seed: Seed of the draws.
    """

    def __init__(self, sources: list[PairSource], shares: list[float], seed: int) -> None:
        self.sources, self.seed = sources, seed
        self.bounds = torch.tensor(shares, dtype=torch.float64).cumsum(0) / sum(shares)

    def pair(self, index: int) -> CloudPair:
        """See `PairSource`."""
        drawn = torch.rand(1, generator=generator_of(self.seed, 3, index), dtype=torch.float64)
        return self.sources[int((drawn > self.bounds).sum())].pair(index)

    def close(self) -> None:
        """Close all sources."""
        for source in self.sources:
            source.close()


def drop_sparse(points: Tensor, radius: float, min_coverage: float) -> Tensor:
    """Centre points (N, 3) and remove those with little surface around them.

    Args:
        points: (N, 3).
        radius: Radius of the neighbourhood.
        min_coverage: Smallest surface within the radius, as a share of the median point's; 0 keeps all
            points. Surface is counted in voxels of a sixth of the radius, so that it does not depend on
            density.
    """
    points = points - points.mean(0)
    if min_coverage > 0:
        voxels = NeighbourGrid.of(voxel_downsample(points, radius / 6))
        coverage = voxels.count(points, radius).double()
        points = points[coverage >= min_coverage * coverage.median()]
    return points
