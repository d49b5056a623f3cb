"""Ray casting: a bounding volume tree of triangles, and its traversal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import inline, kernel, run_in_chunks

_BINS = 12
_LEAF = 3


@dataclass(frozen=True)
class Tree:
    """Triangles in tree order, and the nodes of the tree."""

    triangles: NDArray[np.float32]  # (F, 3, 3): a corner and the two edges from it
    source: NDArray[np.int32]  # (F,): index of each triangle in the input
    bounds: NDArray[np.float32]  # (M, 6): low corner, high corner
    links: NDArray[np.int32]  # (M, 2): (left child, 0), the right child is next; in a leaf (first, count)

    @classmethod
    def over(cls, triangles: Floats) -> Tree:
        """Build the tree over triangles (F, 3, 3)."""
        corners = np.ascontiguousarray(triangles, dtype=np.float32)
        low, high = corners.min(axis=1), corners.max(axis=1)
        order = np.arange(len(corners), dtype=np.int32)
        bounds = np.empty((2 * len(corners), 6), dtype=np.float32)
        links = np.zeros((2 * len(corners), 2), dtype=np.int32)
        used = _build(low, high, order, bounds, links)
        corners = corners[order]
        corners[:, 1:] -= corners[:, :1]
        return cls(corners, order, bounds[:used].copy(), links[:used].copy())

    def joined(self, other: Tree) -> Tree:
        """Join two trees under one root; the triangles of `other` follow in the input."""
        low = np.minimum(self.bounds[0, :3], other.bounds[0, :3])
        high = np.maximum(self.bounds[0, 3:], other.bounds[0, 3:])
        # Siblings are neighbours: the roots become nodes 1 and 2, all other nodes follow.
        first, second = self.links.copy(), other.links.copy()
        first[first[:, 1] == 0, 0] += 2
        inner = second[:, 1] == 0
        second[inner, 0] += len(first) + 1
        second[~inner, 0] += len(self.triangles)
        root = np.array([[1, 0]], dtype=np.int32)
        return Tree(
            np.concatenate([self.triangles, other.triangles]),
            np.concatenate([self.source, other.source + np.int32(len(self.source))]),
            np.concatenate(
                [[[*low, *high]], self.bounds[:1], other.bounds[:1], self.bounds[1:], other.bounds[1:]]
            ).astype(np.float32),
            np.concatenate([root, first[:1], second[:1], first[1:], second[1:]]),
        )


@kernel
def _build(low, high, order, bounds, links):  # type: ignore[no-untyped-def]
    """Split top-down by the surface area heuristic, over equal bins along the longest axis."""
    bin_low, bin_high = np.empty((_BINS, 3), np.float32), np.empty((_BINS, 3), np.float32)
    bin_count, cost = np.empty(_BINS, np.int64), np.empty(_BINS, np.float32)
    todo = [(0, 0, len(order))]
    used = 1
    while len(todo) > 0:
        node, start, stop = todo.pop()
        bounds[node, :3], bounds[node, 3:] = np.inf, -np.inf
        smallest, largest = np.full(3, np.float32(np.inf)), np.full(3, np.float32(-np.inf))
        for i in range(start, stop):
            for a in range(3):
                lo, hi = low[order[i], a], high[order[i], a]
                bounds[node, a], bounds[node, 3 + a] = min(bounds[node, a], lo), max(bounds[node, 3 + a], hi)
                smallest[a], largest[a] = min(smallest[a], lo + hi), max(largest[a], lo + hi)
        axis = np.argmax(largest - smallest)
        width = largest[axis] - smallest[axis]
        links[node, 0], links[node, 1] = start, stop - start
        if stop - start <= _LEAF or width <= 0:
            continue
        scale = np.float32(_BINS * 0.99999) / width

        bin_low[:], bin_high[:], bin_count[:] = np.inf, -np.inf, 0
        for i in range(start, stop):
            k = int((low[order[i], axis] + high[order[i], axis] - smallest[axis]) * scale)
            bin_count[k] += 1
            for a in range(3):
                bin_low[k, a] = min(bin_low[k, a], low[order[i], a])
                bin_high[k, a] = max(bin_high[k, a], high[order[i], a])
        cost[:] = 0
        for side in range(2):
            lo, hi = np.full(3, np.float32(np.inf)), np.full(3, np.float32(-np.inf))
            count = 0
            for step in range(_BINS - 1):
                k = step if side == 0 else _BINS - 1 - step
                count += bin_count[k]
                for a in range(3):
                    lo[a], hi[a] = min(lo[a], bin_low[k, a]), max(hi[a], bin_high[k, a])
                x, y, z = hi[0] - lo[0], hi[1] - lo[1], hi[2] - lo[2]
                if count > 0:
                    cost[k if side == 0 else k - 1] += count * (x * y + y * z + z * x)
        best = np.argmin(cost[: _BINS - 1])

        # The first and the last bin are never empty, so neither side is.
        i, j = start, stop - 1
        while i <= j:
            if int((low[order[i], axis] + high[order[i], axis] - smallest[axis]) * scale) <= best:
                i += 1
            else:
                order[i], order[j] = order[j], order[i]
                j -= 1
        links[node, 0], links[node, 1] = used, 0
        todo.append((used, start, i))
        todo.append((used + 1, i, stop))
        used += 2
    return used


@inline
def _enter(bounds, node, ox, oy, oz, ix, iy, iz, far):  # type: ignore[no-untyped-def]
    """Return the distance at which a ray enters the box of a node; infinity if it misses it before `far`.

    Origin and inverse direction come as numbers: read from arrays they would be read anew at every node.
    """
    box = bounds[node]
    x0, x1 = (box[0] - ox) * ix, (box[3] - ox) * ix
    y0, y1 = (box[1] - oy) * iy, (box[4] - oy) * iy
    z0, z1 = (box[2] - oz) * iz, (box[5] - oz) * iz
    near = max(max(min(x0, x1), min(y0, y1)), max(min(z0, z1), np.float32(0.0)))
    far = min(min(max(x0, x1), max(y0, y1)), min(max(z0, z1), far))
    return near if near <= far else np.float32(np.inf)


@inline
def _inverse(x):  # type: ignore[no-untyped-def]
    return np.float32(1.0) / (x if x != 0 else np.float32(1e-20))


@inline
def _intersect(triangle, origin, ray):  # type: ignore[no-untyped-def]
    """Compute the distance of the intersection of a ray and a triangle, or infinity (Möller-Trumbore)."""
    ax, ay, az = triangle[1, 0], triangle[1, 1], triangle[1, 2]
    bx, by, bz = triangle[2, 0], triangle[2, 1], triangle[2, 2]
    px, py, pz = ray[1] * bz - ray[2] * by, ray[2] * bx - ray[0] * bz, ray[0] * by - ray[1] * bx
    det = ax * px + ay * py + az * pz
    if det == 0:
        return np.float32(np.inf)
    inv = np.float32(1.0) / det
    tx, ty, tz = origin[0] - triangle[0, 0], origin[1] - triangle[0, 1], origin[2] - triangle[0, 2]
    u = (tx * px + ty * py + tz * pz) * inv
    # A small tolerance: no ray may pass between two triangles that share an edge.
    if u < -1e-5 or u > 1.00001:
        return np.float32(np.inf)
    qx, qy, qz = ty * az - tz * ay, tz * ax - tx * az, tx * ay - ty * ax
    v = (ray[0] * qx + ray[1] * qy + ray[2] * qz) * inv
    if v < -1e-5 or u + v > 1.00001:
        return np.float32(np.inf)
    t = (bx * qx + by * qy + bz * qz) * inv
    return t if t > 0 else np.float32(np.inf)


@inline
def _cosine(triangle, ray):  # type: ignore[no-untyped-def]
    """Compute the absolute cosine between a ray and the normal of a triangle."""
    a, b = triangle[1], triangle[2]
    nx, ny, nz = a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
    length = (nx * nx + ny * ny + nz * nz) * (ray[0] * ray[0] + ray[1] * ray[1] + ray[2] * ray[2])
    return abs(nx * ray[0] + ny * ray[1] + nz * ray[2]) / np.sqrt(length)


@kernel
def _cast(start, stop, origins, rays, triangles, bounds, links, depth, hit, slant):  # type: ignore[no-untyped-def]
    """Find the nearest triangle of rays [start, stop); see `cast`."""
    stack_node, stack_near = np.empty(256, np.int32), np.empty(256, np.float32)
    for r in range(start, stop):
        origin, ray = origins[r], rays[r]
        ox, oy, oz = origin[0], origin[1], origin[2]
        ix, iy, iz = _inverse(ray[0]), _inverse(ray[1]), _inverse(ray[2])
        best, which = np.float32(np.inf), -1
        stack_node[0], stack_near[0] = 0, _enter(bounds, 0, ox, oy, oz, ix, iy, iz, best)
        top = 1
        while top > 0:
            top -= 1
            if stack_near[top] >= best:
                continue
            node = stack_node[top]
            first, count = links[node, 0], links[node, 1]
            for i in range(first, first + count):
                t = _intersect(triangles[i], origin, ray)
                if t < best:
                    best, which = t, i
            if count == 0:
                left = _enter(bounds, first, ox, oy, oz, ix, iy, iz, best)
                right = _enter(bounds, first + 1, ox, oy, oz, ix, iy, iz, best)
                nearer, near, farther, far = first, left, first + 1, right
                if left > right:
                    nearer, near, farther, far = farther, far, nearer, near
                if far < best:
                    stack_node[top], stack_near[top] = farther, far
                    top += 1
                if near < best:
                    stack_node[top], stack_near[top] = nearer, near
                    top += 1
        depth[r], hit[r], slant[r] = best, which, 0
        if which >= 0:
            slant[r] = _cosine(triangles[which], ray)


@dataclass(frozen=True)
class Hits:
    """First intersection of each ray."""

    depth: NDArray[np.float32]  # distance in ray lengths; infinity without an intersection
    triangle: NDArray[np.int32]  # index in the tree; -1 without an intersection
    slant: NDArray[np.float32]  # cosine of the angle between the ray and the surface normal


def cast(tree: Tree, origins: NDArray[np.float32], rays: NDArray[np.float32]) -> Hits:
    """Intersect rays with the triangles; origins and rays are (…, 3), results (…)."""
    shape = rays.shape[:-1]
    depth, slant = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)
    hit = np.empty(shape, dtype=np.int32)
    origins, rays = (np.ascontiguousarray(a, dtype=np.float32).reshape(-1, 3) for a in (origins, rays))
    out = depth.reshape(-1), hit.reshape(-1), slant.reshape(-1)
    run_in_chunks(_cast, len(rays), origins, rays, tree.triangles, tree.bounds, tree.links, *out, chunk=16384)
    return Hits(depth, hit, slant)
