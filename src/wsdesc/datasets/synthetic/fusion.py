"""Fuse depth images to points with a truncated signed distance volume.

The volume is a sparse grid of blocks of 4³ voxels, which exist only near measured surfaces.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats, cell_keys
from wsdesc.core.kernels import inline, kernel, run_in_chunks
from wsdesc.datasets.synthetic.camera import Camera

_SIDE = 4  # voxels along a block's edge
_CELLS = _SIDE**3
_EDGES = np.array([[e >> 2, e >> 1 & 1, e & 1] for e in range(1, 8)], dtype=np.float32)


@kernel
def _collect(images, across, down, centres, rays, surface):  # type: ignore[no-untyped-def]
    """Collect the rays of all pixels with a depth, and their surface points: (N, 3) each."""
    frames, height, width = images.shape
    n = 0
    for f in range(frames):
        for i in range(height):
            for j in range(width):
                depth = images[f, i, j]
                if depth > 0:
                    for a in range(3):
                        rays[n, a] = across[f, j, a] + down[f, i, a]
                        surface[n, a] = rays[n, a] * depth + centres[f, a]
                    n += 1


@kernel
def _mark(rays, surface, low, band, scale, index):  # type: ignore[no-untyped-def]
    """Set `index` to 0 at the blocks of the surface and of the band in front of and behind it."""
    for n in range(len(surface)):
        for step in range(-1, 2):
            offset = np.float32(step) * band
            x = int((surface[n, 0] + offset * rays[n, 0] - low[0]) * scale)
            y = int((surface[n, 1] + offset * rays[n, 1] - low[1]) * scale)
            z = int((surface[n, 2] + offset * rays[n, 2] - low[2]) * scale)
            index[x, y, z] = 0


@inline
def _depth_at(image, u, v):  # type: ignore[no-untyped-def]
    """Interpolate the depth of four pixels of one surface, or take the nearest pixel; 0 if unknown."""
    height, width = image.shape
    i, j = int(v), int(u)
    if u < 0 or v < 0 or i > height - 2 or j > width - 2:
        return np.float32(0.0)
    a, b, c, d = image[i, j], image[i, j + 1], image[i + 1, j], image[i + 1, j + 1]
    fu, fv = np.float32(u - j), np.float32(v - i)
    low, high = min(min(a, b), min(c, d)), max(max(a, b), max(c, d))
    if low > 0 and high - low < np.float32(0.06) * low:
        one = np.float32(1.0)
        return (one - fv) * ((one - fu) * a + fu * b) + fv * ((one - fu) * c + fu * d)
    return image[i + (fv > 0.5), j + (fu > 0.5)]


@inline
def _out_of_view(p, x, y, z, reach, focal, left, top, width, height):  # type: ignore[no-untyped-def]
    """Return whether the ball of radius `reach` about (x, y, z) is outside the view frustum."""
    px = p[0, 0] * x + p[0, 1] * y + p[0, 2] * z + p[0, 3]
    py = p[1, 0] * x + p[1, 1] * y + p[1, 2] * z + p[1, 3]
    depth = p[2, 0] * x + p[2, 1] * y + p[2, 2] * z + p[2, 3]
    right, bottom = left + width, top + height
    return (
        depth < -reach
        or focal * px - left * depth < -reach * np.hypot(focal, left)
        or right * depth - focal * px < -reach * np.hypot(focal, right)
        or focal * py - top * depth < -reach * np.hypot(focal, top)
        or bottom * depth - focal * py < -reach * np.hypot(focal, bottom)
    )


@inline
def _project(p, x, y, z, focal, left, top, u, v, depth):  # type: ignore[no-untyped-def]
    """Compute pixels and depths of a block's voxels, in one loop that is vectorized."""
    ax, ay, az, a = p[0, 0], p[0, 1], p[0, 2], p[0, 3]
    bx, by, bz, b = p[1, 0], p[1, 1], p[1, 2], p[1, 3]
    cx, cy, cz, c = p[2, 0], p[2, 1], p[2, 2], p[2, 3]
    for k in range(_CELLS):
        depth[k] = cx * x[k] + cy * y[k] + cz * z[k] + c
        scale = focal / depth[k]
        u[k] = (ax * x[k] + ay * y[k] + az * z[k] + a) * scale - left
        v[k] = (bx * x[k] + by * y[k] + bz * z[k] + b) * scale - top


@kernel
def _integrate(  # type: ignore[no-untyped-def]
    start, stop, blocks, low, voxel, band, images, poses, shift, focal, value
):
    """Average the truncated distances of all images at the voxels of blocks [start, stop).

    `poses` (F, 3, 4) map the frame of the volume into that of each camera. Voxels seen only once are NaN.
    """
    one, half = np.float32(1.0), np.float32((_SIDE - 1) / 2)
    reach = np.float32(1.05 * 3**0.5) * half * voxel  # radius of a block
    height, width = images.shape[1:]
    total, weight = np.empty(_CELLS, np.float32), np.empty(_CELLS, np.float32)
    times = np.empty(_CELLS, np.int32)
    x, y, z = np.empty(_CELLS, np.float32), np.empty(_CELLS, np.float32), np.empty(_CELLS, np.float32)
    u, v, depths = np.empty(_CELLS, np.float32), np.empty(_CELLS, np.float32), np.empty(_CELLS, np.float32)
    for b in range(start, stop):
        x0 = np.float32(blocks[b, 0] * _SIDE)
        y0 = np.float32(blocks[b, 1] * _SIDE)
        z0 = np.float32(blocks[b, 2] * _SIDE)
        centre = low[0] + voxel * (x0 + half), low[1] + voxel * (y0 + half), low[2] + voxel * (z0 + half)
        for c in range(_CELLS):
            x[c] = low[0] + voxel * (x0 + np.float32(c // (_SIDE * _SIDE)))
            y[c] = low[1] + voxel * (y0 + np.float32(c // _SIDE % _SIDE))
            z[c] = low[2] + voxel * (z0 + np.float32(c % _SIDE))
        total[:], weight[:], times[:] = 0, 0, 0
        for f in range(len(images)):
            p = poses[f]
            if _out_of_view(p, *centre, reach, focal, shift[f, 0], shift[f, 1], width, height):
                continue
            _project(p, x, y, z, focal, shift[f, 0], shift[f, 1], u, v, depths)
            for c in range(_CELLS):
                depth = depths[c]
                if depth < 0.1:
                    continue
                measured = _depth_at(images[f], u[c], v[c])
                distance = (measured - depth) / band
                if measured > 0 and distance > -1:
                    near = one / (depth * depth)
                    total[c] += near * min(distance, one)
                    weight[c] += near
                    times[c] += 1
        for c in range(_CELLS):
            value[b, c] = total[c] / weight[c] if times[c] > 1 else np.float32(np.nan)


@kernel
def _cross(start, stop, blocks, index, value, crossing):  # type: ignore[no-untyped-def]
    """Find where the surface crosses the seven edges that start at a voxel, as a share of the edge, or NaN.

    Edge e, from 1 to 7, leads along x, y and z where its bits 4, 2 and 1 are set. These are the edges of six
    tetrahedra per cube. They sample a surface so densely that downsampling misses no voxel.
    """
    nx, ny, nz = index.shape[0] * _SIDE, index.shape[1] * _SIDE, index.shape[2] * _SIDE
    for b in range(start, stop):
        for c in range(_CELLS):
            start_value = value[b, c]
            for e in range(1, 8):
                crossing[b, c, e - 1] = np.nan
                # A jump from free to hidden space is no surface but the border of the volume.
                if not abs(start_value) < 0.98:
                    continue
                x = blocks[b, 0] * _SIDE + c // (_SIDE * _SIDE) + (e >> 2)
                y = blocks[b, 1] * _SIDE + c // _SIDE % _SIDE + (e >> 1 & 1)
                z = blocks[b, 2] * _SIDE + c % _SIDE + (e & 1)
                if x >= nx or y >= ny or z >= nz:
                    continue
                other = index[x // _SIDE, y // _SIDE, z // _SIDE]
                if other < 0:
                    continue
                end_value = value[other, (x % _SIDE * _SIDE + y % _SIDE) * _SIDE + z % _SIDE]
                if abs(end_value) < 0.98 and (start_value > 0) != (end_value > 0):
                    crossing[b, c, e - 1] = start_value / (start_value - end_value)


def fuse(
    images: NDArray[np.float32],
    camera: Camera,
    poses: Floats,
    shift: Floats,
    voxel: float,
    band: float,
) -> NDArray[np.float32]:
    """Fuse depth images to surface points (N, 3).

    Args:
        images: Depth images (F, H, W); 0 means no measurement.
        camera: The sensor.
        poses: Camera poses (F, 4, 4) in the frame of the result.
        shift: Shift (F, 2) of each image, in pixels.
        voxel: Size of a voxel, in metres.
        band: Truncation distance, in metres.
    """
    rays = np.empty((int((images > 0).sum()), 3), dtype=np.float32)
    surface = np.empty_like(rays)
    if len(surface) == 0:
        return surface
    centres = poses[:, :3, 3].astype(np.float32)
    _collect(images, *camera.directions(poses, shift), centres, rays, surface)
    block = _SIDE * voxel
    low, high = (np.array([f(x) for x in surface.T]) for f in (np.min, np.max))
    low -= 2 * np.float32(band)
    shape = np.ceil((high + 2 * band - low) / block).astype(int) + 1
    index = np.full(shape, -1, dtype=np.int32)
    _mark(rays, surface, low, np.float32(band), np.float32(1 / block), index)
    blocks = np.stack(np.unravel_index(np.flatnonzero(index == 0), index.shape), axis=-1)
    index[tuple(blocks.T)] = np.arange(len(blocks), dtype=np.int32)

    value = np.empty((len(blocks), _CELLS), dtype=np.float32)
    crossing = np.empty((len(blocks), _CELLS, 7), dtype=np.float32)
    inverse = np.linalg.inv(poses)[:, :3].astype(np.float32)
    corner = (shift - (camera.width / 2 - 0.5, camera.height / 2 - 0.5)).astype(np.float32)
    optics = inverse, corner, np.float32(camera.focal)
    volume = blocks, low, np.float32(voxel), np.float32(band)
    run_in_chunks(_integrate, len(blocks), *volume, images, *optics, value, chunk=2048)
    run_in_chunks(_cross, len(blocks), blocks, index, value, crossing, chunk=4096)

    b, c, e = np.unravel_index(np.flatnonzero(np.isfinite(crossing)), crossing.shape)
    at = (blocks[b] * _SIDE + np.stack(np.unravel_index(c, (_SIDE,) * 3), axis=-1)).astype(np.float32)
    at += crossing[b, c, e][:, None] * _EDGES[e]
    return np.asarray(low + np.float32(voxel) * at)


def voxel_mean(points: NDArray[np.float32], size: float) -> NDArray[np.float32]:
    """Replace the points in each voxel by their mean."""
    if len(points) == 0:
        return points
    cell = np.floor(points / np.float32(size)).astype(np.int64)
    cell -= cell.min(axis=0)
    key = cell_keys(cell)
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    sums = np.add.reduceat(points[order].astype(np.float64), first)
    return (sums / np.diff(first, append=len(key))[:, None]).astype(np.float32)
