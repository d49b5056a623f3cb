"""Hypotheses: poses of the object that pairs of scene points vote for."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.core.geometry import Floats
from wsdesc.finding.pair_features import SPACING, Votes, make_table, vote
from wsdesc.finding.prepare import SearchObject, SearchScene

MAX_REFERENCES = 30_000  # reference points in the scene
_MIN_STRIDE = 2  # at most every second coarse point is a reference point
_REFERENCES_PER_OBJECT = 30  # reference points on an object of which `_VISIBLE_SHARE` is visible
_VISIBLE_SHARE = 0.4
_REFERENCES_PER_BATCH = 2000  # limits the memory of neighbours
_PAIR_RADIUS = 0.6  # diameters: beyond it, clutter is more frequent than the object
_FLAT = 0.95  # a neighbourhood is flat if the largest eigenvalue of its normals' moments is larger
SAME_DISTANCE, SAME_ANGLE = 0.04, math.radians(10)  # diameters: poses closer than both agree


def propose(obj: SearchObject, scene: SearchScene) -> Votes:
    """Propose poses of the object, several for each reference point of the scene."""
    size = obj.diameter
    points, normals = scene.surfels.points[scene.coarse], scene.surfels.normals[scene.coarse]
    if len(points) == 0 or len(obj.coarse) == 0:  # one of them has no surface
        return Votes(np.empty((0, 4, 4)), np.empty(0))
    table = make_table(obj.points[obj.coarse], obj.normals[obj.coarse], SPACING * size)
    grid = NeighbourGrid.of(torch.from_numpy(points))
    stride = max(_MIN_STRIDE, round(_VISIBLE_SHARE * len(obj.coarse) / _REFERENCES_PER_OBJECT))
    reference = _reference_points(points, normals, grid, size, stride)
    poses, votes = [np.empty((0, 4, 4))], [np.empty(0)]
    for start in range(0, len(reference), _REFERENCES_PER_BATCH):
        part = reference[start : start + _REFERENCES_PER_BATCH]
        near = grid.within(torch.from_numpy(points[part]), _PAIR_RADIUS * size)
        result = vote(table, points, normals, part, near.indices.numpy(), near.starts.numpy())
        poses.append(result.poses)
        votes.append(result.votes)
    kept = np.concatenate(votes) > 0
    return Votes(np.concatenate(poses)[kept], np.concatenate(votes)[kept])


def _reference_points(
    points: Floats, normals: Floats, grid: NeighbourGrid, size: float, stride: int
) -> NDArray[np.int64]:
    """Choose the points whose neighbourhood of the object's size is not flat."""
    stride = max(stride, math.ceil(len(points) / (4 * MAX_REFERENCES)))
    chosen = np.arange(0, len(points), stride)
    curved = np.zeros(len(chosen), bool)
    for start in range(0, len(chosen), _REFERENCES_PER_BATCH):
        part = chosen[start : start + _REFERENCES_PER_BATCH]
        near = grid.within(torch.from_numpy(points[part]), size / 2)
        n = normals[near.indices.numpy()]
        products = np.einsum("ni,nj->nij", n, n)
        starts = near.starts.numpy()
        moments = np.add.reduceat(products, starts[:-1]) / np.diff(starts)[:, None, None]
        curved[start : start + _REFERENCES_PER_BATCH] = np.linalg.eigvalsh(moments)[:, 2] < _FLAT
    chosen = chosen[curved]
    return chosen[:: max(1, math.ceil(len(chosen) / MAX_REFERENCES))]


def suppress(scores: Floats, pairs: NDArray[np.intp], limit: int) -> NDArray[np.int64]:
    """Choose items by score, at most `limit`, leaving out those paired with a better one."""
    both = np.concatenate([pairs, pairs[:, ::-1]])
    both = both[np.argsort(both[:, 0], kind="stable")]
    starts = np.searchsorted(both[:, 0], np.arange(len(scores) + 1))
    free = np.ones(len(scores), bool)
    chosen = []
    for k in np.argsort(-scores, kind="stable"):
        if free[k]:
            chosen.append(k)
            free[both[starts[k] : starts[k + 1], 1]] = False
            if len(chosen) == limit:
                break
    return np.array(chosen, np.int64)
