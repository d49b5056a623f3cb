"""Train on pairs with matches (InfoNCE) and on pairs without (rigidity loss) in one training."""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.learning.match_trainer import MatchTrainer, rows_in_grid
from wsdesc.learning.trainer import PreparedPair


class UnmatchedPair(PreparedPair):
    """A pair whose rows are no matches: for the weakly supervised loss."""


class AdaptTrainer(MatchTrainer):
    """Train on matches where a pair has some, by the weakly supervised loss where it has none.

    A step draws always the same number of keypoints: fewer matches are drawn repeatedly, and the loss
    excludes equal positions.
    """

    term_names = ("matches", "rigidity")

    @torch.no_grad()
    def prepare(  # type: ignore[override]  # matches are one argument more
        self, p: Tensor, q: Tensor, matches: Tensor, generator: torch.Generator
    ) -> PreparedPair:
        """Draw keypoints of two clouds (N, 3) and (M, 3): equal rows match, if there are matches (K, 2)."""
        count = self.options.keypoints
        if len(matches):
            drawn = matches[_draw(len(matches), count, generator)].T
        else:
            drawn = torch.stack([_draw(len(cloud), count, generator) for cloud in (p, q)])
        prepared = []
        for cloud, indices in zip((p, q), drawn, strict=True):
            grid = self._grids.get(cloud)
            rows = rows_in_grid(grid)[indices.to(self.device)]
            prepared.append(self.prepare_rows(grid, rows))
        return PreparedPair(*prepared) if len(matches) else UnmatchedPair(*prepared)

    def gradients(self, pairs: list[PreparedPair]) -> Tensor:
        """Add the mean gradient over `pairs` to the parameters.

        Returns:
            (pairs, 4): loss, its part from matches, its part from rigidity, and 1 if it is valid.
        """
        rows = []
        for pair in pairs:
            voxels = torch.cat([self.model.voxels(pair.p), self.model.voxels(pair.q)])
            p, q = self._compute_descriptors(voxels).float().chunk(2)
            matched = not isinstance(pair, UnmatchedPair)
            if matched:
                loss = self.match_loss(p, q, pair.p.keypoints) + self.match_loss(q, p, pair.q.keypoints)
                loss, valid = loss / 2, torch.ones_like(loss)
            else:
                terms = self.loss(pair.p.keypoints, p, pair.q.keypoints, q)
                loss, valid = terms.loss, terms.well_posed.to(terms.loss)
            (loss / len(pairs)).backward()
            loss, valid, none = loss.detach(), valid.detach(), torch.zeros_like(valid)
            rows.append(torch.stack([loss, *((loss, none) if matched else (none, loss)), valid]))
        return torch.stack(rows)


def _draw(available: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw indices (count,), without repetition if there are enough."""
    if available >= count:
        return torch.randperm(available, generator=generator)[:count]
    return torch.randint(available, (count,), generator=generator)
