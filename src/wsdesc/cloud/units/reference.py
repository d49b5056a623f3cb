"""Spacing in plain torch, on any device; the GPU path. The points are cleaned: none repeats."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.nearest import nearest
from wsdesc.core.errors import InputError


def spacing(points: Tensor, sample: np.ndarray) -> float:
    """Measure the median distance from the points with the indices `sample` to the nearest different one."""
    queries = points[torch.from_numpy(sample).to(points.device)]
    near = points[nearest(points, queries, distinct=True)]
    distance = (queries.double() - near.double()).square().sum(1).sqrt().cpu().numpy()
    if not distance.any():
        raise InputError("all points are equal: two different points are needed to measure a spacing")
    return float(np.median(distance))
