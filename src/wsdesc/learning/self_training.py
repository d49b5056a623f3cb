"""Matches that a trained model finds by itself. Nothing here knows a pose.

The model registers the two clouds of a pair; where the points confirm the motion, all surface that it brings
together is matched, also what the model did not recognise. That is what the next training learns.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor

from wsdesc.cloud.sampling import farthest_points, random_sample
from wsdesc.core.errors import InputError
from wsdesc.core.rng import generator_of
from wsdesc.descriptor.model import WSDesc
from wsdesc.learning.data import TrainingData
from wsdesc.learning.identity_cache import IdentityCache, cached_grids
from wsdesc.learning.match_trainer import FEWEST, MatchedPair, coincident
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.overlap import OverlapOptions, estimate_overlap
from wsdesc.learning.sources import PairSource

CONFIRMED = OverlapOptions(
    least_inliers=20, least_overlap=0.15
)  # stricter in matches: a wrong motion misleads
_CANDIDATES = 4000  # points of a cloud for which a match is looked up
_TRIES = 50  # pairs before it is said that nothing can be found
_MOST = 4096  # pairs remembered


class FoundPairs:
    """The pairs of a source, with the matches that `model` finds; one whose motion is not confirmed gives
    place to another near it in number.

    Args:
        source: of overlapping clouds (N, 3), in metres.
        model: trained, on the device where it is to work; a copy is taken.
        options: how a motion is found and confirmed.
    """

    def __init__(self, source: PairSource, model: WSDesc, options: OverlapOptions = CONFIRMED) -> None:
        self.source, self.options = source, options
        # Without gradients autocast keeps no copies of the weights, which threads would share unsynchronised.
        self.model = deepcopy(model).requires_grad_(False)
        self._grids = cached_grids(next(model.parameters()).device)
        self._matches = IdentityCache(self._find, _MOST)

    def pair(self, number: int) -> MatchedPair:
        """See `MatchedSource`."""
        for before in range(_TRIES):
            p, q = self.source.pair(abs(number - before))
            matches = self._matches.of(p, q)
            if matches is not None:
                return p, q, matches
        raise InputError(f"of {_TRIES} pairs none was confirmed: the model does not recognise these scans")

    def close(self) -> None:
        """Close the source."""
        self.source.close()

    @torch.no_grad()
    def _find(self, p: Tensor, q: Tensor) -> Tensor | None:
        """Matches of two clouds; None where the motion is not confirmed."""
        grids = [self._grids.of(cloud) for cloud in (p, q)]
        keys = [g.points[farthest_points(g.points, self.options.keypoints, generator_of(7))] for g in grids]
        features = [
            self.model.describe(self.model.voxels(self.model.prepare_grid(grid, keypoints))).float()
            for grid, keypoints in zip(grids, keys, strict=True)
        ]
        found = estimate_overlap(
            grids[0], grids[1], features[0], features[1], keys[0], keys[1], options=self.options
        )
        if not found.accepted:
            return None
        some = random_sample(len(p), _CANDIDATES, generator_of(8))
        matches = coincident(p[some], q, found.T_q_p.numpy())
        return torch.stack([some[matches[:, 0]], matches[:, 1]], dim=1) if len(matches) >= FEWEST else None


def found_source(data: TrainingData, options: TrainOptions, device: torch.device | str) -> FoundPairs:
    """The pairs that `data.source` brings, with the matches that the weights of `options.start` find."""
    if options.start is None:
        raise InputError("matches are found by trained weights: say which ones to start from")
    model = WSDesc.from_pretrained(options.start, device).accelerate(options.precision, compile=False)
    return FoundPairs(data.source, model)
