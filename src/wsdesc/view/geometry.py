"""What drawing takes: fewer points, normals to light them by, directions to look from, ways between poses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

Floats = NDArray[np.float64]

_NEIGHBOURS = 10  # that a normal is found from
_ROUNDS = 8  # of halving the range in which the spacing of a thinned cloud is sought


class Placement(NamedTuple):
    """Where a cloud is: how it is turned, and the place of its middle."""

    wxyz: Floats  # (4,) unit quaternion
    position: Floats  # (3,)

    @classmethod
    def of(cls, rotation: Floats, position: Floats) -> Placement:
        """Of a rotation (3, 3) and the place of the middle (3,)."""
        x, y, z, w = Rotation.from_matrix(rotation).as_quat()
        return cls(np.array([w, x, y, z]), position)

    @property
    def rotation(self) -> Floats:
        """(3, 3)"""
        return np.asarray(Rotation.from_quat(np.roll(self.wxyz, -1)).as_matrix())

    def apply(self, points: Floats) -> Floats:
        """Points (N, 3) about the middle of the cloud, where it is placed."""
        return np.asarray(points @ self.rotation.T + self.position)


def between(start: Placement, end: Placement, share: float) -> Placement:
    """The rigid way from one place (share 0) to another (1): the middle goes straight, the turn is even."""
    a, b = start.wxyz, end.wxyz
    cosine = float(a @ b)
    if cosine < 0:  # the same turn, the short way
        b, cosine = -b, -cosine
    angle = np.arccos(min(cosine, 1.0))
    if angle < 1e-6:
        wxyz = (1 - share) * a + share * b
    else:
        wxyz = (np.sin((1 - share) * angle) * a + np.sin(share * angle) * b) / np.sin(angle)
    return Placement(wxyz / np.linalg.norm(wxyz), (1 - share) * start.position + share * end.position)


def thinned(points: Floats, most: int) -> Floats:
    """At most `most` of the points (N, 3), as evenly spread as they go; the same ones each time."""
    if len(points) <= most:
        return points
    # At random: an even stride would keep the pattern of the scanner.
    points = points[np.random.default_rng(0).permutation(len(points))[: 12 * most]]
    low, size = points.min(axis=0), float(np.ptp(points, axis=0).max()) or 1.0
    chosen = np.arange(most)
    fine, coarse = size / 4096, size
    for _ in range(_ROUNDS):
        cell = float(np.sqrt(fine * coarse))
        _, first = np.unique(_cells(points - low, cell), return_index=True)
        if len(first) > most:
            fine = cell
        else:
            coarse, chosen = cell, first
    if len(chosen) < most / 2:  # a point far off makes all cells too large
        chosen = np.arange(most)
    return points[np.sort(chosen)]


def _cells(points: Floats, size: float) -> NDArray[np.int64]:
    """(N,) numbers of the cubes of side `size` that points, none negative, lie in."""
    x, y, z = np.minimum(points / size, 2**21 - 1).astype(np.int64).T
    return np.asarray((x << 42) | (y << 21) | z)


def surface_normals(points: Floats) -> Floats:
    """Unit normals (N, 3), without a sign; where too few points are known, something arbitrary."""
    count = min(_NEIGHBOURS, len(points))
    _, near = cKDTree(points).query(points, count)
    patch = points[near.reshape(len(points), count)]
    patch = patch - patch.mean(axis=1, keepdims=True)
    _, vectors = np.linalg.eigh(np.einsum("nki,nkj->nij", patch, patch))
    return np.asarray(vectors[:, :, 0])


def usual_spacing(points: Floats) -> float:
    """The usual distance between neighbouring points."""
    if len(points) < 2:
        return 0.0
    nearest, _ = cKDTree(points).query(points, 2)
    return float(np.median(nearest[:, 1]))


def main_axes(points: Floats) -> Floats:
    """Columns: the directions of most, middle and least spread, as near to x, y, z as their signs allow."""
    centred = points - points.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    axes = vectors[:, ::-1]
    # Cameras look along z with y down, so the side that faced them is kept in front.
    strongest = np.abs(axes).argmax(axis=0)
    axes = axes * np.sign(axes[strongest, range(3)]) * np.array([1, -1, -1])
    if np.linalg.det(axes) < 0:
        axes[:, 0] = -axes[:, 0]
    return np.asarray(axes)
