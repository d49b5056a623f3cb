"""Points on meshes: the vertices of a dense scan, or a sample of the surface of a model.

Vertices of a scanned mesh are measured points, close to each other. A model has few vertices: a box has
eight, and all of its surface lies between them. `scan_points` distinguishes both by the edges.
"""

from __future__ import annotations

import numpy as np

# Share of the area on faces with long edges from which on the surface is sampled. Below it are scans, whose
# meshes bridge gaps and depth edges with some large faces.
_LONG_SHARE = 0.25
_LONG_EDGE = 2.0  # working resolutions: a longer edge leaves a voxel without a vertex
_SPACING = 0.5  # mean distance of sampled points, in working resolutions
_MIN_SAMPLE, _MAX_SAMPLE = 1000, 2_000_000
_PILOT = 20_000  # sampled points to measure the extent with


def scan_points(vertices: np.ndarray, faces: np.ndarray | None) -> np.ndarray | None:
    """Sample the surface of a mesh, if its vertices do not represent it.

    The mean distance of the points is 1/180 of the extent of the surface, half of the finest working
    resolution that is derived from scans. A cube gets about 130 000 points. The same mesh gives the same
    points.

    Args:
        vertices: (N, 3) float64, finite.
        faces: (F, 3) int64 triangles, or None.

    Returns:
        Points (M, 3) float64. None if the vertices are the points of a scan: if faces are missing, use fewer
        than half of the vertices, or have no area. Also None if less than a quarter of the area belongs to
        faces with an edge longer than 1/45 of the extent.
    """
    if faces is None or len(faces) == 0:
        return None
    used = np.zeros(len(vertices), bool)
    used[faces] = True
    if 2 * np.count_nonzero(used) < len(vertices):
        return None
    area, longest = _areas_and_edges(vertices, faces)
    total = float(area.sum())
    if not 0 < total < np.inf:
        return None
    from wsdesc.cloud.units import Scale, extent  # compiled code, which point clouds do not need

    pilot = _sample(vertices, faces, area, _PILOT, seed=0)
    finest = Scale.combine([0.0], [extent(pilot - pilot.mean(axis=0))]).resolution
    if float(area[longest > _LONG_EDGE * finest].sum()) < _LONG_SHARE * total:
        return None
    wanted = total / (_SPACING * finest) ** 2 if finest > 0 else 0.0
    return _sample(vertices, faces, area, int(np.clip(wanted, _MIN_SAMPLE, _MAX_SAMPLE)), seed=0)


def sample_surface(vertices: np.ndarray, faces: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Sample points (count, 3) float64 uniformly by area; the same seed gives the same points."""
    area, _ = _areas_and_edges(vertices, faces)
    if not 0 < area.sum() < np.inf:
        raise ValueError("the faces have no area to sample points from")
    return _sample(vertices, faces, area, count, seed)


def _sample(vertices: np.ndarray, faces: np.ndarray, area: np.ndarray, count: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    cumulative = np.cumsum(area)
    # One row per point: the first points do not depend on the count.
    where, a, b = np.moveaxis(generator.random((count, 3)), 1, 0)[..., None]  # (count, 1) each
    chosen = np.searchsorted(cumulative, where[:, 0] * cumulative[-1], side="right")
    outside = a + b > 1  # the other half of the parallelogram, folded back
    a, b = np.where(outside, 1 - a, a), np.where(outside, 1 - b, b)
    origin, p, q = (vertices[corner] for corner in faces[chosen].T)  # (count, 3) each
    return np.asarray(origin + a * (p - origin) + b * (q - origin))


def _areas_and_edges(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the area (F,) and the longest edge (F,) of each face."""
    corners = np.ascontiguousarray(faces.T)  # (3, F)
    with np.errstate(over="ignore", invalid="ignore"):
        # One coordinate at a time is several times faster than rows of three.
        sides = [(v[corners[1]] - v[corners[0]], v[corners[2]] - v[corners[0]]) for v in vertices.T]
        (ax, bx), (ay, by), (az, bz) = sides
        area = np.sqrt((ay * bz - az * by) ** 2 + (az * bx - ax * bz) ** 2 + (ax * by - ay * bx) ** 2) / 2
        squared = ax**2 + ay**2 + az**2
        np.maximum(squared, bx**2 + by**2 + bz**2, out=squared)
        np.maximum(squared, (ax - bx) ** 2 + (ay - by) ** 2 + (az - bz) ** 2, out=squared)
    return area, np.sqrt(squared)
