"""Nearest points by a k-d tree."""

from __future__ import annotations

import torch
from torch import Tensor


def nearest(points: Tensor, queries: Tensor) -> Tensor:
    """See `wsdesc.cloud.nearest.nearest`."""
    from scipy.spatial import cKDTree

    return torch.from_numpy(cKDTree(points.numpy()).query(queries.numpy())[1])
