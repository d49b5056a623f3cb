"""Trimmed point-to-point ICP."""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial import cKDTree

from wsdesc.alignment import fit_rigid
from wsdesc.core.geometry import Floats

_ITERATIONS = 100


class TrimmedIcp:
    """ICP onto one target; only the nearest points of the source count."""

    def __init__(self, target: Floats, kept: int, change: float) -> None:
        """Prepare the target.

        Args:
            target: Points (M, 3).
            kept: Number of source points that count.
            change: Change of the mean squared distance at which ICP stops.
        """
        self.tree, self.kept, self.change = cKDTree(target), kept, change

    def __call__(self, source: Floats, T: Floats) -> Floats:
        """Refine a pose T_target_source (4, 4) of the source (N, 3)."""
        before = np.inf
        for _ in range(_ITERATIONS):
            distance, row = self.tree.query(source @ T[:3, :3].T + T[:3, 3])
            near = np.argsort(distance)[: self.kept]
            error = float(np.mean(distance[near] ** 2))
            if before - error < self.change:
                break
            before = error
            pairs = source[near], np.asarray(self.tree.data)[row[near]]
            T = fit_rigid(*(torch.from_numpy(part) for part in pairs)).numpy()
        return T
