"""Propose matches with a trained model, for self-training. No ground truth is used.

The model registers the two scans of a pair. If the overlap check accepts the pose, all points that coincide
under it are matched, also those that the model did not match. The next training learns these matches.
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
from wsdesc.learning.match_trainer import MIN_MATCHES, MatchedPair, matches_by_pose
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.overlap import OverlapOptions, estimate_overlap
from wsdesc.learning.sources import PairSource

# More inliers than by default, since a wrong pose gives wrong matches.
ACCEPTANCE = OverlapOptions(min_inliers=20, min_overlap=0.15)
_SAMPLED_POINTS = 4000  # points of a scan to match
_MAX_ATTEMPTS = 50  # rejected pairs before the training gives up
_CACHED_PAIRS = 4096


class MatchProposer:
    """Register two clouds with a model, and match the points that coincide under the pose.

    Args:
        model: Trained model on the device to use; it is copied.
        options: Acceptance of a pose.
    """

    def __init__(self, model: WSDesc, options: OverlapOptions = ACCEPTANCE) -> None:
        self.options = options
        # Without gradients, autocast keeps no copies of the weights that threads would share.
        self.model = deepcopy(model).requires_grad_(False)
        self._grids = cached_grids(next(model.parameters()).device)
        self._matches = IdentityCache(self._propose, _CACHED_PAIRS)

    def propose(self, p: Tensor, q: Tensor) -> Tensor | None:
        """Match clouds (N, 3) and (M, 3), in metres: (K, 2), or None if the pose is rejected. Cached."""
        return self._matches.get(p, q)

    @torch.no_grad()
    def _propose(self, p: Tensor, q: Tensor) -> Tensor | None:
        grids = [self._grids.get(cloud) for cloud in (p, q)]
        keypoints = [
            g.points[farthest_points(g.points, self.options.keypoints, generator_of(7))] for g in grids
        ]
        descriptors = [
            self.model.describe(self.model.voxels(self.model.prepare_grid(grid, sampled))).float()
            for grid, sampled in zip(grids, keypoints, strict=True)
        ]
        estimate = estimate_overlap(
            grids[0],
            grids[1],
            descriptors[0],
            descriptors[1],
            keypoints[0],
            keypoints[1],
            options=self.options,
        )
        if not estimate.accepted:
            return None
        sampled = random_sample(len(p), _SAMPLED_POINTS, generator_of(8))
        matches = matches_by_pose(p[sampled], q, estimate.T_q_p.numpy())
        if len(matches) < MIN_MATCHES:
            return None
        return torch.stack([sampled[matches[:, 0]], matches[:, 1]], dim=1)


class SelfMatchedPairs:
    """Pairs of a source with the matches that a model proposes.

    A rejected pair is replaced by the one at the preceding index.

    Args:
        source: Pairs of overlapping clouds (N, 3), in metres.
        model, options: See `MatchProposer`.
    """

    def __init__(self, source: PairSource, model: WSDesc, options: OverlapOptions = ACCEPTANCE) -> None:
        self.source, self.proposer = source, MatchProposer(model, options)

    def pair(self, index: int) -> MatchedPair:
        """See `TrainingSource`.

        Raises:
            InputError: The model registers none of 50 pairs.
        """
        for attempt in range(_MAX_ATTEMPTS):
            p, q = self.source.pair(abs(index - attempt))
            matches = self.proposer.propose(p, q)
            if matches is not None:
                return p, q, matches
        raise InputError(
            f"self-training: the model of `start` registered none of {_MAX_ATTEMPTS} pairs; "
            "train it on these scans first"
        )

    def close(self) -> None:
        """Close the source."""
        self.source.close()


def self_training_source(
    data: TrainingData, options: TrainOptions, device: torch.device | str
) -> SelfMatchedPairs:
    """Return the pairs of `data` with the matches that the weights of `options.start` propose."""
    if options.start is None:
        raise InputError("self-training needs trained weights: name them by `start`")
    model = WSDesc.from_pretrained(options.start, device).accelerate(options.precision, compile=False)
    return SelfMatchedPairs(data.source, model)
