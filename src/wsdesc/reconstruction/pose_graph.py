"""Pose graph: poses of all scans that satisfy the edges best, by robust least squares.

Each edge measures the relative pose of two scans. Its weight in each direction is how well the overlap
determines that direction. The Geman–McClure loss acts on a whole edge, not on its six components: an edge
that contradicts the others loses its weight instead of bending the model.

All lengths are in model metres. The frame of a scan has its origin at the scan's centre.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import spsolve
from scipy.spatial.transform import Rotation

from wsdesc.alignment.information import Information
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse

# Scans are bent by some millimetres, which more points do not average out.
INDEPENDENT = 100  # points of an overlap whose errors count as independent
MIN_DEVIATION = 0.1 * INDOOR_RESOLUTION  # metres: least standard deviation of an edge in any direction
MIN_EIGENVALUE = 1e-3  # of the information: smaller ones count as undetermined directions
OUTLIER = 10.0  # standard deviations at which an edge has lost three quarters of its weight
_MAX_STEPS = 60  # of the last minimization
_MIN_STEP = 1e-9  # metres and radians: smaller steps end the minimization


class Edge(NamedTuple):
    """A registered pair: the pose of one scan in the frame of another."""

    source: int
    target: int
    T_target_source: Floats  # (4, 4)
    confidence: float
    information: Information  # in the target's frame
    rmse: float  # point to plane, in the overlap
    ambiguous: bool = False  # another candidate of the pair is also plausible


class PoseGraph(NamedTuple):
    """Poses of all scans."""

    T_world_scan: Floats  # (N, 4, 4); the first scan of each component has the identity
    components: list[list[int]]  # scans that edges connect, largest first, ascending inside
    deviations: Floats  # (E,) distance of each edge from the poses, in standard deviations


def solve(count: int, edges: Sequence[Edge]) -> PoseGraph:
    """Find the poses of `count` scans that satisfy the edges best."""
    components = connected_scans(count, edges)
    start = poses_along_tree(count, edges, [scans[0] for scans in components])
    if not edges:
        return PoseGraph(start, components, np.zeros(0))
    problem = _Problem(edges, fixed=np.array([scans[0] for scans in components]), count=count)
    T, loss = problem.minimize(start, OUTLIER**2, _MAX_STEPS)
    if problem.squared_errors(T).max() > OUTLIER**2:
        # The start follows the most confident edges. If one of these is wrong, a graduated loss, which is
        # convex at first, gives better poses; if many edges are wrong, the start often does.
        other, other_loss = problem.minimize(problem.graduated(start), OUTLIER**2, _MAX_STEPS)
        T = other if other_loss < loss else T
    return PoseGraph(T, components, np.sqrt(problem.squared_errors(T)))


def connected_scans(count: int, edges: Sequence[Edge]) -> list[list[int]]:
    """Find the connected components of scans: the largest first, then by the first scan."""
    ends = np.array([(e.source, e.target) for e in edges], dtype=np.intp).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count))
    number, label = connected_components(graph, directed=False)
    components = [np.flatnonzero(label == component).tolist() for component in range(number)]
    return sorted(components, key=lambda scans: (-len(scans), scans[0]))


def poses_along_tree(count: int, edges: Sequence[Edge], roots: list[int]) -> Floats:
    """Chain poses (N, 4, 4) from the roots along the spanning tree of the most confident edges."""
    edges_of: list[list[int]] = [[] for _ in range(count)]
    for k, edge in enumerate(edges):
        edges_of[edge.source].append(k)
        edges_of[edge.target].append(k)
    T_world_scan = np.tile(np.eye(4), (count, 1, 1))
    for root in roots:
        reached = {root}
        queue = [(-edges[k].confidence, k) for k in edges_of[root]]
        heapq.heapify(queue)
        while queue:
            edge = edges[heapq.heappop(queue)[1]]
            new = [scan for scan in (edge.source, edge.target) if scan not in reached]
            if not new:
                continue
            forward = new[0] == edge.source
            T_old_new = edge.T_target_source if forward else inverse(edge.T_target_source)
            T_world_scan[new[0]] = T_world_scan[edge.target if forward else edge.source] @ T_old_new
            reached.add(new[0])
            for k in edges_of[new[0]]:
                heapq.heappush(queue, (-edges[k].confidence, k))
    return T_world_scan


class _Problem:
    """Levenberg–Marquardt minimization over all poses, with the edges as arrays.

    The residual of an edge is the twist (v, ω·extent) from its measured pose to the poses, about the
    overlap's centre and in the target's frame, times the square root of its information. A step changes a
    pose by a twist in the scan's own frame: T_world_scan ← T_world_scan · exp(ξ).
    """

    def __init__(self, edges: Sequence[Edge], fixed: NDArray[np.intp], count: int) -> None:
        self.source = np.array([e.source for e in edges])
        self.target = np.array([e.target for e in edges])
        self.T_source_target = np.stack([inverse(e.T_target_source) for e in edges])  # (E, 4, 4) measured
        self.centre = np.stack([e.information.centre for e in edges])  # (E, 3)
        self.extent = np.array([max(e.information.extent, MIN_DEVIATION) for e in edges])  # (E,)
        self.root = np.stack([_root_information(e) for e in edges])  # (E, 6, 6)
        self.free = np.setdiff1d(np.arange(count), fixed)
        self.index = np.full(count, -1)  # of a scan among the free ones
        self.index[self.free] = np.arange(len(self.free))

    def squared_errors(self, T_world_scan: Floats) -> Floats:
        """Return the squared deviation (E,) of each edge."""
        return np.asarray(np.square(self._residuals(T_world_scan)[0]).sum(axis=1))

    def graduated(self, T: Floats) -> Floats:
        """Minimize a loss that is convex at first and becomes narrower step by step."""
        scale = float(self.squared_errors(T).max())
        while scale > OUTLIER**2:
            T, _ = self.minimize(T, scale, steps=2)
            scale /= 2
        return T

    def minimize(self, T: Floats, scale: float, steps: int) -> tuple[Floats, float]:
        """Minimize Σ scale·r² / (scale + r²) by at most `steps` steps; return the poses and the loss."""
        damping, loss = 1e-6, _loss(self.squared_errors(T), scale)
        for _ in range(steps if len(self.free) else 0):
            gradient, hessian = self._normal_equations(T, scale)
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
        E = T_target_source @ self.T_source_target  # the identity if the edge is satisfied
        rotation = Rotation.from_matrix(E[:, :3, :3]).as_rotvec()
        translation = np.einsum("eij,ej->ei", E[:, :3, :3], self.centre) + E[:, :3, 3] - self.centre
        twist = np.hstack([translation, rotation * self.extent[:, None]])
        return np.einsum("eij,ej->ei", self.root, twist), E, rotation

    def _normal_equations(self, T: Floats, scale: float) -> tuple[Floats, csc_array]:
        r, E, rotation = self._residuals(T)
        weight = np.square(scale / (scale + np.square(r).sum(axis=1)))  # (E,)
        R_E = E[:, :3, :3]
        centre = np.einsum("eij,ej->ei", R_E, self.centre) + E[:, :3, 3]  # after E
        # E → exp(−η) E for a step η of the target; E → E · exp(Ad ξ) for a step ξ of the source.
        by_target = np.zeros((len(E), 6, 6))
        by_target[:, :3, :3] = -np.eye(3)
        by_target[:, :3, 3:] = _cross(centre)
        by_target[:, 3:, 3:] = -_log_derivative(rotation) * self.extent[:, None, None]
        by_step = np.zeros((len(E), 6, 6))
        by_step[:, :3, :3] = R_E
        by_step[:, :3, 3:] = -R_E @ _cross(self.centre)
        by_step[:, 3:, 3:] = _log_derivative(-rotation) * self.extent[:, None, None]
        by_source = by_step @ _adjoint(inverse(self.T_source_target))
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


def _root_information(edge: Edge) -> Floats:
    """Return W (6, 6) with WᵀW the inverse covariance of an edge's twist (v, ω·extent)."""
    values, vectors = np.linalg.eigh(edge.information.matrix)
    noise = max(min(edge.rmse, 4 * INDOOR_RESOLUTION), MIN_DEVIATION) ** 2 / INDEPENDENT
    variance = noise / np.maximum(values, MIN_EIGENVALUE) + MIN_DEVIATION**2
    return np.asarray((vectors / np.sqrt(variance)).T)


def _loss(squared_errors: Floats, scale: float) -> float:
    return float((scale * squared_errors / (scale + squared_errors)).sum())


def _cross(x: Floats) -> Floats:
    """Return the matrices (E, 3, 3) of the cross product with x (E, 3)."""
    matrix = np.zeros((len(x), 3, 3))
    matrix[:, 0, 1], matrix[:, 0, 2], matrix[:, 1, 2] = -x[:, 2], x[:, 1], -x[:, 0]
    return matrix - matrix.transpose(0, 2, 1)


def _log_derivative(rotation: Floats) -> Floats:
    """Return the derivative (E, 3, 3) of rotation vectors (E, 3) by a small rotation applied after them."""
    angle = np.linalg.norm(rotation, axis=1)
    half = np.maximum(angle / 2, 1e-4)
    factor = (1 - half / np.tan(half)) / np.square(2 * half)  # 1 / 12 at zero
    K = _cross(rotation)
    return np.asarray(np.eye(3) - K / 2 + factor[:, None, None] * (K @ K))


def _adjoint(T_b_a: Floats) -> Floats:
    """Return matrices (E, 6, 6) that express a twist (v, ω) of frame a in frame b."""
    R = T_b_a[:, :3, :3]
    matrix = np.zeros((len(R), 6, 6))
    matrix[:, :3, :3] = matrix[:, 3:, 3:] = R
    matrix[:, :3, 3:] = _cross(T_b_a[:, :3, 3]) @ R
    return matrix


def _exp(twist: Floats) -> Floats:
    """Return transformations (N, 4, 4): rotation ω, then translation v, which suffices for small steps."""
    T = np.tile(np.eye(4), (len(twist), 1, 1))
    T[:, :3, :3] = Rotation.from_rotvec(twist[:, 3:]).as_matrix()
    T[:, :3, 3] = twist[:, :3]
    return T
