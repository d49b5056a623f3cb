"""Recognize places: find pairs of scans that may overlap, without registering them.

Signatures of all scans give a shortlist. Each pair of the shortlist is scored by its matches: descriptors of
some keypoints are matched, and the score is the size of the largest group of matches that preserve the
distances between keypoints, as a rigid motion does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from wsdesc.core.geometry import Floats, transform
from wsdesc.core.kernels import kernel, run_in_chunks
from wsdesc.reconstruction.jobs import DescribeJob
from wsdesc.reconstruction.signature import aggregate, codebook, normalize_signatures
from wsdesc.reconstruction.tasks import load_description

KEYPOINTS = 500  # per scan; their matches are scored
_TOLERANCE = 0.1  # model metres by which distances between keypoints may differ
_MIN_DISTANCE = 0.3  # model metres between keypoints; nearer ones agree by chance
_ITERATIONS = 8  # of the power method
_BATCH = 256  # pairs whose matches are in memory at a time

Features = tuple[Tensor, Tensor]  # descriptors (K, C) and keypoints (K, 3) in model metres


class SavedPlaces(NamedTuple):
    """Signatures of a model's scans, from which it grows."""

    centres: Floats  # (K, C) cluster centres
    aggregates: dict[str, NDArray[np.float32]]  # (S,) of each scan, by name


class Places:
    """Signatures and keypoints of scans.

    Args:
        aggregates: (N, S) sums of descriptors; see `aggregate`.
        features: Descriptors and keypoints of each scan. A sequence may read them on access.
        centres: (K, C) cluster centres of the aggregates.
    """

    def __init__(self, aggregates: Tensor, features: Sequence[Features], centres: Tensor) -> None:
        self.aggregates, self.features, self.centres = aggregates, features, centres
        self.signatures = normalize_signatures(aggregates)

    def score_pairs(self, pairs: Sequence[tuple[int, int]]) -> Floats:
        """Score pairs by matches that preserve distances; (P,), higher is better."""
        scores = np.zeros(len(pairs))
        for start in range(0, len(pairs), _BATCH):
            batch = [self._matches(i, j) for i, j in pairs[start : start + _BATCH]]
            ends = np.cumsum([0, *(len(source) for source, _ in batch)])
            source, target = (np.concatenate([pair[side] for pair in batch]) for side in (0, 1))
            part = scores[start : start + _BATCH]
            run_in_chunks(_score, len(batch), ends, source, target, part, chunk=16)
        return scores

    def saved(self, names: Sequence[str]) -> SavedPlaces:
        """Return the signatures by the names of the scans."""
        rows = self.aggregates.numpy()
        return SavedPlaces(self.centres.numpy(), dict(zip(names, rows, strict=True)))

    def _matches(self, i: int, j: int) -> tuple[np.ndarray, np.ndarray]:
        """Match two scans; return the matched keypoints (M, 3) of both."""
        (a, p), (b, q) = self.features[i], self.features[j]
        if len(a) == 0 or len(b) == 0:
            return np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)
        to_b = _mutual_matches((a @ b.T).numpy())  # descriptors are unit vectors
        matched = np.flatnonzero(to_b >= 0)
        return p.numpy()[matched], q.numpy()[to_b[matched]]


def find_places(
    names: Sequence[str], scans: Sequence[DescribeJob], seed: int, saved: SavedPlaces | None
) -> Places:
    """Compute the places of described scans. Order and names do not matter if there is no earlier model.

    Args:
        names: Names of the scans.
        scans: Described scans.
        seed: Seed of the cluster centres.
        saved: Signatures of an earlier model; None computes all.
    """
    features = CachedFeatures(scans)
    if saved is None:
        order = sorted(scans, key=lambda scan: scan.file.content)
        centres, known = codebook(_CachedDescriptors(order), seed), dict[str, NDArray[np.float32]]()
    else:
        centres, known = torch.from_numpy(saved.centres), saved.aggregates
    aggregates = [
        torch.from_numpy(known[name]) if name in known else aggregate(features.descriptors(k), centres)
        for k, name in enumerate(names)
    ]
    return Places(torch.stack(aggregates), features, centres)


class CachedFeatures(Sequence[Features]):
    """Descriptors and keypoints of scans, read from the cache at first access, and few of each kept."""

    def __init__(self, scans: Sequence[DescribeJob]) -> None:
        self.scans = scans
        self._kept: dict[int, Features] = {}

    def __len__(self) -> int:
        return len(self.scans)

    def descriptors(self, k: int) -> Tensor:
        """Return all descriptors (K, C) of a scan."""
        description = load_description(self.scans[k])
        count = min(KEYPOINTS, len(description.descriptors))
        self._kept[k] = (description.descriptors[:count].clone(), description.keypoints[:count].clone())
        return description.descriptors

    def __getitem__(self, k):  # type: ignore[no-untyped-def]
        if k not in self._kept:
            self.descriptors(k)
        return self._kept[k]


class _CachedDescriptors(Sequence[Tensor]):
    """Descriptors of scans, read from the cache at each access: all of them may not fit into memory."""

    def __init__(self, scans: Sequence[DescribeJob]) -> None:
        self.scans = scans

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, k):  # type: ignore[no-untyped-def]
        return load_description(self.scans[k]).descriptors


def predicted_overlaps(
    T_world_scan: Floats, scans: Sequence[int], features: Sequence[Features]
) -> dict[tuple[int, int], float]:
    """Predict from poses which scans of a frame overlap, by their keypoints.

    Args:
        T_world_scan: (N, 4, 4) poses of all scans, in model metres.
        scans: Scans of one frame.
        features: Descriptors and keypoints of all scans.

    Returns:
        The smaller share of both scans' keypoints that is near the other scan, for each pair with any.
    """
    if len(scans) < 2:
        return {}
    clouds = {k: transform(features[k][1].double().numpy(), T_world_scan[k]) for k in scans}
    trees = {k: cKDTree(cloud) for k, cloud in clouds.items()}
    centres = np.stack([cloud.mean(axis=0) for cloud in clouds.values()])
    reach = np.array(
        [np.linalg.norm(clouds[k] - c, axis=1).max() for k, c in zip(scans, centres, strict=True)]
    )
    spacing = {k: _spacing(trees[k], clouds[k]) for k in scans}
    overlaps = {}
    for m, near in enumerate(cKDTree(centres).query_ball_point(centres, 2 * reach.max())):
        for n in near:
            if n <= m or np.linalg.norm(centres[m] - centres[n]) > reach[m] + reach[n]:
                continue
            a, b = sorted((scans[m], scans[n]))
            share = min(
                np.isfinite(trees[j].query(clouds[i], distance_upper_bound=spacing[j])[0]).mean()
                for i, j in ((a, b), (b, a))
            )
            if share > 0:
                overlaps[a, b] = float(share)
    return overlaps


def _spacing(tree: cKDTree, cloud: Floats) -> float:
    """Return the median distance between neighbouring keypoints; points are hardly further from one."""
    return float(np.median(tree.query(cloud, 2)[0][:, -1])) if len(cloud) > 1 else 0.0


@kernel
def _mutual_matches(cosines):  # type: ignore[no-untyped-def]
    """Return the column of each row (K,) if they are each other's largest entry, else -1."""
    rows, columns = cosines.shape
    to_column = np.full(rows, -1)
    to_row, best = np.zeros(columns, np.int64), np.full(columns, -np.inf, np.float32)
    for m in range(rows):
        largest, at = np.float32(-np.inf), 0
        for n in range(columns):
            value = cosines[m, n]
            if value > largest:
                largest, at = value, n
            if value > best[n]:
                best[n], to_row[n] = value, m
        to_column[m] = at
    for m in range(rows):
        if to_row[to_column[m]] != m:
            to_column[m] = -1
    return to_column


@kernel
def _score(start, stop, ends, source, target, scores):  # type: ignore[no-untyped-def]
    """Score pairs by the largest eigenvalue of the graph of matches that preserve distances."""
    for pair in range(start, stop):
        first, count = ends[pair], ends[pair + 1] - ends[pair]
        graph = np.zeros((count, count), np.float32)
        for m in range(count):
            for n in range(m):
                p = q = np.float32(0.0)
                for axis in range(3):
                    p += (source[first + m, axis] - source[first + n, axis]) ** 2
                    q += (target[first + m, axis] - target[first + n, axis]) ** 2
                if p > _MIN_DISTANCE**2 and abs(np.sqrt(p) - np.sqrt(q)) < _TOLERANCE:
                    graph[m, n] = graph[n, m] = 1.0
        vector, value = np.ones(count, np.float32), np.float32(0.0)
        for _ in range(_ITERATIONS):
            product = np.zeros(count, np.float32)
            for m in range(count):
                total = np.float32(0.0)
                for n in range(count):
                    total += graph[m, n] * vector[n]
                product[m] = total
            length = np.sqrt(np.sum(vector * vector))
            value = np.sqrt(np.sum(product * product)) / length if length > 0 else np.float32(0.0)
            largest = np.max(product) if count > 0 else np.float32(0.0)
            if largest <= 0:
                value = np.float32(0.0)
                break
            vector = product / largest
        scores[pair] = value
