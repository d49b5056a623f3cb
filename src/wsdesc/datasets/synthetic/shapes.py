"""Basic shapes of synthetic rooms, as triangles.

A shape is an array (F, 3, 3): F triangles with three corners each, in metres, z up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from wsdesc.core.geometry import Floats

Triangles: TypeAlias = Floats

_CORNERS = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (0.0, 1.0)])
_FACES = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
_UNIT_BOX = _CORNERS[np.array([[f[0], f[i], f[i + 1]] for f in _FACES for i in (1, 2)])]  # (12, 3, 3)


def join(*shapes: Triangles) -> Triangles:
    """Join shapes."""
    return np.concatenate(shapes) if shapes else np.zeros((0, 3, 3))


def extent(shape: Triangles) -> tuple[Floats, Floats]:
    """Compute the low and the high corner of the bounding box."""
    x, y, z = np.ascontiguousarray(shape.reshape(-1, 3).T)
    return np.array([x.min(), y.min(), z.min()]), np.array([x.max(), y.max(), z.max()])


def rotation(yaw: float = 0.0, pitch: float = 0.0, roll: float = 0.0) -> Floats:
    """Compute the rotation (3, 3) by roll about x, then pitch about y, then yaw about z (radians)."""
    (cy, cp, cr), (sy, sp, sr) = np.cos([yaw, pitch, roll]), np.sin([yaw, pitch, roll])
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def place(
    shape: Triangles, at: ArrayLike = (0.0, 0.0, 0.0), yaw: float = 0.0, pitch: float = 0.0, roll: float = 0.0
) -> Triangles:
    """Rotate a shape about its origin, then translate it to `at`."""
    # einsum, not BLAS: its result does not depend on the number of threads.
    turned: Triangles = np.einsum("fvi,ji->fvj", shape, rotation(yaw, pitch, roll))
    return turned + np.asarray(at, dtype=np.float64)


def sheet(grid: Floats) -> Triangles:
    """Build two triangles for each cell of a grid of points (U, V, 3)."""
    a, b, c, d = grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]
    return np.stack([a, b, c, a, c, d], axis=2).reshape(-1, 3, 3)


def upright(x0: float, x1: float, z0: float, z1: float, y: float = 0.0) -> Triangles:
    """Build a vertical rectangle in the plane y."""
    return sheet(np.array([[[x0, y, z0], [x0, y, z1]], [[x1, y, z0], [x1, y, z1]]]))


def flat(width: float, depth: float, steps: int = 2) -> Triangles:
    """Build a horizontal rectangle about the origin."""
    x, y = np.meshgrid(
        np.linspace(-width / 2, width / 2, steps), np.linspace(-depth / 2, depth / 2, steps), indexing="ij"
    )
    return sheet(np.stack([x, y, np.zeros_like(x)], axis=-1))


def box(width: float, depth: float, height: float) -> Triangles:
    """Build a box that stands on z = 0, centred at the z axis."""
    return np.asarray(_UNIT_BOX * np.array([width, depth, height]))


def rounded(width: float, depth: float, height: float, edge: float = 0.3, steps: int = 9) -> Triangles:
    """Build a superellipsoid that stands on z = 0: `edge` 0.1 is nearly a box, 1 an ellipsoid."""
    u = np.linspace(-np.pi / 2, np.pi / 2, steps)[:, None]
    v = np.linspace(-np.pi, np.pi, 2 * steps - 1)[None, :]

    def power(base: Floats) -> Floats:
        return np.sign(base) * np.abs(base) ** edge

    x = power(np.cos(u)) * power(np.cos(v))
    y = power(np.cos(u)) * power(np.sin(v))
    z = power(np.sin(u)) + 1 + 0 * v
    return sheet(np.stack([x * width, y * depth, z * height], axis=-1) / 2)


def blob(size: Floats, edge: float = 1.0, steps: int = 9) -> Triangles:
    """Build a `rounded` shape of size (3,)."""
    width, depth, height = size
    return rounded(width, depth, height, edge, steps)


def lathe(profile: Sequence[tuple[float, float]], sides: int = 14) -> Triangles:
    """Build the surface of revolution of a profile of (radius, height) about the z axis."""
    radius, height = np.array(profile).T[:, :, None]
    angle = np.linspace(0, 2 * np.pi, sides + 1)[None, :]
    return sheet(np.stack([radius * np.cos(angle), radius * np.sin(angle), height + 0 * angle], axis=-1))


def rod(radius: float, height: float, top: float | None = None, sides: int = 10) -> Triangles:
    """Build a closed cylinder, or a frustum with another `top` radius."""
    top = radius if top is None else top
    return lathe([(0, 0), (radius, 0), (top, height), (0, height)], sides)


def tube(path: ArrayLike, radius: float, sides: int = 7) -> Triangles:
    """Build a tube of constant radius along a path (K, 3)."""
    path = np.asarray(path, dtype=np.float64)
    along = np.gradient(path, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True) + 1e-12
    # The coordinate axis least parallel to the path: its cross product never vanishes.
    axis = np.eye(3)[np.argmin(np.abs(along).max(axis=0))]
    side = np.cross(along, axis)
    side /= np.linalg.norm(side, axis=1, keepdims=True) + 1e-12
    other = np.cross(along, side)
    angle = np.linspace(0, 2 * np.pi, sides + 1)[None, :, None]
    around = np.cos(angle) * side[:, None] + np.sin(angle) * other[:, None]
    return sheet(path[:, None] + radius * around)


def bar(start: ArrayLike, end: ArrayLike, radius: float, sides: int = 7) -> Triangles:
    """Build a straight tube between two points."""
    return tube(np.array([start, end], dtype=np.float64), radius, sides)


def ring(radius: float, thickness: float, share: float = 1.0, sides: int = 24) -> Triangles:
    """Build a torus, or the first `share` of it, in the x-z plane about the origin."""
    angle = np.linspace(0, 2 * np.pi * share, sides + 1)
    circle = np.stack([np.cos(angle), np.zeros_like(angle), np.sin(angle)], axis=-1)
    side = np.linspace(0, 2 * np.pi, 8)[None, :, None]
    y = np.array([0.0, 1.0, 0.0])
    return sheet(circle[:, None] * (radius + thickness * np.cos(side)) + thickness * np.sin(side) * y)


def bumpy(shape: Triangles, rng: np.random.Generator, amplitude: float, wavelength: float) -> Triangles:
    """Displace every corner by a smooth random field; joined corners stay joined."""
    waves = rng.normal(size=(6, 3)) * (2 * np.pi / wavelength) * rng.uniform(0.4, 1.0, (6, 1))
    strength = rng.normal(size=(6, 3)) * (amplitude / np.sqrt(6))
    phase = rng.uniform(0, 2 * np.pi, 6)
    heave = np.sin(np.einsum("fvi,ki->fvk", shape, waves) + phase)
    return np.asarray(shape + np.einsum("fvk,ki->fvi", heave, strength))


def cloth(
    width: float, height: float, rng: np.random.Generator, wave: float = 0.03, folds: float = 6.0
) -> Triangles:
    """Build a hanging sheet in the x-z plane above z = 0, with folds that widen downwards."""
    count = int(np.clip(8 * folds, 12, 60))
    s, z = np.meshgrid(np.linspace(0, 1, count), np.linspace(0, 1, 6), indexing="ij")
    bend = s * folds + 0.3 * np.sin(2 * np.pi * s + rng.uniform(0, 6)) + 0.15 * z * rng.normal()
    y = wave * (1.2 - 0.7 * z) * np.sin(2 * np.pi * bend) + 0.3 * wave * np.sin(7 * s + rng.uniform(0, 6))
    return sheet(np.stack([(s - 0.5) * width, y, z * height], axis=-1))


def legs(rng: np.random.Generator, width: float, depth: float, height: float) -> Triangles:
    """Build four legs, round or square, straight or splayed, sometimes with cross bars."""
    thick, splay = rng.uniform(0.015, 0.035), rng.uniform(0, 0.06) * (rng.random() < 0.4)
    feet, tops = [], []
    for sx in (-1, 1):
        for sy in (-1, 1):
            top = np.array([sx * (width / 2 - thick), sy * (depth / 2 - thick), height])
            tops.append(top)
            feet.append(top + np.array([sx * splay, sy * splay, -height]))
    sides = 4 if rng.random() < 0.5 else 8
    parts = [bar(foot, top, thick, sides) for foot, top in zip(feet, tops, strict=True)]
    if rng.random() < 0.5:
        low = rng.uniform(0.15, 0.4)
        middle = [(1 - low) * f + low * t for f, t in zip(feet, tops, strict=True)]
        parts += [bar(middle[a], middle[b], 0.6 * thick, sides) for a, b in ((0, 1), (2, 3), (0, 2), (1, 3))]
    return join(*parts)
