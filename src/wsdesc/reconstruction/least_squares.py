"""Least squares over poses: factors, and their minimization with a robust loss.

A factor measures the pose of one scan in the frame of another, or in the world, which is one more scan with
a fixed pose. All lengths are in model metres.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, diags_array
from scipy.sparse.linalg import spsolve
from scipy.spatial.transform import Rotation

from wsdesc.core.geometry import Floats, inverse

_MIN_STEP = 1e-7  # metres and radians: smaller steps end the minimization


class Factor(NamedTuple):
    """A measured pose of one scan in the frame of another, and how certain each direction is.

    The residual is the twist (v, ω·extent) from the measured pose to the actual one, about `centre` and in
    the target's frame, times `root`. Directions with a zero in `root` are not measured.
    """

    source: int
    target: int
    T_target_source: Floats  # (4, 4) measured
    centre: Floats  # (3,) in the target's frame
    extent: float  # lever arm by which rotations become lengths
    root: Floats  # (6, 6) square root of the information
    outlier: float  # standard deviations at which the factor has lost three quarters of its weight


class Problem:
    """Levenberg–Marquardt minimization over all poses, with the factors as arrays.

    The Geman–McClure loss acts on a whole factor, not on its six components: a factor that contradicts the
    others loses its weight instead of bending the model. A step changes a pose by a twist in the scan's own
    frame: T_world_scan ← T_world_scan · exp(ξ).
    """

    def __init__(self, factors: Sequence[Factor], fixed: NDArray[np.intp], count: int) -> None:
        self.source = np.array([f.source for f in factors])
        self.target = np.array([f.target for f in factors])
        self.T_source_target = np.stack([inverse(f.T_target_source) for f in factors])  # (E, 4, 4) measured
        self.centre = np.stack([f.centre for f in factors])  # (E, 3)
        self.extent = np.array([f.extent for f in factors])  # (E,)
        self.root = np.stack([f.root for f in factors])  # (E, 6, 6)
        self.limit = np.array([f.outlier for f in factors]) ** 2  # (E,) of squared errors
        self.free = np.setdiff1d(np.arange(count), fixed)
        self.index = np.full(count, -1)  # of a scan among the free ones
        self.index[self.free] = np.arange(len(self.free))

    def squared_errors(self, T_world_scan: Floats) -> Floats:
        """Return the squared deviation (E,) of each factor."""
        return np.asarray(np.square(self._residuals(T_world_scan)[0]).sum(axis=1))

    def solve(self, start: Floats, steps: int) -> Floats:
        """Minimize the loss from the poses `start`, and from poses of a wider loss if there are outliers."""
        T, loss = self.minimize(start, self.limit, steps)
        if (self.squared_errors(T) > self.limit).any():
            # If the start satisfies a wrong factor, a graduated loss, which is convex at first, gives better
            # poses; if many factors are wrong, the start often does.
            other, other_loss = self.minimize(self._graduated(start), self.limit, steps)
            T = other if other_loss < loss else T
        return T

    def _graduated(self, T: Floats) -> Floats:
        """Minimize a loss that is convex at first and becomes narrower step by step."""
        scale = float(self.squared_errors(T).max())
        while (scale > self.limit).any():
            T, _ = self.minimize(T, np.maximum(self.limit, scale), steps=2)
            scale /= 2
        return T

    def minimize(self, T: Floats, scale: Floats, steps: int) -> tuple[Floats, float]:
        """Minimize Σ scale·r² / (scale + r²) by at most `steps` steps; return the poses and the loss.

        Args:
            T: (N, 4, 4) poses to start from.
            scale: (E,) squared errors at which a factor has lost three quarters of its weight.
            steps: Largest number of steps.
        """
        damping, loss = 1e-6, _loss(self.squared_errors(T), scale)
        for _ in range(steps if len(self.free) else 0):
            gradient, hessian = self.normal_equations(T, scale)
            improved = False
            while damping < 1e6:
                diagonal = hessian.diagonal()
                damped = csc_array(hessian + diags_array(damping * diagonal + 1e-12 * diagonal.max()))
                step = np.asarray(spsolve(damped, -gradient)).reshape(-1, 6)
                T_new = T.copy()
                T_new[self.free] = T[self.free] @ _exp(step)
                new_loss = _loss(self.squared_errors(T_new), scale)
                if new_loss <= loss:
                    T, loss, damping, improved = T_new, new_loss, max(damping / 10, 1e-9), True
                    break
                damping *= 10
            if not improved or np.abs(step).max() < _MIN_STEP:
                break
        T[:, :3, :3] = Rotation.from_matrix(T[:, :3, :3]).as_matrix()  # remove rounding errors
        return T, loss

    def _residuals(self, T_world_scan: Floats) -> tuple[Floats, Floats, Floats]:
        """Return residuals (E, 6), error transformations (E, 4, 4) and their rotation vectors (E, 3)."""
        T_target_source = inverse(T_world_scan[self.target]) @ T_world_scan[self.source]
        E = T_target_source @ self.T_source_target  # the identity if the factor is satisfied
        rotation = Rotation.from_matrix(E[:, :3, :3]).as_rotvec()
        translation = np.einsum("eij,ej->ei", E[:, :3, :3], self.centre) + E[:, :3, 3] - self.centre
        twist = np.hstack([translation, rotation * self.extent[:, None]])
        return np.einsum("eij,ej->ei", self.root, twist), E, rotation

    def normal_equations(self, T: Floats, scale: Floats) -> tuple[Floats, csc_array]:
        """Return gradient (6F,) and Gauss–Newton Hessian (6F, 6F) of the steps of the F free poses."""
        r, E, rotation = self._residuals(T)
        weight = np.square(scale / (scale + np.square(r).sum(axis=1)))  # (E,)
        R_E = E[:, :3, :3]
        centre = np.einsum("eij,ej->ei", R_E, self.centre) + E[:, :3, 3]  # after E
        # E → exp(−η) E for a step η of the target; E → E · exp(Ad ξ) for a step ξ of the source.
        by_target = np.zeros((len(E), 6, 6))
        by_target[:, :3, :3] = -np.eye(3)
        by_target[:, :3, 3:] = cross_matrices(centre)
        by_target[:, 3:, 3:] = -_log_derivative(rotation) * self.extent[:, None, None]
        by_step = np.zeros((len(E), 6, 6))
        by_step[:, :3, :3] = R_E
        by_step[:, :3, 3:] = -R_E @ cross_matrices(self.centre)
        by_step[:, 3:, 3:] = _log_derivative(-rotation) * self.extent[:, None, None]
        by_source = by_step @ adjoints(inverse(self.T_source_target))
        jacobians = [(self.root @ by_source, self.index[self.source]),
                     (self.root @ by_target, self.index[self.target])]  # fmt: skip

        size = 6 * len(self.free)
        gradient, rows, columns, values = np.zeros((len(self.free), 6)), [], [], []
        for J, index in jacobians:
            free = index >= 0
            np.add.at(gradient, index[free], np.einsum("e,eji,ej->ei", weight, J, r)[free])
            for other, other_index in jacobians:
                both = free & (other_index >= 0)
                block = np.einsum("e,eki,ekj->eij", weight, J, other)[both]  # (B, 6, 6)
                rows.append(np.broadcast_to(6 * index[both][:, None, None] + _SIX[:, None], block.shape))
                columns.append(np.broadcast_to(6 * other_index[both][:, None, None] + _SIX, block.shape))
                values.append(block)
        flat = [np.concatenate([part.ravel() for part in parts]) for parts in (values, rows, columns)]
        hessian = csc_array(coo_array((flat[0], (flat[1], flat[2])), shape=(size, size)))
        return gradient.ravel(), hessian


_SIX = np.arange(6)


def _loss(squared_errors: Floats, scale: Floats) -> float:
    return float((scale * squared_errors / (scale + squared_errors)).sum())


def cross_matrices(x: Floats) -> Floats:
    """Return the matrices (E, 3, 3) of the cross product with x (E, 3)."""
    matrix = np.zeros((len(x), 3, 3))
    matrix[:, 0, 1], matrix[:, 0, 2], matrix[:, 1, 2] = -x[:, 2], x[:, 1], -x[:, 0]
    return matrix - matrix.transpose(0, 2, 1)


def _log_derivative(rotation: Floats) -> Floats:
    """Return the derivative (E, 3, 3) of rotation vectors (E, 3) by a small rotation applied after them."""
    angle = np.linalg.norm(rotation, axis=1)
    half = np.maximum(angle / 2, 1e-4)
    factor = (1 - half / np.tan(half)) / np.square(2 * half)  # 1 / 12 at zero
    K = cross_matrices(rotation)
    return np.asarray(np.eye(3) - K / 2 + factor[:, None, None] * (K @ K))


def adjoints(T_b_a: Floats) -> Floats:
    """Return matrices (E, 6, 6) that express a twist (v, ω) of frame a in frame b."""
    R = T_b_a[:, :3, :3]
    matrix = np.zeros((len(R), 6, 6))
    matrix[:, :3, :3] = matrix[:, 3:, 3:] = R
    matrix[:, :3, 3:] = cross_matrices(T_b_a[:, :3, 3]) @ R
    return matrix


def _exp(twist: Floats) -> Floats:
    """Return transformations (N, 4, 4): rotation ω, then translation v, which suffices for small steps."""
    T = np.tile(np.eye(4), (len(twist), 1, 1))
    T[:, :3, :3] = Rotation.from_rotvec(twist[:, 3:]).as_matrix()
    T[:, :3, 3] = twist[:, :3]
    return T
