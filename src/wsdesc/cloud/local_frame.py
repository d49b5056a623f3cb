"""Local frame of a scan: an origin and axes that depend on the scan alone, not on how it was moved.

Everything after cleaning is computed in this frame. So the same scan gives the same result however it is
rotated and shifted.

- The origin is the mean of the points. The axes follow from the principal axes of their covariance.
- Each principal axis points to the side with the longer tail: its third moment is positive. If the axes are
  left-handed then, the axis with the least skewness is reversed.
- Then the axes are tilted by a fixed rotation. The principal axes of many rooms are parallel to their walls,
  and voxel grids parallel to a wall give up to 8 % fewer points than others. Tilted grids give equal numbers.
- Outliers have little weight: a point at r times the root mean square distance has 1 / (1 + (r / 3)²).
- All points count, because a sample would change with their number. The noise of float32 files changes the
  frame no more than it changes a point. Dense points near a scanner add little to a covariance.

A symmetric scan has several such frames, and rounding decides between them. Its points are the same in each.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from wsdesc.cloud.cloud import as_array
from wsdesc.core.geometry import Floats, check_rigid, inverse, make_pose
from wsdesc.core.kernels import kernel, run_in_chunks
from wsdesc.core.rotations import nearest_rotation, rotation_matrix

_REACH = 3.0  # root mean square distances at which a point has half the weight
_SMALLEST = 1e-150  # variance; cubes of smaller lengths are no longer exact in float64
_FLAT = 1e-12  # share of the largest variance below which an axis has no skewness: its points are rounded
_CHUNK = 1 << 16  # points whose sums are one row; sums do not depend on the number of threads

# Rotation by 60° about (9, 10, 11), after which no axis is near one of the axes before.
_TILT = rotation_matrix(2 * math.atan2(math.sqrt(302), 30) / math.sqrt(302) * np.array([9.0, 10.0, 11.0]))

# Entries of symmetric moments that are summed, as indices of their axes.
_SECOND = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
_THIRD = ((0, 0, 0), (1, 1, 1), (2, 2, 2), (0, 0, 1), (0, 0, 2), (0, 1, 1), (1, 1, 2), (0, 2, 2), (1, 2, 2),
          (0, 1, 2))  # fmt: skip


class _Moments(NamedTuple):
    """Sums over weighted points d, relative to a centre."""

    weight: float  # Σ w
    first: Floats  # (3,) Σ w d
    second: Floats  # (3, 3) Σ w d dᵀ
    third: Floats  # (3, 3, 3) Σ w² d ⊗ d ⊗ d; w² keeps the influence of outliers finite


def local_frame(points: Floats) -> Floats:
    """Derive the local frame of a scan.

    Args:
        points: (N, 3) float64, C-contiguous, N ≥ 1, finite.

    Returns:
        T_scan_local (4, 4), from local coordinates to those of the points. The axes are those of the points
        if their extent is zero, or its cube exceeds the range of float64.
    """
    T_scan_local = np.eye(4)
    centre, reach = points[0], math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(2):  # the mean of all points, then the mean without outliers
            moments = _moments(points, centre, reach)
            shift = moments.first / moments.weight
            centre = centre + shift
            variance = np.trace(moments.second) / moments.weight - shift @ shift
            if not _SMALLEST < variance < 1 / _SMALLEST:
                T_scan_local[:3, 3] = centre
                return T_scan_local
            reach = _REACH * math.sqrt(variance)
    T_scan_local[:3, :3] = _axes(_moments(points, centre, reach)) @ _TILT
    T_scan_local[:3, 3] = centre
    return T_scan_local


def to_local(points: Floats, T_scan_local: Floats, dtype: Any = np.float32) -> np.ndarray:
    """Convert points (N, 3) float64, C-contiguous, to the local frame; (N, 3) of the given type."""
    local = np.empty(points.shape, dtype)
    R, origin = T_scan_local[:3, :3].copy(), T_scan_local[:3, 3].copy()
    run_in_chunks(_write_local, len(points), points, origin, R, local, chunk=_CHUNK)
    return local


def in_scan_frames(T_local: Any, T_source_local: Any, T_target_local: Any, factor: float = 1.0) -> Floats:
    """Convert a pose between the local frames of two scans to one between the scans' own coordinates.

    Args:
        T_local: (4, 4), maps local coordinates of the source to local coordinates of the target.
        T_source_local: (4, 4), `T_scan_local` of the source.
        T_target_local: (4, 4), `T_scan_local` of the target.
        factor: From lengths of the source to lengths of the target; the source is multiplied by it first.

    Returns:
        T_target_source (4, 4) float64, a similarity if the factor is not 1. It has the precision of `T_local`
        at the scan, also for geographic coordinates.

    Raises:
        InputError: A matrix is not rigid.
    """
    T, source, target = (
        check_rigid(as_array(matrix), name)
        for matrix, name in (
            (T_local, "T_local"),
            (T_source_local, "T_source_local"),
            (T_target_local, "T_target_local"),
        )
    )
    T_target_source = target @ T @ inverse(source)
    T_target_source[:3, :3] *= factor
    # The translation of the rounded rotation: large coordinates then lose no digits.
    R = T_target_source[:3, :3]
    T_target_source[:3, 3] = target[:3, 3] + target[:3, :3] @ T[:3, 3] - R @ source[:3, 3]
    return T_target_source


def in_local_frames(T_target_source: Any, T_source_local: Any, T_target_local: Any) -> Floats:
    """Convert a pose between the coordinates of two scans to one between their local frames.

    The inverse of `in_scan_frames`. A rotation that was rounded, as in a file with few digits, is made exact.
    The middle of the source stays where the given matrix puts it, also for geographic coordinates.

    Args:
        T_target_source: (4, 4), maps coordinates of the source to coordinates of the target.
        T_source_local: (4, 4), `T_scan_local` of the source.
        T_target_local: (4, 4), `T_scan_local` of the target.

    Returns:
        (4, 4) float64, maps local coordinates of the source to local coordinates of the target.

    Raises:
        InputError: The pose is not rigid.
    """
    T = check_rigid(as_array(T_target_source), "T_target_source")
    source, target = as_array(T_source_local), as_array(T_target_local)
    return make_pose(
        nearest_rotation(target[:3, :3].T @ T[:3, :3] @ source[:3, :3]),
        target[:3, :3].T @ (T[:3, :3] @ source[:3, 3] + T[:3, 3] - target[:3, 3]),
    )


def _axes(moments: _Moments) -> Floats:
    """Return the principal axes (3, 3) as columns, longest first, right-handed, with unique signs."""
    variances, vectors = np.linalg.eigh(moments.second)  # ascending
    variances, axes = variances[::-1], vectors[:, ::-1].copy()
    third = np.einsum("ijk,ia,ja,ka->a", moments.third, axes, axes, axes)
    thick = variances > _FLAT * variances[0]
    skewness = np.where(thick, third / np.where(thick, variances, 1.0) ** 1.5, 0.0)
    axes[:, skewness < 0] *= -1
    if np.linalg.det(axes) < 0:
        axes[:, np.abs(skewness).argmin()] *= -1
    return axes


def _moments(points: Floats, centre: Floats, reach: float) -> _Moments:
    """Sum the moments of points (N, 3) about the centre (3,); `reach` is the distance of weight 1/2."""
    sums = np.zeros((-(-len(points) // _CHUNK), 4 + len(_SECOND) + len(_THIRD)))
    run_in_chunks(_sum_moments, len(points), points, centre.copy(), 1 / reach**2, sums, chunk=_CHUNK)
    total = sums.sum(axis=0)
    second, third = np.empty((3, 3)), np.empty((3, 3, 3))
    for (i, j), value in zip(_SECOND, total[4:10], strict=True):
        second[i, j] = second[j, i] = value
    for axes, value in zip(_THIRD, total[10:], strict=True):
        for permuted in itertools.permutations(axes):
            third[permuted] = value
    return _Moments(float(total[0]), total[1:4], second, third)


@kernel(
    types="int64, int64, float64[:, ::1], float64[::1], float64, float64[:, ::1]",
    fastmath={"contract", "nsz", "reassoc"},
)
def _sum_moments(start, stop, points, centre, inverse_squared_reach, sums):
    w0 = w1x = w1y = w1z = xx = yy = zz = xy = xz = yz = 0.0
    xxx = yyy = zzz = xxy = xxz = xyy = yyz = xzz = yzz = xyz = 0.0
    for n in range(start, stop):
        x, y, z = points[n, 0] - centre[0], points[n, 1] - centre[1], points[n, 2] - centre[2]
        w = 1.0 / (1.0 + (x * x + y * y + z * z) * inverse_squared_reach)
        wx, wy, wz = w * x, w * y, w * z
        w0 += w
        w1x += wx
        w1y += wy
        w1z += wz
        xx += wx * x
        yy += wy * y
        zz += wz * z
        xy += wx * y
        xz += wx * z
        yz += wy * z
        xxx += wx * wx * x
        yyy += wy * wy * y
        zzz += wz * wz * z
        xxy += wx * wx * y
        xxz += wx * wx * z
        xyy += wy * wy * x
        yyz += wy * wy * z
        xzz += wz * wz * x
        yzz += wz * wz * y
        xyz += wx * wy * z
    row = sums[start // _CHUNK]
    row[0], row[1], row[2], row[3] = w0, w1x, w1y, w1z
    row[4], row[5], row[6], row[7], row[8], row[9] = xx, yy, zz, xy, xz, yz
    row[10], row[11], row[12], row[13], row[14] = xxx, yyy, zzz, xxy, xxz
    row[15], row[16], row[17], row[18], row[19] = xyy, yyz, xzz, yzz, xyz


@kernel(types="int64, int64, float64[:, ::1], float64[::1], float64[:, ::1], float32[:, ::1]")
def _write_local(start, stop, points, origin, R_scan_local, local):
    for n in range(start, stop):
        x, y, z = points[n, 0] - origin[0], points[n, 1] - origin[1], points[n, 2] - origin[2]
        for axis in range(3):
            local[n, axis] = x * R_scan_local[0, axis] + y * R_scan_local[1, axis] + z * R_scan_local[2, axis]
