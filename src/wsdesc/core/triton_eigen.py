"""Small matrices within triton kernels, float64: eigenvectors of a symmetric one, nearest rotation."""

from __future__ import annotations

import triton
import triton.language as tl

_SWEEPS = tl.constexpr(6)  # Jacobi sweeps over the three pairs of axes; the error falls quadratically
_TILE_SWEEPS = tl.constexpr(7)  # Jacobi sweeps of a larger matrix


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
def _diagonalise(xx, yy, zz, xy, xz, yz):
    """Return the eigenvalues of a symmetric matrix and three eigenvectors, as `core.eigen`, not sorted."""
    zero = xx * 0
    one = zero + 1
    ax, ay, az, bx, by, bz, cx, cy, cz = one, zero, zero, zero, one, zero, zero, zero, one
    for _ in range(_SWEEPS):
        xx, yy, xy, xz, yz, ax, ay, az, bx, by, bz = _rotate(xx, yy, xy, xz, yz, ax, ay, az, bx, by, bz)
        xx, zz, xz, xy, yz, ax, ay, az, cx, cy, cz = _rotate(xx, zz, xz, xy, yz, ax, ay, az, cx, cy, cz)
        yy, zz, yz, xy, xz, bx, by, bz, cx, cy, cz = _rotate(yy, zz, yz, xy, xz, bx, by, bz, cx, cy, cz)
    return xx, yy, zz, ax, ay, az, bx, by, bz, cx, cy, cz


@triton.jit
def _choose(first, second, ax, ay, az, bx, by, bz, cx, cy, cz):
    """Return one of three vectors: the first, else the second, else the third."""
    return (
        tl.where(first, ax, tl.where(second, bx, cx)),
        tl.where(first, ay, tl.where(second, by, cy)),
        tl.where(first, az, tl.where(second, bz, cz)),
    )


@triton.jit
def smallest_axis(xx, yy, zz, xy, xz, yz):
    """Return the eigenvalues of a symmetric matrix, ascending, and the eigenvector of the smallest."""
    xx, yy, zz, ax, ay, az, bx, by, bz, cx, cy, cz = _diagonalise(xx, yy, zz, xy, xz, yz)
    low, high = tl.minimum(tl.minimum(xx, yy), zz), tl.maximum(tl.maximum(xx, yy), zz)
    middle = tl.maximum(tl.minimum(xx, yy), tl.minimum(tl.maximum(xx, yy), zz))
    x, y, z = _choose(xx == low, yy == low, ax, ay, az, bx, by, bz, cx, cy, cz)
    return low, middle, high, x, y, z


@triton.jit
def _unit(x, y, z):
    """Return a vector divided by its length, and the length."""
    length = tl.sqrt(x * x + y * y + z * z)
    divisor = tl.where(length > 0, length, 1.0)
    return x / divisor, y / divisor, z / divisor, length


@triton.jit
def nearest_rotation(a, b, c, d, e, f, g, h, i):
    """Return the rotation (rows) with the largest trace of Rᵀ · matrix, and the middle singular value.

    The matrix has the rows (a, b, c), (d, e, f), (g, h, i). A small multiple of the identity decides
    rotations that it does not determine.
    """
    size = tl.sqrt(a * a + b * b + c * c + d * d + e * e + f * f + g * g + h * h + i * i)
    bias = 1e-13 * tl.where(size > 0, size, 1.0)
    a, e, i = a + bias, e + bias, i + bias
    xx, yy, zz, px, py, pz, qx, qy, qz, rx, ry, rz = _diagonalise(
        a * a + d * d + g * g, b * b + e * e + h * h, c * c + f * f + i * i,
        a * b + d * e + g * h, a * c + d * f + g * i, b * c + e * f + h * i,
    )  # fmt: skip
    low, high = tl.minimum(tl.minimum(xx, yy), zz), tl.maximum(tl.maximum(xx, yy), zz)
    is_low = xx == low
    wx, wy, wz = _choose(is_low, yy == low, px, py, pz, qx, qy, qz, rx, ry, rz)
    # Of equal eigenvalues, the vector of the largest is another one than that of the smallest.
    ux, uy, uz = _choose((xx == high) & (is_low == 0), yy == high, px, py, pz, qx, qy, qz, rx, ry, rz)
    vx, vy, vz = wy * uz - wz * uy, wz * ux - wx * uz, wx * uy - wy * ux
    # u, v, w are the axes on the right side; their images, made orthonormal, are those on the left side.
    kx, ky, kz, _first = _unit(a * ux + b * uy + c * uz, d * ux + e * uy + f * uz, g * ux + h * uy + i * uz)
    lx, ly, lz = a * vx + b * vy + c * vz, d * vx + e * vy + f * vz, g * vx + h * vy + i * vz
    along = lx * kx + ly * ky + lz * kz
    lx, ly, lz, middle = _unit(lx - along * kx, ly - along * ky, lz - along * kz)
    mx, my, mz = ky * lz - kz * ly, kz * lx - kx * lz, kx * ly - ky * lx
    wx, wy, wz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
    return (
        kx * ux + lx * vx + mx * wx, kx * uy + lx * vy + mx * wy, kx * uz + lx * vz + mx * wz,
        ky * ux + ly * vx + my * wx, ky * uy + ly * vy + my * wy, ky * uz + ly * vz + my * wz,
        kz * ux + lz * vx + mz * wx, kz * uy + lz * vy + mz * wy, kz * uz + lz * vz + mz * wz,
        middle,
    )  # fmt: skip


@triton.jit
def multiply_tiles(a, b):
    """Multiply matrices (8, 8)."""
    return tl.sum(a[:, :, None] * b[None, :, :], 1)


@triton.jit
def diagonalise_tile(matrix, SIZE: tl.constexpr):
    """Return the eigenvalues (8,) of a symmetric matrix (8, 8) and its eigenvectors (8, 8), as columns.

    Only the first SIZE rows and columns are not 0; SIZE is even. Each step makes SIZE / 2 entries 0 at once,
    in the order of a tournament in which each index meets each other one.
    """
    own = tl.arange(0, 8)
    i, j = own[:, None], own[None, :]
    LAST: tl.constexpr = SIZE - 1
    vectors = tl.where(i == j, 1.0, 0.0).to(tl.float64)
    for step in range(_TILE_SWEEPS * LAST):
        game = step % LAST
        partner = (2 * game - own + 2 * SIZE * LAST) % LAST
        partner = tl.where(partner == own, LAST, partner)
        partner = tl.where(own == LAST, game, tl.where(own > LAST, own, partner))
        at = (partner[:, None] == j) & (i != j)
        diagonal = tl.where(i == j, matrix, 0.0)
        ij = tl.sum(tl.where(at, matrix, 0.0), 1)
        jj = tl.sum(tl.where(at, tl.sum(diagonal, 0)[None, :], 0.0), 1)
        safe = tl.where(ij == 0, 1.0, ij)
        theta = (jj - tl.sum(diagonal, 1)) / (2 * safe)
        t = 1 / (tl.abs(theta) + tl.sqrt(theta * theta + 1))
        negative = (theta < 0) | ((theta == 0) & (own > partner))
        t = tl.where(ij == 0, 0.0, tl.where(negative, -t, t))
        c = 1 / tl.sqrt(t * t + 1)
        rotation = tl.where(i == j, c[:, None], 0.0) - tl.where(at, (t * c)[:, None], 0.0)
        matrix = multiply_tiles(multiply_tiles(rotation, matrix), tl.trans(rotation))
        vectors = multiply_tiles(vectors, tl.trans(rotation))
    return tl.sum(tl.where(i == j, matrix, 0.0), 0), vectors


@triton.jit
def solve_tile(matrix, right, weak, SIZE: tl.constexpr):
    """Solve a symmetric system (8, 8) for the right side (8,), without directions of small eigenvalues.

    Eigenvalues below `weak` times the largest count as 0, and so do negative ones. Only the first SIZE rows
    and columns are not 0. Most matrices are far from that limit. They are inverted by elimination, which
    takes a tenth of the time.
    """
    own = tl.arange(0, 8)
    i, j = own[:, None], own[None, :]
    inverse, regular = matrix, 1
    for k in tl.static_range(SIZE):
        row = tl.sum(tl.where(i == k, inverse, 0.0), 0)
        column = tl.sum(tl.where(j == k, inverse, 0.0), 1)
        pivot = tl.sum(tl.where(own == k, row, 0.0), 0)
        regular = regular & (pivot > 0)
        pivot = tl.where(pivot > 0, pivot, 1.0)
        rest = inverse - column[:, None] * row[None, :] / pivot
        edge = tl.where(i == k, row[None, :], -column[:, None]) / pivot
        inverse = tl.where((i == k) & (j == k), 1 / pivot, tl.where((i == k) | (j == k), edge, rest))
    trace = tl.sum(tl.sum(tl.where(i == j, matrix, 0.0), 0), 0)
    inverse_trace = tl.sum(tl.sum(tl.where(i == j, inverse, 0.0), 0), 0)
    solution = tl.sum(inverse * right[None, :], 1)
    # The smallest eigenvalue is at least 1 / trace of the inverse, the largest at most the trace.
    if (regular == 0) | (inverse_trace * trace * weak >= 1) | (inverse_trace <= 0):
        values, vectors = diagonalise_tile(matrix, SIZE + SIZE % 2)
        certain = (values > weak * tl.max(values, 0)) & (values > 0)
        share = tl.sum(vectors * right[:, None], 0) / tl.where(certain, values, 1.0)
        solution = tl.sum(vectors * tl.where(certain, share, 0.0)[None, :], 1)
    return solution
