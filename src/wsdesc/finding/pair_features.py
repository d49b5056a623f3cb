"""Pair features: pairs of points vote for poses of an object in a scene.

Two points with normals have four invariants: their distance, and the angles between both normals and the line
that joins them. A table lists all pairs of the object by these. Each reference point of the scene forms pairs
with the points around it. Every pair of the object with equal invariants votes for one pose: it puts a point
of the object at the reference point, rotated about its normal.

The sign of a normal is unknown, because object and scene may be any points. Angles are therefore those of
lines, 0 … 90°, and a pose has one more unknown: whether the normal at the reference point is reversed. Pairs
on one plane are ignored: they are frequent in a scene and hardly constrain a pose.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import inline, kernel, run_in_chunks

SPACING = 0.065  # distance of the points that form pairs, in diameters of the object

_LENGTHS = 16  # bins of the distance, one spacing each
_ANGLES = 8  # bins of each angle, 11° each
_TURNS = 32  # bins of the rotation about the normal
_MIN_LENGTH = 2.0  # spacings; shorter pairs have uncertain directions
_COPLANAR_NORMALS, _COPLANAR_LINE = np.cos(np.radians(15)), np.sin(np.radians(12))
_SIGNED_COSINE = 0.25  # the sign of a cosine between normal and line is certain if it is larger
_PEAKS = 2  # poses of each reference point for each sign of its normal
_SAME_TURN, _SAME_POINT = 3, 3.0  # bins and spacings: closer peaks are one


class PairTable(NamedTuple):
    """Pairs of an object, sorted by their feature."""

    starts: NDArray[np.int64]  # (bins + 1,)
    points: NDArray[np.int32]  # (P,) first point of each pair
    turns: NDArray[np.float32]  # (P,) angle of the second point about the first one's normal
    signs: NDArray[np.int8]  # (P,) sign of the cosine between the first normal and the line; 0: uncertain
    frames: Floats  # (N, 3, 3) rows: axes of each point's frame; the first is the normal
    object_points: Floats  # (N, 3)
    spacing: float


class Votes(NamedTuple):
    """The best poses of each reference point."""

    poses: Floats  # (R, 4, 4) T_scene_object
    votes: Floats  # (R,)


def make_table(points: Floats, normals: Floats, spacing: float) -> PairTable:
    """List the pairs of an object.

    Args:
        points: (N, 3), about one `spacing` apart.
        normals: (N, 3), unit vectors of arbitrary sign; points whose normal is zero form no pairs.
        spacing: Distance of neighbouring points, in their unit.
    """
    frames = normal_frames(normals)
    n = len(points)
    bins = np.empty((n, n), np.int64)
    turns, signs = np.empty((n, n), np.float32), np.empty((n, n), np.int8)
    run_in_chunks(_object_pairs, n, points, normals, frames, spacing, bins, turns, signs)
    first = np.repeat(np.arange(n, dtype=np.int32), n)
    order = np.argsort(bins.ravel(), kind="stable")
    order = order[np.searchsorted(bins.ravel()[order], 0) :]  # pairs without a feature have the bin -1
    starts = np.searchsorted(bins.ravel()[order], np.arange(_LENGTHS * _ANGLES**3 + 1))
    return PairTable(
        starts, first[order], turns.ravel()[order], signs.ravel()[order], frames, points.copy(), spacing
    )


def vote(
    table: PairTable,
    points: Floats,
    normals: Floats,
    reference: NDArray[np.int64],
    near: NDArray[np.int64],
    near_starts: NDArray[np.int64],
) -> Votes:
    """Let the pairs of reference points vote for poses of the object.

    Args:
        table: Pairs of the object.
        points: (M, 3) points of the scene, about one spacing apart.
        normals: (M, 3) unit vectors of arbitrary sign.
        reference: (R,) indices of the reference points.
        near: Indices of the points around each reference point, one after the other.
        near_starts: (R + 1,) where those of each reference point start in `near`.
    """
    count = len(reference)
    frames = normal_frames(normals[reference])
    chosen = np.zeros((count, 2, _PEAKS), np.int64)
    turns, votes = np.zeros(chosen.shape), np.zeros(chosen.shape)
    run_in_chunks(
        _vote, count, points, normals, reference, frames, near, near_starts, table.starts, table.points,
        table.turns, table.signs, table.object_points, table.spacing, chosen, turns, votes,
    )  # fmt: skip
    poses = np.stack(
        [
            np.stack(
                [
                    _poses(table, chosen[:, f, k], turns[:, f, k], frames, points[reference], f)
                    for k in range(_PEAKS)
                ],
                axis=1,
            )
            for f in range(2)
        ],
        axis=1,
    )
    return Votes(poses.reshape(-1, 4, 4), votes.ravel())


def _poses(
    table: PairTable, chosen: NDArray[np.int64], turns: Floats, frames: Floats, at: Floats, flip: int
) -> Floats:
    """Compute T_scene_object (R, 4, 4) from object points, rotations about the normal, and frames."""
    if flip:
        frames = frames * np.array([-1.0, 1.0, -1.0])[:, None]
    cosine, sine = np.cos(turns), np.sin(turns)
    turn = np.zeros((len(turns), 3, 3))
    turn[:, 0, 0] = 1
    turn[:, 1, 1] = turn[:, 2, 2] = cosine
    turn[:, 1, 2], turn[:, 2, 1] = -sine, sine
    T = np.zeros((len(turns), 4, 4))
    T[:, :3, :3] = np.einsum("rji,rjk,rkl->ril", frames, turn, table.frames[chosen], optimize=True)
    T[:, :3, 3] = at - np.einsum("rij,rj->ri", T[:, :3, :3], table.object_points[chosen])
    T[:, 3, 3] = 1
    return T


def normal_frames(normals: Floats) -> Floats:
    """Complete normals (N, 3) to right-handed frames (N, 3, 3) whose rows are the axes."""
    other = np.zeros_like(normals)
    smallest = np.abs(normals).argmin(axis=1)
    other[np.arange(len(normals)), smallest] = 1.0
    y = np.cross(normals, other)
    y /= np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1e-12)
    return np.stack([normals, y, np.cross(normals, y)], axis=1)


@inline
def _feature(p: Any, i: int, j: int, normals: Any, frame: Any, spacing: float) -> Any:
    """Return the bin of a pair, or -1; the angle of the second point about the first normal; the cosine."""
    dx, dy, dz = p[j, 0] - p[i, 0], p[j, 1] - p[i, 1], p[j, 2] - p[i, 2]
    length = np.sqrt(dx * dx + dy * dy + dz * dz)
    if length < _MIN_LENGTH * spacing or length >= _LENGTHS * spacing:
        return -1, 0.0, 0.0
    a = frame[0, 0] * dx + frame[0, 1] * dy + frame[0, 2] * dz
    b = normals[j, 0] * dx + normals[j, 1] * dy + normals[j, 2] * dz
    c = frame[0, 0] * normals[j, 0] + frame[0, 1] * normals[j, 1] + frame[0, 2] * normals[j, 2]
    if not (normals[j, 0] != 0 or normals[j, 1] != 0 or normals[j, 2] != 0):
        return -1, 0.0, 0.0
    a, b = a / length, b / length
    u, v, w = min(abs(a), 1.0), min(abs(b), 1.0), min(abs(c), 1.0)
    if w > _COPLANAR_NORMALS and u < _COPLANAR_LINE and v < _COPLANAR_LINE:
        return -1, 0.0, 0.0
    step = 0.5 * np.pi / _ANGLES
    k = int(length / spacing)
    for cosine in (u, v, w):
        k = k * _ANGLES + min(int(np.arccos(cosine) / step), _ANGLES - 1)
    y = frame[1, 0] * dx + frame[1, 1] * dy + frame[1, 2] * dz
    z = frame[2, 0] * dx + frame[2, 1] * dy + frame[2, 2] * dz
    return k, np.arctan2(z, y), a


@kernel
def _object_pairs(
    start: int, stop: int, points: Any, normals: Any, frames: Any, spacing: float, bins: Any, turns: Any,
    signs: Any,
) -> None:  # fmt: skip
    """Write the features of all pairs whose first point is in the range."""
    for i in range(start, stop):
        valid = normals[i, 0] != 0 or normals[i, 1] != 0 or normals[i, 2] != 0
        for j in range(len(points)):
            if i == j or not valid:
                bins[i, j] = -1
                continue
            k, turn, cosine = _feature(points, i, j, normals, frames[i], spacing)
            bins[i, j], turns[i, j] = k, turn
            signs[i, j] = 0 if abs(cosine) < _SIGNED_COSINE else (1 if cosine > 0 else -1)


@kernel
def _vote(
    start: int, stop: int, points: Any, normals: Any, reference: Any, frames: Any, near: Any,
    near_starts: Any, table_starts: Any, table_points: Any, table_turns: Any, table_signs: Any,
    object_points: Any, spacing: float, chosen: Any, turns: Any, votes: Any,
) -> None:  # fmt: skip
    """Collect the votes of each reference point, and write its best pose for each sign of its normal."""
    count = len(object_points)
    bins = np.zeros((2, count, _TURNS), np.float32)
    scale = _TURNS / (2 * np.pi)
    for r in range(start, stop):
        i = reference[r]
        bins[:] = 0
        for m in range(near_starts[r], near_starts[r + 1]):
            j = near[m]
            if i == j:
                continue
            k, turn, cosine = _feature(points, i, j, normals, frames[r], spacing)
            if k < 0:
                continue
            sign = 0 if abs(cosine) < _SIGNED_COSINE else (1 if cosine > 0 else -1)
            first, last = table_starts[k], table_starts[k + 1]
            weight = 1 / np.sqrt(max(last - first, 1.0))  # frequent features are less specific
            for e in range(first, last):
                agreement = sign * table_signs[e]
                point = table_points[e]
                if agreement >= 0:
                    t = (turn - table_turns[e]) * scale
                    bins[0, point, int(np.floor(t)) % _TURNS] += weight
                if agreement <= 0:  # the frame with the reversed normal: y stays, z changes its sign
                    t = (-turn - table_turns[e]) * scale
                    bins[1, point, int(np.floor(t)) % _TURNS] += weight
        for flip in range(2):
            for peak in range(_PEAKS):
                best, best_point, best_turn = -1.0, 0, 0
                for point in range(count):
                    for t in range(_TURNS):
                        value = bins[flip, point, t] + bins[flip, point, (t + 1) % _TURNS]
                        if value > best:
                            best, best_point, best_turn = value, point, t
                low = bins[flip, best_point, best_turn]
                high = bins[flip, best_point, (best_turn + 1) % _TURNS]
                centre = (0.5 * low + 1.5 * high) / max(low + high, 1e-6)
                chosen[r, flip, peak], votes[r, flip, peak] = best_point, best
                turns[r, flip, peak] = (best_turn + centre) / scale
                if peak < _PEAKS - 1:
                    _clear(bins[flip], object_points, best_point, best_turn, _SAME_POINT * spacing)


@inline
def _clear(bins: Any, points: Any, peak: int, turn: int, distance: float) -> None:
    """Remove the votes of a peak and of similar poses."""
    for k in range(len(points)):
        x, y, z = (
            points[k, 0] - points[peak, 0],
            points[k, 1] - points[peak, 1],
            points[k, 2] - points[peak, 2],
        )
        if x * x + y * y + z * z <= distance * distance:
            for t in range(turn - _SAME_TURN, turn + _SAME_TURN + 2):
                bins[k, t % _TURNS] = 0
