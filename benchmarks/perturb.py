"""What happens to scans between the scanner and `register`, done to a pair of which the pose is known.

A disturbance is drawn from a generator and returns the pair as it is now, with the pose that is right for it.
Those of `EXACT` leave all that can be known in the scans; those of `LOSSY` take something away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from wsdesc.core.geometry import inverse, transform

Points = NDArray[np.float64]
FAR = 1e6  # metres from the origin, as in geographic coordinates
QUARTER = 0.25  # of the points that are left
MOST_NOISE = 0.01  # metres, a standard deviation: half the spacing of the synthetic scans
MOST_OUTLIERS = 0.3  # share of the points of a disturbed scan


@dataclass(frozen=True, eq=False)
class Posed:
    """Two scans and the motion that is right for them."""

    source: Points  # (N, 3)
    target: Points  # (M, 3)
    T_target_source: Points  # (4, 4)
    unit: float = 1.0  # a metre, in their measure

    def displacement(self, T_target_source: Points) -> float:
        """How far a pose puts the source's points from where they belong: root mean square, in metres."""
        T = T_target_source - self.T_target_source
        middle = self.source.mean(axis=0)  # far from the origin the two terms below would lose their digits
        moved = (self.source - middle) @ T[:3, :3].T + (T[:3, :3] @ middle + T[:3, 3])
        return float(np.sqrt(np.square(moved).sum(axis=1).mean())) / self.unit


Disturbance = Callable[[Posed, np.random.Generator], Posed]


def rigid_motion(rng: np.random.Generator, reach: float) -> Points:
    """Any rotation, and a translation of up to `reach` an axis: (4, 4)."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_quat(rng.normal(size=4)).as_matrix()
    T[:3, 3] = rng.uniform(-reach, reach, 3)
    return T


def move_source(pair: Posed, rng: np.random.Generator) -> Posed:
    """The source in any other pose."""
    T = rigid_motion(rng, 10 * pair.unit)
    return replace(pair, source=transform(pair.source, T), T_target_source=pair.T_target_source @ inverse(T))


def move_target(pair: Posed, rng: np.random.Generator) -> Posed:
    """The target in any other pose."""
    T = rigid_motion(rng, 10 * pair.unit)
    return replace(pair, target=transform(pair.target, T), T_target_source=T @ pair.T_target_source)


def permute(pair: Posed, rng: np.random.Generator) -> Posed:
    """The same points in another order."""
    return replace(pair, source=rng.permutation(pair.source), target=rng.permutation(pair.target))


def to_millimetres(pair: Posed, rng: np.random.Generator) -> Posed:
    """Metres become millimetres."""
    T = pair.T_target_source.copy()
    T[:3, 3] *= 1000
    return Posed(1000 * pair.source, 1000 * pair.target, T, 1000 * pair.unit)


def far_away(pair: Posed, rng: np.random.Generator) -> Posed:
    """Both scans about points a thousand kilometres from the origin, with all their digits."""
    directions = rng.normal(size=(2, 3))
    there = FAR * pair.unit * directions / np.linalg.norm(directions, axis=1, keepdims=True)  # (2, 3)
    T = pair.T_target_source.copy()
    T[:3, 3] += there[1] - T[:3, :3] @ there[0]
    return replace(pair, source=pair.source + there[0], target=pair.target + there[1], T_target_source=T)


def far_away_in_float32(pair: Posed, rng: np.random.Generator) -> Posed:
    """The same, kept in float32: of a coordinate of a million metres 6 cm are the last digit."""
    far = far_away(pair, rng)
    source, target = (cloud.astype(np.float32).astype(np.float64) for cloud in (far.source, far.target))
    return replace(far, source=source, target=target)


def thin_source(pair: Posed, rng: np.random.Generator) -> Posed:
    """Of the source every fourth point, by chance: one scan is much sparser than the other."""
    return replace(pair, source=_quarter(pair.source, rng))


def thin_both(pair: Posed, rng: np.random.Generator) -> Posed:
    """The same with both."""
    return replace(pair, source=_quarter(pair.source, rng), target=_quarter(pair.target, rng))


def add_noise(pair: Posed, rng: np.random.Generator) -> Posed:
    """Gaussian noise of up to 1 cm on every coordinate of both."""
    sigma = pair.unit * rng.uniform(0, MOST_NOISE)
    source, target = (cloud + rng.normal(0, sigma, cloud.shape) for cloud in (pair.source, pair.target))
    return replace(pair, source=source, target=target)


def add_outliers(pair: Posed, rng: np.random.Generator) -> Posed:
    """Points anywhere in the box around either scan, up to 30 % of what it then has."""
    share = rng.uniform(0, MOST_OUTLIERS)
    source, target = (_with_outliers(cloud, share, rng) for cloud in (pair.source, pair.target))
    return replace(pair, source=source, target=target)


EXACT: dict[str, Disturbance] = {
    "source moved": move_source,
    "target moved": move_target,
    "points permuted": permute,
    "millimetres": to_millimetres,
    "offset of 1e6 m": far_away,
}
LOSSY: dict[str, Disturbance] = {
    "offset of 1e6 m in float32": far_away_in_float32,
    "source ¼ as dense": thin_source,
    "both ¼ as dense": thin_both,
    "noise up to 1 cm": add_noise,
    "outliers up to 30 %": add_outliers,
}


def _quarter(points: Points, rng: np.random.Generator) -> Points:
    return points[np.sort(rng.permutation(len(points))[: max(1, int(QUARTER * len(points)))])]


def _with_outliers(points: Points, share: float, rng: np.random.Generator) -> Points:
    count = int(share / (1 - share) * len(points))
    anywhere = rng.uniform(points.min(axis=0), points.max(axis=0), (count, 3))
    return rng.permutation(np.vstack([points, anywhere]))
