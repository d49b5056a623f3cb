"""Parts of triton kernels that iterate poses: programs wait for each other, sums are solved, poses moved.

Sums over contact pairs include the products of (1, point, …): total weight, mean and second moments.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

_WARPS = 8  # warps of a program that waits for others


@cache
def waiting_launch(device: torch.device) -> tuple[tuple[int], dict[str, Any]]:
    """Return grid and options of a launch whose programs wait for each other, and so must run at once.

    One program fits into a multiprocessor with any number of registers. A cooperative launch begins when
    all of them have room, even if other processes use the GPU.
    """
    if device.type != "cuda":  # the interpreter runs one program after the other
        return (1,), {}
    from triton.backends.nvidia.compiler import CUDAOptions

    count = int(torch.cuda.get_device_properties(device).multi_processor_count)
    has_option = hasattr(CUDAOptions, "launch_cooperative_grid")  # since triton 3.3
    return (count,), {"num_warps": _WARPS} | ({"launch_cooperative_grid": True} if has_option else {})


@triton.jit
def load_shared(address):
    """Load a value that another program of the launch may have stored, past the cache of this program."""
    return tl.load(address, cache_modifier=".cg")


@triton.jit
def wait_for_all(counter, goal):
    """Wait until all programs have called this, so that each one can load the values of the others."""
    tl.debug_barrier()
    arrived = tl.atomic_add(counter, 1) + 1
    while arrived < goal:
        arrived = tl.atomic_add(counter, 0)
    tl.debug_barrier()


@triton.jit
def sum_rows(rows, count, sums, NUMBERS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the rows (count, NUMBERS) that all programs stored, and store the sums (NUMBERS,)."""
    column, row = tl.arange(0, BLOCK), tl.arange(0, 8)
    total = tl.zeros((8, BLOCK), tl.float64)
    for first in range(0, count, 8):
        exists = (first + row < count)[:, None] & (column < NUMBERS)[None, :]
        at = rows + (first + row)[:, None] * NUMBERS + column[None, :]
        total += tl.load(at, exists, 0.0, cache_modifier=".cg")
    tl.store(sums + column, tl.sum(total, 0), column < NUMBERS)
    tl.debug_barrier()


@triton.jit
def centre_of(points, SIDE: tl.constexpr):
    """Return the total weight, the mean point (three numbers), the mean square and the extent of points.

    `points` is the address of the sums of products (SIDE, SIDE) of (1, point, …). The last result is False
    if there is no weight or no extent.
    """
    weight = load_shared(points)
    mass = tl.where(weight > 0, weight, 1.0)
    x, y, z = load_shared(points + 1) / mass, load_shared(points + 2) / mass, load_shared(points + 3) / mass
    square = (
        load_shared(points + SIDE + 1)
        + load_shared(points + 2 * SIDE + 2)
        + load_shared(points + 3 * SIDE + 3)
    )
    square = square / mass
    variance = square - (x * x + y * y + z * z)
    spread = (weight > 0) & (variance > 0)
    return mass, x, y, z, square, tl.sqrt(tl.where(spread, variance, 1.0)), spread


@triton.jit
def skew_of_centre(points, mass):
    """Return the matrix (8, 8) of − centre × in the rows of rotations (3 … 5) and the columns of shifts."""
    i, j = tl.arange(0, 8)[:, None], tl.arange(0, 8)[None, :]
    lower = (i >= 3) & (i < 6) & (j < 3) & (i - 3 != j)
    centre = tl.load(points + 1 + (9 - i - j) % 3, lower, 0.0, cache_modifier=".cg") / mass
    return tl.where((j - i + 6) % 3 == 1, -centre, centre)


@triton.jit
def pick(row, vector, k):
    """Return the number k of a vector whose numbers are at `row`."""
    return tl.sum(tl.where(row == k, vector, 0.0), 0)


@triton.jit
def move_pose(T, T_back, row, twist, factor, cx, cy, cz, extent):
    """Move the pose at T, a similarity, and its inverse at T_back.

    The first half of the twist is a shift. The second half is a rotation about the centre, in units of the
    extent. The pose also grows by the factor.
    """
    x, y, z = pick(row, twist, 3) / extent, pick(row, twist, 4) / extent, pick(row, twist, 5) / extent
    angle = tl.sqrt(x * x + y * y + z * z)
    safe = tl.where(angle > 0, angle, 1.0)
    a = tl.where(angle > 0, tl.sin(safe) / safe, 1.0)
    half = tl.where(angle > 0, tl.sin(safe / 2) / (safe / 2), 1.0)
    b = half * half / 2
    r0, r1, r2 = 1 - b * (y * y + z * z), b * x * y - a * z, b * x * z + a * y
    r3, r4, r5 = b * x * y + a * z, 1 - b * (x * x + z * z), b * y * z - a * x
    r6, r7, r8 = b * x * z - a * y, b * y * z + a * x, 1 - b * (x * x + y * y)
    a0, a1, a2, px = _times(T, factor * r0, factor * r1, factor * r2)
    b0, b1, b2, py = _times(T, factor * r3, factor * r4, factor * r5)
    c0, c1, c2, pz = _times(T, factor * r6, factor * r7, factor * r8)
    px += cx + pick(row, twist, 0) - factor * (r0 * cx + r1 * cy + r2 * cz)
    py += cy + pick(row, twist, 1) - factor * (r3 * cx + r4 * cy + r5 * cz)
    pz += cz + pick(row, twist, 2) - factor * (r6 * cx + r7 * cy + r8 * cz)
    tl.debug_barrier()  # all threads have read the pose before one of them writes
    store_pose(T, a0, a1, a2, px, b0, b1, b2, py, c0, c1, c2, pz)
    square = a0 * a0 + b0 * b0 + c0 * c0  # of the factor of the whole similarity
    a0, a1, a2, b0, b1, b2 = a0 / square, a1 / square, a2 / square, b0 / square, b1 / square, b2 / square
    c0, c1, c2 = c0 / square, c1 / square, c2 / square
    qx, qy, qz = a0 * px + b0 * py + c0 * pz, a1 * px + b1 * py + c1 * pz, a2 * px + b2 * py + c2 * pz
    store_pose(T_back, a0, b0, c0, -qx, a1, b1, c1, -qy, a2, b2, c2, -qz)


@triton.jit
def _times(T, a, b, c):
    """Return the row (a, b, c) times the first three rows of the matrix at T: four numbers."""
    return (
        a * load_shared(T) + b * load_shared(T + 4) + c * load_shared(T + 8),
        a * load_shared(T + 1) + b * load_shared(T + 5) + c * load_shared(T + 9),
        a * load_shared(T + 2) + b * load_shared(T + 6) + c * load_shared(T + 10),
        a * load_shared(T + 3) + b * load_shared(T + 7) + c * load_shared(T + 11),
    )


@triton.jit
def store_pose(T, a, b, c, x, d, e, f, y, g, h, i, z):
    """Store the first three rows of a pose (4, 4), one after the other."""
    tl.store(T, a)
    tl.store(T + 1, b)
    tl.store(T + 2, c)
    tl.store(T + 3, x)
    tl.store(T + 4, d)
    tl.store(T + 5, e)
    tl.store(T + 6, f)
    tl.store(T + 7, y)
    tl.store(T + 8, g)
    tl.store(T + 9, h)
    tl.store(T + 10, i)
    tl.store(T + 11, z)
