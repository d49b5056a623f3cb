"""RANSAC: the rigid pose with most inliers among matches.

Each iteration draws its random numbers from (seed, iteration), so that the result does not depend on the
threads. Iterations run in batches. After each batch the best hypothesis is refitted to its inliers, and the
search stops once a better one is improbable.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.alignment.correspondences import matched_points, squared_residuals
from wsdesc.alignment.rigid import rigid_from_moments
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import inline, kernel, run_in_chunks

_BATCH = 2048  # iterations between two refits of the best hypothesis
_CHUNK = 512  # iterations per task of a thread
_MAX_REFITS = 10  # two or three are usual


class RansacResult(NamedTuple):
    """The pose of RANSAC and its inliers; on the CPU."""

    T_target_source: Tensor  # (4, 4) float64; the identity where none was found
    inliers: Tensor  # (M,) bool: matches within the threshold
    score: float  # share of the matches that are inliers, 0 … 1
    iterations: int  # samples drawn
    success: bool  # at least three inliers; the pose may still be wrong


def ransac(
    source: Tensor,
    target: Tensor,
    *,
    threshold: float = 0.05,
    edge_ratio: float = 0.9,
    iterations: int = 50_000,
    confidence: float = 0.999,
    seed: int = 0,
) -> RansacResult:
    """Find the rigid pose with most inliers among matched points source[i] ↔ target[i].

    Args:
        source, target: Matched points (M, 3).
        threshold: Distance, in the unit of the points, up to which a match is an inlier.
        edge_ratio: Least ratio of the lengths of each edge of a sample in both scans, shorter over longer;
            other samples are skipped. 0 tries all.
        iterations: Largest number of samples.
        confidence: Stop once a sample of three inliers of the best pose would have been drawn with this
            probability; 1 never stops early.
        seed: The same seed gives the same bits on any number of threads.
    """
    p, q = matched_points(source, target)
    _check_options(threshold, edge_ratio, iterations, confidence)
    count = p.shape[1]
    best = np.eye(4)
    inliers = np.zeros(count, dtype=np.bool_)
    drawn, needed, most_inliers = 0, float(iterations), 2
    while count >= 3 and drawn < min(needed, iterations):
        batch = min(_BATCH, iterations - drawn)
        counts = np.zeros(batch, dtype=np.int64)
        poses = np.empty((batch, 3, 4))
        limits = (threshold * threshold, edge_ratio * edge_ratio)
        run_in_chunks(
            _try_samples, batch, drawn, np.uint64(seed % 2**64), p, q, *limits, counts, poses, chunk=_CHUNK
        )
        drawn += batch
        winner = int(counts.argmax())  # the first among equals
        if counts[winner] > most_inliers:
            most_inliers = int(counts[winner])
            T, refitted = _refit(np.vstack([poses[winner], [0.0, 0.0, 0.0, 1.0]]), p, q, threshold)
            if refitted.sum() > max(2, inliers.sum()):
                best, inliers = T, refitted
                needed = _samples_needed(int(inliers.sum()), count, confidence)
    return RansacResult(
        T_target_source=torch.from_numpy(best),
        inliers=torch.from_numpy(inliers),
        score=float(inliers.mean()) if count else 0.0,
        iterations=drawn,
        success=bool(inliers.any()),
    )


def _check_options(threshold: float, edge_ratio: float, iterations: int, confidence: float) -> None:
    if not (threshold > 0 and math.isfinite(threshold)):
        raise InputError(f"threshold must be positive and finite, not {threshold}")
    if not 0 <= edge_ratio <= 1:
        raise InputError(f"edge_ratio must be in 0 … 1, not {edge_ratio}")
    if iterations < 1:
        raise InputError(f"iterations must be at least 1, not {iterations}")
    if not 0 < confidence <= 1:
        raise InputError(f"confidence must be greater than 0 and at most 1, not {confidence}")


def _samples_needed(inliers: int, count: int, confidence: float) -> float:
    """Return the number of samples that contain one of inliers only with this confidence."""
    if confidence == 1:
        return math.inf
    good = math.comb(inliers, 3) / math.comb(count, 3)
    return math.log1p(-confidence) / math.log1p(-good) if good < 1 else 1.0


def _refit(T: Floats, p: Floats, q: Floats, threshold: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Refit to the inliers as long as they come closer; a chance inlier may be lost."""
    squared = squared_residuals(T[None], p, q)[0]
    for _ in range(_MAX_REFITS):
        inliers = squared <= threshold * threshold
        if inliers.sum() < 3:
            break
        fitted = _fit(p[:, inliers], q[:, inliers])
        after = squared_residuals(fitted[None], p, q)[0]
        if _closeness(after, threshold) <= _closeness(squared, threshold):
            break
        T, squared = fitted, after
    return T, squared <= threshold * threshold


def _closeness(squared: Floats, threshold: float) -> float:
    """Sum over inliers from 1 for no residual to 0 at the threshold."""
    return float(np.maximum(1 - squared / threshold**2, 0).sum())


def _fit(p: Floats, q: Floats) -> Floats:
    """Fit matches (3, M). NumPy sums do not depend on the number of threads; those of torch and BLAS do."""
    mean_p, mean_q = p.mean(axis=1), q.mean(axis=1)
    cross = np.einsum("ik,jk->ij", q - mean_q[:, None], p - mean_p[:, None]) / p.shape[1]
    T: Floats = rigid_from_moments(*map(torch.from_numpy, (mean_p, mean_q, cross))).numpy()
    return T


@inline
def _random(seed: Any, counter: Any) -> Any:
    """Return 64 random bits of a counter (Splitmix64), one stream per seed."""
    x = seed + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inline
def _below(bits: Any, bound: int) -> Any:
    """Return a number in [0, bound) from the upper half of the bits."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@inline
def _edge(x: Any, i: int, j: int) -> Any:
    return x[0, j] - x[0, i], x[1, j] - x[1, i], x[2, j] - x[2, i]


@inline
def _dot(a: Any, b: Any) -> Any:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@inline
def _cross(a: Any, b: Any) -> Any:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@inline
def _scale(s: Any, a: Any) -> Any:
    return s * a[0], s * a[1], s * a[2]


@inline
def _same_length(a: Any, b: Any, ratio_squared: float) -> Any:
    x, y = _dot(a, a), _dot(b, b)
    return min(x, y) > 0.0 and min(x, y) >= ratio_squared * max(x, y)


@inline
def _triangle_frame(ab: Any, ac: Any) -> Any:
    """Return axes along the first edge, across it and along the normal, and whether the area is not zero."""
    normal = _cross(ab, ac)
    area = _dot(normal, normal)
    # An angle below 1e-3 does not determine the rotation about the long edge.
    usable = area > 1e-6 * _dot(ab, ab) * _dot(ac, ac) and area > 0.0
    if not usable:
        return ab, ab, ab, False
    x = _scale(1.0 / math.sqrt(_dot(ab, ab)), ab)
    z = _scale(1.0 / math.sqrt(area), normal)
    return x, _cross(z, x), z, True


@kernel
def _try_samples(
    start: int,
    stop: int,
    first: int,
    seed: Any,
    p: Any,
    q: Any,
    threshold_squared: float,
    ratio_squared: float,
    counts: Any,
    poses: Any,
) -> None:
    """Draw the samples first + start … first + stop; write the pose and number of inliers of each.

    Three matches are fitted in closed form. Both triangles lie in planes, so the best rotation aligns the
    planes and then rotates within them by the angle of a two-dimensional Kabsch fit.
    """
    count = p.shape[1]
    for item in range(start, stop):
        counter = np.uint64(3) * np.uint64(first + item)
        a = _below(_random(seed, counter), count)
        b = _below(_random(seed, counter + np.uint64(1)), count - 1)
        if b >= a:
            b += 1
        ab_p, ab_q = _edge(p, a, b), _edge(q, a, b)
        if not _same_length(ab_p, ab_q, ratio_squared):
            continue
        c = _below(_random(seed, counter + np.uint64(2)), count - 2)
        if c >= min(a, b):
            c += 1
        if c >= max(a, b):
            c += 1
        ac_p, ac_q = _edge(p, a, c), _edge(q, a, c)
        if not _same_length(ac_p, ac_q, ratio_squared):
            continue
        if not _same_length(_edge(p, b, c), _edge(q, b, c), ratio_squared):
            continue
        x_p, y_p, z_p, usable_p = _triangle_frame(ab_p, ac_p)
        x_q, y_q, z_q, usable_q = _triangle_frame(ab_q, ac_q)
        if not (usable_p and usable_q):
            continue

        # Corners in the plane, about their mean: the sum of products of a, b, c less that of the means.
        bp, cp0, cp1 = _dot(ab_p, x_p), _dot(ac_p, x_p), _dot(ac_p, y_p)
        bq, cq0, cq1 = _dot(ab_q, x_q), _dot(ac_q, x_q), _dot(ac_q, y_q)
        mp0, mp1, mq0, mq1 = (bp + cp0) / 3.0, cp1 / 3.0, (bq + cq0) / 3.0, cq1 / 3.0
        cosine = bp * bq + cp0 * cq0 + cp1 * cq1 - 3.0 * (mp0 * mq0 + mp1 * mq1)
        sine = cp0 * cq1 - cp1 * cq0 - 3.0 * (mp0 * mq1 - mp1 * mq0)
        size = math.sqrt(cosine * cosine + sine * sine)
        if not size > 0.0:
            continue
        cosine, sine = cosine / size, sine / size
        for i in range(3):
            along = cosine * x_q[i] + sine * y_q[i]
            across = cosine * y_q[i] - sine * x_q[i]
            shift = (q[i, a] + q[i, b] + q[i, c]) / 3.0
            for j in range(3):
                r = along * x_p[j] + across * y_p[j] + z_q[i] * z_p[j]
                poses[item, i, j] = r
                shift -= r * (p[j, a] + p[j, b] + p[j, c]) / 3.0
            poses[item, i, 3] = shift
        counts[item] = _count_inliers(poses[item], p, q, threshold_squared)


@inline
def _count_inliers(T: Any, p: Any, q: Any, threshold_squared: float) -> Any:
    t00, t01, t02, t03 = T[0, 0], T[0, 1], T[0, 2], T[0, 3]
    t10, t11, t12, t13 = T[1, 0], T[1, 1], T[1, 2], T[1, 3]
    t20, t21, t22, t23 = T[2, 0], T[2, 1], T[2, 2], T[2, 3]
    inliers = 0
    for k in range(p.shape[1]):
        x, y, z = p[0, k], p[1, k], p[2, k]
        dx = t00 * x + t01 * y + t02 * z + t03 - q[0, k]
        dy = t10 * x + t11 * y + t12 * z + t13 - q[1, k]
        dz = t20 * x + t21 * y + t22 * z + t23 - q[2, k]
        inliers += dx * dx + dy * dy + dz * dz <= threshold_squared
    return inliers
