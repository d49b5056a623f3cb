"""Eigenvalues of a symmetric 3 × 3 matrix within triton kernels, by Jacobi rotations as in `core.eigen`."""

from __future__ import annotations

import triton
import triton.language as tl

SWEEPS = tl.constexpr(6)  # over the three pairs of axes; the error falls quadratically


@triton.jit
def _rotate(ii, jj, ij, ik, jk, ix, iy, iz, jx, jy, jz):
    """Apply the rotation that makes the entry (i, j) of the matrix 0, to it and to two axes."""
    safe = tl.where(ij == 0, 1.0, ij)
    theta = (jj - ii) / (2 * safe)
    t = 1 / (tl.abs(theta) + tl.sqrt(theta * theta + 1))
    t = tl.where(ij == 0, 0.0, tl.where(theta < 0, -t, t))
    c = 1 / tl.sqrt(t * t + 1)
    s = t * c
    return (
        ii - t * ij, jj + t * ij, ij * 0, c * ik - s * jk, s * ik + c * jk,
        c * ix - s * jx, c * iy - s * jy, c * iz - s * jz, s * ix + c * jx, s * iy + c * jy, s * iz + c * jz,
    )  # fmt: skip


@triton.jit
def smallest_axis(xx, yy, zz, xy, xz, yz):
    """Return the eigenvalues of a matrix, ascending, and the eigenvector of the smallest, float64."""
    zero = xx * 0
    one = zero + 1
    ax, ay, az, bx, by, bz, cx, cy, cz = one, zero, zero, zero, one, zero, zero, zero, one
    for _ in range(SWEEPS):
        xx, yy, xy, xz, yz, ax, ay, az, bx, by, bz = _rotate(xx, yy, xy, xz, yz, ax, ay, az, bx, by, bz)
        xx, zz, xz, xy, yz, ax, ay, az, cx, cy, cz = _rotate(xx, zz, xz, xy, yz, ax, ay, az, cx, cy, cz)
        yy, zz, yz, xy, xz, bx, by, bz, cx, cy, cz = _rotate(yy, zz, yz, xy, xz, bx, by, bz, cx, cy, cz)
    low, high = tl.minimum(tl.minimum(xx, yy), zz), tl.maximum(tl.maximum(xx, yy), zz)
    middle = tl.maximum(tl.minimum(xx, yy), tl.minimum(tl.maximum(xx, yy), zz))
    first, second = xx == low, yy == low
    nx = tl.where(first, ax, tl.where(second, bx, cx))
    ny = tl.where(first, ay, tl.where(second, by, cy))
    nz = tl.where(first, az, tl.where(second, bz, cz))
    return low, middle, high, nx, ny, nz
