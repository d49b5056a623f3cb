"""Ground-truth poses: for the figures on held-out pairs and for the supervised oracle.

This is the only module of `wsdesc.learning` that reads poses. No weakly supervised training depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import Floats, inverse, transform
from wsdesc.datasets.threedmatch import read_pose
from wsdesc.learning.data import CloudOrigin, TrainingData
from wsdesc.learning.identity_cache import IdentityCache
from wsdesc.learning.match_trainer import MIN_MATCHES, MatchedPair, matches_by_pose
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.sources import (
    COVERAGE_RADIUS,
    MIN_SCAN_POINTS,
    MixedPairs,
    PairSource,
    RoomPairs,
    drop_sparse,
    room_seed,
    shuffled,
)

Pose = Floats
"""A rigid transformation (4, 4)."""


def read_cloud_pose(origin: CloudOrigin) -> Pose | None:
    """Read T_world_cloud from the `.info.txt` beside a scan; None if it is missing or unreadable."""
    path = origin.path.with_name(f"{origin.path.stem}.info.txt")
    if not path.is_file():
        return None
    try:
        T_world_scan = read_pose(path)
    except FileFormatError:  # poses are optional and must not stop a training
        return None
    T_world_scan[:3, 3] /= origin.unit
    T_world_cloud: Pose = T_world_scan @ origin.T_scan_cloud
    return T_world_cloud


def relative_pose(T_world_p: Pose | None, T_world_q: Pose | None) -> Pose | None:
    """Return T_q_p, or None if a pose is missing."""
    if T_world_p is None or T_world_q is None:
        return None
    T_q_p: Pose = inverse(T_world_q) @ T_world_p
    return T_q_p


def held_out_poses(data: TrainingData) -> list[Pose | None]:
    """Return T_q_p of each held-out pair, None if it is unknown."""
    poses = {n: read_cloud_pose(data.origins[n]) for pair in data.held_out_pairs for n in pair}
    return [relative_pose(poses[i], poses[j]) for i, j in data.held_out_pairs]


def oracle_source(data: TrainingData, options: TrainOptions) -> PosedPairs | PosedRooms | MixedPairs:
    """Return the pairs of `data` with their ground-truth matches.

    Raises:
        InputError: The scans have no poses, or are separate shapes.
    """
    o, seed = options.data, options.seed
    made = RoomPairs(
        seed, o.rooms, o.steps_per_room, o.min_coverage, make=make_posed_room, far_share=o.far_share
    )
    rooms = PosedRooms(made)
    if isinstance(data.source, RoomPairs):
        return rooms
    if data.graph is None:
        raise InputError("oracle: needs scans with poses (.info.txt files), got separate shapes")
    poses = [read_cloud_pose(origin) for origin in data.origins]
    scans = PosedPairs(data.clouds, data.training_pairs, poses, seed)
    if o.synthetic == 0:
        return scans
    both = cast(list[PairSource], [scans, rooms])
    return MixedPairs(both, [1 - o.synthetic, o.synthetic], seed)


class PosedPairs:
    """Pairs of given scans with ground-truth matches: each pair once per epoch, in a shuffled order.

    Args:
        clouds: Points (N, 3) of each scan, in metres.
        pairs: Indices of two scans each.
        poses: T_world_cloud (4, 4) of each scan, or None. Pairs without poses or with fewer than 64 matches
            are left out.
        seed: Seed of the order.
    """

    def __init__(
        self,
        clouds: Sequence[Tensor],
        pairs: Sequence[tuple[int, int]],
        poses: Sequence[Pose | None],
        seed: int,
    ) -> None:
        self.clouds, self.seed = clouds, seed
        posed = [(i, j, relative_pose(poses[i], poses[j])) for i, j in pairs]
        matched = [(i, j, matches_by_pose(clouds[i], clouds[j], T)) for i, j, T in posed if T is not None]
        self.pairs = [(i, j, matches) for i, j, matches in matched if len(matches) >= MIN_MATCHES]
        if not self.pairs:
            raise InputError("oracle: no two scans have poses (.info.txt files) under which they overlap")

    def pair(self, index: int) -> MatchedPair:
        """See `TrainingSource`."""
        i, j, matches = self.pairs[shuffled(index, len(self.pairs), self.seed)]
        return self.clouds[i], self.clouds[j], matches

    def close(self) -> None:
        """Do nothing: no worker processes exist."""


class PosedRooms:
    """Pairs of scans of synthetic rooms with ground-truth matches.

    Args:
        rooms: Pairs of rooms that `make_posed_room` makes.
    """

    def __init__(self, rooms: RoomPairs) -> None:
        self._rooms = rooms
        # One object per cloud: the trainer caches its grid by identity.
        self._clouds = IdentityCache(lambda posed: posed[:, :3].contiguous(), 2048)
        self._matches = IdentityCache(lambda p, q: matches_by_pose(p[:, 3:], q[:, 3:], np.eye(4)), 4096)

    def pair(self, index: int) -> MatchedPair:
        """See `TrainingSource`."""
        while True:
            p, q = self._rooms.pair(index)  # (N, 6) and (M, 6)
            matches = self._matches.get(p, q)
            if len(matches) >= MIN_MATCHES:  # always, for successive scans
                return self._clouds.get(p), self._clouds.get(q), matches
            index += 1

    def close(self) -> None:
        """End the worker processes."""
        self._rooms.close()


def make_posed_room(seed: int, index: int, min_coverage: float) -> list[Tensor]:
    """Make two or more successive, overlapping scans of the room that `make_room` makes.

    Returns:
        (N, 6) each: points in the scan's frame and in the room's frame.
    """
    from wsdesc.datasets.synthetic import room_scans

    for attempt in range(100):
        posed: list[Tensor] = []
        for scan in room_scans(room_seed(seed, index, attempt), 4):
            if len(scan.points) < MIN_SCAN_POINTS:
                continue
            points = _posed_points(torch.from_numpy(scan.points), scan.T_world_scan, min_coverage)
            if posed and len(matches_by_pose(posed[-1][:, 3:], points[:, 3:], np.eye(4))) < MIN_MATCHES:
                break
            posed.append(points)
        if len(posed) >= 2:
            return posed
    raise RuntimeError(f"no room could be made from seed {seed}, index {index}")


def _posed_points(points: Tensor, T_world_scan: Pose, min_coverage: float) -> Tensor:
    """Return the remaining points (N, 6) in the centred cloud's frame and in the world frame."""
    cloud = drop_sparse(points, COVERAGE_RADIUS, min_coverage)  # centred
    T = torch.from_numpy(T_world_scan)
    world = transform((cloud + points.mean(0)).double(), T)
    return torch.cat([cloud, world.float()], dim=1)
