"""Nearest points: a k-d tree on the CPU, exhaustive search on the GPU, where that is faster than a tree."""

from __future__ import annotations

from torch import Tensor

from wsdesc.cloud.nearest import cpu, reference
from wsdesc.cloud.nearest.reference import k_nearest, squared_distances
from wsdesc.core.devices import has_triton

__all__ = ["k_nearest", "nearest", "squared_distances"]


def nearest(points: Tensor, queries: Tensor, distinct: bool = False) -> Tensor:
    """Find the nearest of `points` for each query, computed in float32.

    Args:
        points: (N, 3), N ≥ 1.
        queries: (M, 3), on the same device.
        distinct: Ignore points that equal the query. A query without any other point gets an arbitrary index.

    Returns:
        Indices (M,) int64 into `points`.
    """
    points, queries = points.float().contiguous(), queries.float().contiguous()
    if points.is_cuda and has_triton():
        from wsdesc.cloud.nearest import cuda

        return cuda.nearest(points, queries, distinct)
    if points.device.type != "cpu" or distinct:
        return reference.nearest(points, queries, distinct)
    return cpu.nearest(points, queries)
