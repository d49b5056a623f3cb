"""Endless supplies of overlapping pairs. What comes at a number depends on that number and the seed alone,
so that a training can stop and go on anywhere, and several processes can share it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from threading import Lock
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.executors import end_with_parent
from wsdesc.core.rng import generator_of

CloudPair = tuple[Tensor, Tensor]  # (N, 3) and (M, 3), float32, in metres
_FIRST_ROOMS = 24  # synthetic rooms to choose from at the start
MakeRoom = Callable[[int, int, float], list[Tensor]]  # as `make_room`


class PairSource(Protocol):
    """An endless, seeded supply of pairs."""

    def pair(self, number: int) -> CloudPair:
        """The pair that belongs to this number."""

    def close(self) -> None:
        """Let go of worker processes."""


class ScanPairs:
    """Pairs of given clouds, all of them once in each round, in an order of its own."""

    def __init__(self, clouds: list[Tensor], pairs: list[tuple[int, int]], seed: int) -> None:
        self.clouds, self.pairs, self.seed = clouds, pairs, seed

    def pair(self, number: int) -> CloudPair:
        """See `PairSource`."""
        turn, place = divmod(number, len(self.pairs))
        order = torch.randperm(len(self.pairs), generator=generator_of(self.seed, 1, turn))
        i, j = self.pairs[int(order[place])]
        return self.clouds[i], self.clouds[j]

    def close(self) -> None:
        """Nothing to let go of."""


class RoomPairs:
    """Fragments of synthetic rooms that follow each other or, in a share `far` of the pairs, the next but
    one, which has less in common. Every so many pairs a new room joins and the oldest leaves; rooms are made
    ahead by other processes, by `make`."""

    def __init__(
        self,
        seed: int,
        rooms: int,
        pairs_per_room: int,
        share: float,
        workers: int | None = None,
        make: MakeRoom | None = None,
        far: float = 0.0,
    ) -> None:
        self.make, self.far = make or make_room, far
        self.seed, self.rooms, self.pairs_per_room, self.share = seed, rooms, pairs_per_room, share
        self.workers = workers if workers is not None else max(1, (os.cpu_count() or 2) - 1)
        self._made: dict[int, Future[list[Tensor]]] = {}
        self._pool: ProcessPoolExecutor | None = None
        self._lock = Lock()

    def pair(self, number: int) -> CloudPair:
        """See `PairSource`."""
        newest = number // self.pairs_per_room + min(self.rooms, _FIRST_ROOMS) - 1
        oldest = max(0, newest - self.rooms + 1)
        generator = generator_of(self.seed, 2, number)
        room = int(torch.randint(oldest, newest + 1, (1,), generator=generator))
        with self._lock:  # other threads ask for other numbers
            self._keep(oldest, newest + 2 * self.workers)
            made = self._made[room]
        fragments = made.result()
        far = float(torch.rand(1, generator=generator)) < self.far and len(fragments) > 2
        apart = 2 if far else 1
        i = int(torch.randint(len(fragments) - apart, (1,), generator=generator))
        return fragments[i], fragments[i + apart]

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _keep(self, first: int, last: int) -> None:
        for room in [r for r in self._made if r < first]:
            del self._made[room]
        if self._pool is None:
            self._pool = room_makers(self.workers)
        for room in range(first, last + 1):
            if room not in self._made:
                self._made[room] = self._pool.submit(self.make, self.seed, room, self.share)


def room_makers(workers: int) -> ProcessPoolExecutor:
    """Processes that make rooms, each on one thread, and end with the one that started them."""
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin)


def _begin() -> None:
    torch.set_num_threads(1)
    end_with_parent()


def make_room(seed: int, number: int, share: float) -> list[Tensor]:
    """At least two successive fragments of the room that belongs to (seed, number), cleaned for training."""
    from wsdesc.datasets.synthetic import room_scans

    for attempt in range(100):
        room_seed = (seed * 1_000_003 + number) * 100 + attempt
        found = [torch.from_numpy(f.points) for f in room_scans(room_seed, 4) if len(f.points) >= 2000]
        if len(found) >= 2:
            return [drop_sparse(points, 0.3, share) for points in found]
    raise RuntimeError(f"no room could be made from seed {seed}, number {number}")


class ShapePairs:
    """Two partial views of a shape, as in the paper's experiments on ModelNet40; every second pair noisy."""

    def __init__(self, shapes: list[NDArray[Any]], seed: int, noise: float = 0.0) -> None:
        self.shapes, self.seed, self.noise = shapes, seed, noise

    def pair(self, number: int) -> CloudPair:
        """See `PairSource`."""
        from wsdesc.datasets.modelnet40 import item_generator, partial_pair

        turn, place = divmod(number, len(self.shapes))
        order = torch.randperm(len(self.shapes), generator=generator_of(self.seed, 1, turn))
        shape = self.shapes[int(order[place])]
        points = min(1024, len(shape))
        made = partial_pair(
            shape,
            item_generator(self.seed, number),
            points=points,
            keep=points * 3 // 4,
            noise=self.noise if number % 2 else 0.0,
        )
        return torch.from_numpy(made.source), torch.from_numpy(made.target)

    def close(self) -> None:
        """Nothing to let go of."""


class MixedPairs:
    """Sometimes from one source, sometimes from another, by given shares."""

    def __init__(self, sources: list[PairSource], shares: list[float], seed: int) -> None:
        self.sources, self.seed = sources, seed
        self.bounds = torch.tensor(shares, dtype=torch.float64).cumsum(0) / sum(shares)

    def pair(self, number: int) -> CloudPair:
        """See `PairSource`."""
        drawn = torch.rand(1, generator=generator_of(self.seed, 3, number), dtype=torch.float64)
        return self.sources[int((drawn > self.bounds).sum())].pair(number)

    def close(self) -> None:
        """Close all sources."""
        for source in self.sources:
            source.close()


def drop_sparse(points: Tensor, radius: float, share: float) -> Tensor:
    """Leave out points that have less surface within `radius` than `share` of what the median point has.

    Surface is counted in cells of a sixth of the radius, whatever the density. Points come back centred.
    """
    points = points - points.mean(0)
    if share > 0:
        covered = NeighbourGrid.of(voxel_downsample(points, radius / 6)).count(points, radius).double()
        points = points[covered >= share * covered.median()]
    return points
