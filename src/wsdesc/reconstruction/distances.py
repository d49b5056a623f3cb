"""Distances between the surfaces of neighbouring scans after a reconstruction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from wsdesc.core.geometry import Floats, inverse, transform
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.result import Reconstruction

SAMPLE = 20_000  # points of each scan
_QUERIES = 1000  # points per edge
_NEIGHBOURS = 8  # points of the target that give the plane next to a point of the source
_MAX_EDGES = 1000  # whose distances are measured
BINS = 24


class ScanSample(NamedTuple):
    """A random sample of a scan, in its own coordinates."""

    points: Floats  # (n, 3)
    centre: Floats  # (3,) of all points

    @classmethod
    def of(cls, points: np.ndarray, seed: int) -> ScanSample:
        """Draw the sample of a scan's points (N, 3)."""
        rng = np.random.default_rng(seed)
        chosen = points if len(points) <= SAMPLE else points[rng.integers(len(points), size=SAMPLE)]
        return cls(np.asarray(chosen, np.float64), np.asarray(points.mean(axis=0), np.float64))


class EdgeDistances(NamedTuple):
    """Distances of points of the source to planes of the target, where the scans overlap."""

    counts: np.ndarray  # (BINS,) of equal width from 0 to 2 resolutions; the last one has all above
    median: float
    largest: float  # that 95 % of the points do not exceed


def measure_distances(
    result: Reconstruction, samples: Mapping[str, ScanSample]
) -> dict[tuple[str, str], EdgeDistances]:
    """Measure the distances of each accepted edge, with the final poses.

    Args:
        result: The reconstruction.
        samples: Sample of each placed scan.

    Returns:
        Distances by the names of source and target; edges without overlap in the samples are missing.
    """
    trees: dict[str, cKDTree] = {}
    measured: dict[tuple[str, str], EdgeDistances] = {}
    edges = [edge for edge in result.edges if edge.accepted and {edge.source, edge.target} <= samples.keys()]
    for edge in edges[:_MAX_EDGES]:
        if edge.target not in trees:
            trees[edge.target] = cKDTree(samples[edge.target].points)
        distances = _distances(result, edge, samples[edge.source].points, trees[edge.target])
        if len(distances):
            width = 2 * result.resolution / BINS
            counts = np.bincount(np.minimum((distances / width).astype(int), BINS - 1), minlength=BINS)
            median, largest = np.quantile(distances, [0.5, 0.95])
            measured[edge.source, edge.target] = EdgeDistances(counts, float(median), float(largest))
    return measured


def _distances(result: Reconstruction, edge: EdgeResult, source: Floats, target: cKDTree) -> Floats:
    """Return the distances (n,) of points of the source to the planes of the nearest target points."""
    if target.n < _NEIGHBOURS:
        return np.zeros(0)
    T = inverse(result.T_world_scan[edge.target]) @ result.T_world_scan[edge.source]
    step = max(1, len(source) // (4 * _QUERIES))
    queries = transform(source[::step], T)
    reach, index = target.query(queries, _NEIGHBOURS)  # (n, k)
    spacing = float(np.median(target.query(target.data[:: max(1, target.n // 500)], 2)[0][:, 1]))
    near = np.flatnonzero(reach[:, 0] < max(2 * result.resolution, 2 * spacing))[:_QUERIES]
    neighbours = np.asarray(target.data)[index[near]]  # (n, k, 3)
    centre = neighbours.mean(axis=1)
    offsets = neighbours - centre[:, None]
    variances, axes = np.linalg.eigh(offsets.transpose(0, 2, 1) @ offsets)
    flat = variances[:, 0] < 0.1 * variances[:, 1]  # edges and leaves have no plane
    return np.asarray(np.abs(np.einsum("ni,ni->n", queries[near] - centre, axes[:, :, 0])))[flat]
