"""Perturbations of a pair of scans with a known pose: moved, reordered, rescaled, sparser, noisier scans.

A perturbation draws from a generator and returns the perturbed pair with its true pose. Those in `EXACT` keep
all information of the scans; those in `LOSSY` remove a part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import random_pose
from wsdesc.core.geometry import transform

Points = NDArray[np.float64]
FAR = 1e6  # metres from the origin, as in geographic coordinates
KEPT = 0.25  # share of the points that sparser scans keep
MAX_NOISE = 0.01  # metres, standard deviation: half the point spacing of the synthetic scans
MAX_OUTLIERS = 0.3  # share of the points of a perturbed scan


@dataclass(frozen=True, eq=False)
class PosedPair:
    """Two scans and their true pose."""

    source: Points  # (N, 3)
    target: Points  # (M, 3)
    T_target_source: Points  # (4, 4)
    unit: float = 1.0  # length of one metre

    def displacement(self, T_target_source: Points) -> float:
        """Compute the RMS distance in metres of the source's points from their true positions."""
        T = T_target_source - self.T_target_source
        centre = self.source.mean(axis=0)  # subtracted, as coordinates far from the origin would lose digits
        moved = (self.source - centre) @ T[:3, :3].T + (T[:3, :3] @ centre + T[:3, 3])
        return float(np.sqrt(np.square(moved).sum(axis=1).mean())) / self.unit


Perturbation = Callable[[PosedPair, np.random.Generator], PosedPair]


def move_source(pair: PosedPair, rng: np.random.Generator) -> PosedPair:
    """Rotate and shift the source."""
    T = random_pose(rng, 10 * pair.unit)
    T_target_source = pair.T_target_source @ np.linalg.inv(T)
    return replace(pair, source=transform(pair.source, T), T_target_source=T_target_source)


def move_target(pair: PosedPair, rng: np.random.Generator) -> PosedPair:
    """Rotate and shift the target."""
    T = random_pose(rng, 10 * pair.unit)
    return replace(pair, target=transform(pair.target, T), T_target_source=T @ pair.T_target_source)


def permute(pair: PosedPair, rng: np.random.Generator) -> PosedPair:
    """Reorder the points."""
    return replace(pair, source=rng.permutation(pair.source), target=rng.permutation(pair.target))


def to_millimetres(pair: PosedPair, rng: np.random.Generator) -> PosedPair:
    """Convert metres to millimetres."""
    T = pair.T_target_source.copy()
    T[:3, 3] *= 1000
    return PosedPair(1000 * pair.source, 1000 * pair.target, T, 1000 * pair.unit)


def shift_far(pair: PosedPair, rng: np.random.Generator) -> PosedPair:
    """Shift both scans a thousand kilometres from the origin, in different directions."""
    directions = rng.normal(size=(2, 3))
    offsets = FAR * pair.unit * directions / np.linalg.norm(directions, axis=1, keepdims=True)  # (2, 3)
    T = pair.T_target_source.copy()
    T[:3, 3] += offsets[1] - T[:3, :3] @ offsets[0]
    return replace(pair, source=pair.source + offsets[0], target=pair.target + offsets[1], T_target_source=T)


def shift_far_in_float32(pair: PosedPair, rng: np.random.Generator) -> PosedPair:
    """Shift both scans far away and round to float32, where a million metres have a resolution of 6 cm."""
    far = shift_far(pair, rng)
    source, target = (scan.astype(np.float32).astype(np.float64) for scan in (far.source, far.target))
    return replace(far, source=source, target=target)


def thin_source(pair: PosedPair, rng: np.random.Generator) -> PosedPair:
    """Keep a random quarter of the source's points."""
    return replace(pair, source=_thinned(pair.source, rng))


def thin_both(pair: PosedPair, rng: np.random.Generator) -> PosedPair:
    """Keep a random quarter of the points of both scans."""
    return replace(pair, source=_thinned(pair.source, rng), target=_thinned(pair.target, rng))


def add_noise(pair: PosedPair, rng: np.random.Generator) -> PosedPair:
    """Add Gaussian noise of up to 1 cm to all coordinates."""
    sigma = pair.unit * rng.uniform(0, MAX_NOISE)
    source, target = (scan + rng.normal(0, sigma, scan.shape) for scan in (pair.source, pair.target))
    return replace(pair, source=source, target=target)


def add_outliers(pair: PosedPair, rng: np.random.Generator) -> PosedPair:
    """Add random points in the bounding box of each scan, up to 30 % of its points."""
    share = rng.uniform(0, MAX_OUTLIERS)
    source, target = (_with_outliers(scan, share, rng) for scan in (pair.source, pair.target))
    return replace(pair, source=source, target=target)


EXACT: dict[str, Perturbation] = {
    "source moved": move_source,
    "target moved": move_target,
    "points permuted": permute,
    "millimetres": to_millimetres,
    "offset of 1e6 m": shift_far,
}
LOSSY: dict[str, Perturbation] = {
    "offset of 1e6 m in float32": shift_far_in_float32,
    "source ¼ as dense": thin_source,
    "both ¼ as dense": thin_both,
    "noise up to 1 cm": add_noise,
    "outliers up to 30 %": add_outliers,
}


def _thinned(points: Points, rng: np.random.Generator) -> Points:
    return points[np.sort(rng.permutation(len(points))[: max(1, int(KEPT * len(points)))])]


def _with_outliers(points: Points, share: float, rng: np.random.Generator) -> Points:
    count = int(share / (1 - share) * len(points))
    outliers = rng.uniform(points.min(axis=0), points.max(axis=0), (count, 3))
    return rng.permutation(np.vstack([points, outliers]))
