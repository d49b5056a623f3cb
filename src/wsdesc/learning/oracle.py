"""Where scans truly stand. The one file of this room that knows poses: they are reported on, and the
supervised oracle learns from them. Nothing that learns from unlabelled scans imports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.rng import generator_of
from wsdesc.datasets.threedmatch import read_pose
from wsdesc.learning.data import Origin, TrainingData
from wsdesc.learning.identity_cache import IdentityCache
from wsdesc.learning.match_trainer import FEWEST, MatchedPair, coincident
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.sources import MixedPairs, PairSource, RoomPairs, drop_sparse

Pose = NDArray[np.float64]  # (4, 4) T_world_cloud


def pose_of(origin: Origin) -> Pose | None:
    """T_world_cloud from the `.info.txt` beside the scan; None where there is none that can be read."""
    path = origin.path.with_name(f"{origin.path.stem}.info.txt")
    if not path.is_file():
        return None
    try:
        T_world_scan = read_pose(path)
    except FileFormatError:  # what is only reported must not stop a training
        return None
    T_world_cloud = T_world_scan.copy()
    T_world_cloud[:3, 3] = T_world_scan[:3, 3] / origin.unit + T_world_scan[:3, :3] @ origin.shift
    return T_world_cloud


def motion(T_world_p: Pose | None, T_world_q: Pose | None) -> Pose | None:
    """T_q_p, None where a pose is missing."""
    if T_world_p is None or T_world_q is None:
        return None
    T_q_p: Pose = np.linalg.inv(T_world_q) @ T_world_p
    return T_q_p


def held_out_motions(data: TrainingData) -> list[Pose | None]:
    """T_q_p of each held-out pair, None where it is not known."""
    poses = {n: pose_of(data.origins[n]) for pair in data.aside for n in pair}
    return [motion(poses[i], poses[j]) for i, j in data.aside]


def posed_source(
    data: TrainingData, options: TrainOptions, workers: int | None = None
) -> PosedPairs | PosedRooms | MixedPairs:
    """The pairs that `data.source` brings, with their true matches."""
    o, seed = options.data, options.seed
    rooms = PosedRooms(seed, o.rooms, o.steps_per_room, o.least_coverage, workers, o.far)
    if isinstance(data.source, RoomPairs):
        return rooms
    if data.graph is None:
        raise InputError("the oracle learns from scans with poses beside them, not from separate shapes")
    scans = PosedPairs(data.clouds, data.learning, [pose_of(origin) for origin in data.origins], seed)
    if o.synthetic == 0:
        return scans
    both = cast(list[PairSource], [scans, rooms])
    return MixedPairs(both, [1 - o.synthetic, o.synthetic], seed)


class PosedPairs:
    """Pairs of given clouds with their true matches, all of them once in each round, in an order of its own.

    Args:
        clouds: (N, 3) each, in metres.
        pairs: numbers of two clouds each.
        poses: T_world_cloud (4, 4) of each cloud, None where it is not known. Pairs without a pose, or
            with next to no match, are left out.
        seed: of the order.
    """

    def __init__(
        self,
        clouds: Sequence[Tensor],
        pairs: Sequence[tuple[int, int]],
        poses: Sequence[Pose | None],
        seed: int,
    ) -> None:
        self.clouds, self.seed = clouds, seed
        motions = [(i, j, motion(poses[i], poses[j])) for i, j in pairs]
        found = [(i, j, coincident(clouds[i], clouds[j], T)) for i, j, T in motions if T is not None]
        self.pairs = [(i, j, matches) for i, j, matches in found if len(matches) >= FEWEST]
        if not self.pairs:
            raise InputError("no two scans have poses by which they overlap; the oracle learns from poses")

    def pair(self, number: int) -> MatchedPair:
        """The clouds and matches that belong to this number."""
        turn, place = divmod(number, len(self.pairs))
        order = torch.randperm(len(self.pairs), generator=generator_of(self.seed, 1, turn))
        i, j, matches = self.pairs[int(order[place])]
        return self.clouds[i], self.clouds[j], matches

    def close(self) -> None:
        """Nothing to let go of."""


class PosedRooms:
    """Neighbouring fragments of synthetic rooms with their true matches; arguments as of `RoomPairs`."""

    def __init__(
        self,
        seed: int,
        rooms: int,
        pairs_per_room: int,
        share: float,
        workers: int | None = None,
        far: float = 0.0,
    ) -> None:
        self._rooms = RoomPairs(seed, rooms, pairs_per_room, share, workers, make_posed_room, far)
        self._own = IdentityCache(lambda both: both[:, :3].contiguous(), 2048)  # one object a cloud, always
        self._matches = IdentityCache(lambda p, q: coincident(p[:, 3:], q[:, 3:], np.eye(4)), 4096)

    def pair(self, number: int) -> MatchedPair:
        """The clouds and matches that belong to this number."""
        while True:
            p, q = self._rooms.pair(number)  # (N, 6) and (M, 6)
            matches = self._matches.of(p, q)
            if len(matches) >= FEWEST:  # always, of neighbours
                return self._own.of(p), self._own.of(q), matches
            number += 1

    def close(self) -> None:
        """End the worker processes."""
        self._rooms.close()


def make_posed_room(seed: int, number: int, share: float) -> list[Tensor]:
    """Two or more successive fragments of a room, each sharing enough with the one before, as (N, 6): its
    points in the cloud's own frame, and in that of the room."""
    from wsdesc.datasets.synthetic import room_scans

    for attempt in range(100):
        room_seed = (seed * 1_000_003 + number) * 100 + attempt  # the rooms of `make_room`
        kept: list[Tensor] = []
        for fragment in room_scans(room_seed, 4):
            if len(fragment.points) < 2000:
                continue
            points = _placed(torch.from_numpy(fragment.points), fragment.T_world_scan, share)
            if kept and len(coincident(kept[-1][:, 3:], points[:, 3:], np.eye(4))) < FEWEST:
                break
            kept.append(points)
        if len(kept) >= 2:
            return kept
    raise RuntimeError(f"no room could be made from seed {seed}, number {number}")


def _placed(points: Tensor, T_world_scan: Pose, share: float) -> Tensor:
    cloud = drop_sparse(points, 0.3, share)  # centred
    T = torch.from_numpy(T_world_scan)
    world = (cloud + points.mean(0)).double() @ T[:3, :3].T + T[:3, 3]
    return torch.cat([cloud, world.float()], dim=1)
