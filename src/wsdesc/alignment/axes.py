"""Axes of a built place: three perpendicular directions that the normals of a scan favour."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats

MIN_ALONG = 0.5  # share of normals along the axes from which on a place counts as built
_ALONG = np.cos(np.radians(15))  # cosine between a normal and its axis
_NORMALS, _TRIED = 1500, 128  # normals that vote, and normals that are tried as an axis
_STEPS = 5  # of the improvement


def find_axes(normals: Floats) -> Floats | None:
    """Find the axes (3, 3), one per row, right-handed, of unit normals (N, 3) of any sign.

    Zero normals are left out. Returns None if fewer than half of the normals lie along the axes.
    """
    n = _spread(normals[np.square(normals).sum(axis=1) > 0.5], _NORMALS)
    if len(n) == 0:
        return None
    tried = _spread(n, _TRIED)
    z = tried[_votes(tried @ n.T).argmax()]
    across = n - np.outer(n @ z, z)
    length = np.linalg.norm(across, axis=1)
    across = across[length > 0.9] / length[length > 0.9, None]
    if len(across) == 0:
        return None
    tried = _spread(across, _TRIED)
    perpendicular = np.cross(z, tried)
    x = tried[(_votes(tried @ across.T) + _votes(perpendicular @ across.T)).argmax()]
    axes = np.stack([x, np.cross(z, x), z])
    for _ in range(_STEPS):
        cosine = n @ axes.T  # (N, 3)
        signed = np.where(np.abs(cosine) > _ALONG, np.sign(cosine), 0.0)  # at most one is not 0 in a row
        u, _, vt = np.linalg.svd(signed.T @ n)
        axes = u @ np.diag([1.0, 1.0, np.linalg.det(u @ vt)]) @ vt
    return axes if np.abs(signed).sum() >= MIN_ALONG * len(n) else None


def _spread(vectors: Floats, count: int) -> Floats:
    """Take at most `count` vectors at equal steps."""
    return vectors[:: max(1, -(-len(vectors) // count))]


def _votes(cosine: NDArray[Any]) -> Floats:
    """Count the directions (M, N) near each of M others, softly: cos³², 1/2 at 12°."""
    for _ in range(5):
        cosine = np.square(cosine)
    return np.asarray(cosine.sum(axis=1))
