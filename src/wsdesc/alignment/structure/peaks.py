"""Maxima of the scores of shifts: the best ones that are no neighbours, located between voxels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsdesc.core.geometry import Floats

SHIFTS = 64  # best ones of a rotation, before neighbours are removed
_SAME_PEAK = 2  # voxels between neighbours


class Maxima(NamedTuple):
    """The largest scores of a grid."""

    size: Sequence[int]  # of the grid
    rows: Floats  # (12, K) three cells, and three values along each axis, with the maximum in the middle


def largest_scores(scores: Tensor) -> list[Maxima]:
    """Find the largest scores of each of B grids (B, X, Y, Z), in one transfer."""
    B, X, Y, Z = scores.shape
    best = scores.flatten(1).topk(min(SHIFTS, X * Y * Z)).indices  # (B, K)
    x, y, z = best // (Y * Z), best // Z % Y, best % Z
    grid = torch.arange(B, device=best.device)[:, None]
    step = torch.arange(-1, 2, device=best.device)[:, None, None]
    lines = (
        scores[grid, (x + step) % X, y, z],
        scores[grid, x, (y + step) % Y, z],
        scores[grid, x, y, (z + step) % Z],
    )  # (3, B, K) each
    rows = np.asarray(torch.cat([torch.stack([x, y, z]).double(), *lines]).cpu())  # (12, B, K)
    return [Maxima((X, Y, Z), rows[:, k]) for k in range(B)]


def choose_peaks(maxima: Maxima, shape: Sequence[int], limit: int) -> tuple[Floats, Floats]:
    """Choose the best shifts that are no neighbours; return their scores (K,) and the shifts (K, 3).

    Args:
        maxima: Of one grid of scores.
        shape: Of the grid of q.
        limit: Largest number of shifts.
    """
    cells, lines = maxima.rows[:3].T.astype(np.intp), maxima.rows[3:].reshape(3, 3, -1)  # axis, step, maximum
    left, period = np.ones(len(cells), dtype=bool), np.array(maxima.size)
    chosen: list[int] = []
    while len(chosen) < limit and left.any():
        chosen.append(int(left.argmax()))
        apart = np.abs((cells - cells[chosen[-1]] + period // 2) % period - period // 2).max(axis=1)
        left &= apart > _SAME_PEAK
    below, top, above = lines[:, :, chosen].transpose(1, 2, 0)  # (K, 3) each
    # A parabola through the three values locates a maximum between voxels.
    offset = (below - above) / (2 * np.minimum(below - 2 * top + above, -1e-12))
    whole = np.where(cells[chosen] >= shape, cells[chosen] - period, cells[chosen])
    return top[:, 0], whole + np.clip(offset, -0.5, 0.5)
