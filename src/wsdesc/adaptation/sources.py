"""Training pairs of an adaptation: matches from found poses, pairs without poses, synthetic scenes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wsdesc.adaptation.replay import ReplayPool, replay_generator
from wsdesc.adaptation.scans import TaughtScan
from wsdesc.adaptation.teachers import TeacherPair, Teachers
from wsdesc.core.errors import InputError
from wsdesc.core.rng import generator_of
from wsdesc.learning.match_trainer import MATCH_DISTANCE, MIN_MATCHES, MatchedPair
from wsdesc.learning.self_training import MatchProposer
from wsdesc.learning.sources import CloudPair

MIN_WEIGHTED_OVERLAP = 0.1  # pairs are drawn in inverse proportion to their overlap, down to this one
_MIN_UNMATCHED_OVERLAP = 0.3  # of pairs that are also given without matches
_MATCHED_POINTS = 4000  # points of a scan that are matched
_NO_MATCHES = torch.empty(0, 2, dtype=torch.int64)


class TaughtPairs:
    """Pairs for `AdaptTrainer`: p, q and matches (K, 2), which are empty for the weakly supervised loss.

    The pair at an index depends only on the index and the seed.

    Args:
        scans: Scans.
        teachers: Pairs of these scans.
        replay: Synthetic scenes; its processes are not closed with the source.
        proposer: Proposes matches of synthetic pairs by the present weights.
        synthetic: Share of synthetic pairs.
        rigidity: Share of the pairs of scans that are given without matches.
        seed: Seed of all draws.
    """

    def __init__(
        self,
        scans: Sequence[TaughtScan],
        teachers: Teachers,
        replay: ReplayPool,
        proposer: MatchProposer,
        *,
        synthetic: float,
        rigidity: float,
        seed: int,
    ) -> None:
        self.scans, self.replay, self.proposer, self.seed = scans, replay, proposer, seed
        matched = [(pair, matches_at_pose(scans[pair.p], scans[pair.q], pair)) for pair in teachers.pairs]
        self.pairs, self.matches = list[TeacherPair](), list[Tensor]()
        for pair, matches in matched:
            if len(matches) >= MIN_MATCHES:
                self.pairs.append(pair)
                self.matches.append(matches)
        if not self.pairs:
            raise InputError("no pair of scans overlaps enough at the found poses to learn from")
        self.unmatched = teachers.neighbours + [
            (pair.p, pair.q) for pair in self.pairs if pair.overlap > _MIN_UNMATCHED_OVERLAP
        ]
        self.synthetic, self.rigidity = synthetic, rigidity if self.unmatched else 0.0
        weights = [1 / max(pair.overlap, MIN_WEIGHTED_OVERLAP) for pair in self.pairs]
        self._bounds = torch.tensor(weights, dtype=torch.float64).cumsum(0) / sum(weights)

    def pair(self, index: int) -> MatchedPair:
        """See `TrainingSource`."""
        kind, which = torch.rand(2, generator=generator_of(self.seed, 21, index), dtype=torch.float64)
        if kind < self.synthetic:
            p, q = self.replay.pair(replay_generator(self.seed, index))
            matches = self.proposer.propose(p, q)
            return p, q, _NO_MATCHES if matches is None else matches
        if kind < self.synthetic + self.rigidity:
            i, j = self.unmatched[int(which * len(self.unmatched))]
            return self.scans[i].points, self.scans[j].points, _NO_MATCHES
        k = min(int((which > self._bounds).sum()), len(self.pairs) - 1)
        pair = self.pairs[k]
        return self.scans[pair.p].points, self.scans[pair.q].points, self.matches[k]

    def close(self) -> None:
        """Do nothing: the synthetic scenes are used again."""


def matches_at_pose(p: TaughtScan, q: TaughtScan, pair: TeacherPair) -> Tensor:
    """Match a sample of the points of p to their nearest points of q under the pose: (K, 2) rows."""
    rows = p.sample(_MATCHED_POINTS)
    T = torch.from_numpy(pair.T_q_p)
    moved = p.points[rows].double() @ T[:3, :3].T + T[:3, 3]
    distance, nearest = q.tree.query(moved.numpy(), distance_upper_bound=MATCH_DISTANCE, workers=-1)
    near = torch.from_numpy(distance < MATCH_DISTANCE)
    return torch.stack([rows[near], torch.from_numpy(nearest)[near]], dim=1)


class DescribedPairs:
    """Pairs of clouds for the distillation: two scans, or two synthetic ones.

    Args:
        clouds: Points (N, 3) of each scan.
        replay: Synthetic scenes.
        synthetic: Share of synthetic pairs.
        seed: Seed of all draws.
    """

    def __init__(self, clouds: Sequence[Tensor], replay: ReplayPool, synthetic: float, seed: int) -> None:
        self.clouds, self.replay, self.synthetic, self.seed = clouds, replay, synthetic, seed

    def pair(self, index: int) -> CloudPair:
        """See `PairSource`."""
        generator = generator_of(self.seed, 23, index)
        if float(torch.rand(1, generator=generator)) < self.synthetic:
            return self.replay.pair(replay_generator(self.seed, index))
        i, j = torch.randint(len(self.clouds), (2,), generator=generator).tolist()
        return self.clouds[i], self.clouds[j]

    def close(self) -> None:
        """Do nothing: the synthetic scenes are used again."""
