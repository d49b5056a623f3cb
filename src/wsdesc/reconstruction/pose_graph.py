"""Many relative poses, one frame: the poses of all scans that fit the measured ones best, wrong ones ignored.

Each edge asks that two scans lie to each other as their registration found. It is weighted, motion by motion,
by how firmly the overlap holds it. The loss is Geman and McClure's over the whole edge, not over its six
numbers one by one: an edge that contradicts the others loses its say instead of bending the model.

All lengths are metres of the model; the frame of a scan has its origin in the scan's middle.
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

from wsdesc.alignment.observability import Information
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse

# Scans are bent by some millimetres, and more points do not average that out.
INDEPENDENT = 100  # places of an overlap whose errors count as independent
FLOOR = 0.1 * INDOOR_RESOLUTION  # metres an edge is never better than, for any motion
WEAKEST = 1e-3  # eigenvalue of the information below which a motion counts as open
OUTLIER = 10.0  # standard deviations at which an edge has lost three quarters of its weight
_STEPS = 60  # of the last level of the loss, at most
_STILL = 1e-9  # metres and radians: a step smaller than this is the last


class Edge(NamedTuple):
    """The pose of one scan in the frame of another, as registration found it."""

    source: int
    target: int
    T_target_source: Floats  # (4, 4)
    confidence: float
    information: Information  # in the target's frame
    rmse: float  # of the overlap, point to plane
    alike: bool = False  # another pose of the same pair would be believed, too: the place repeats


class PoseGraph(NamedTuple):
    """Where every scan is, as far as it is known."""

    T_world_scan: Floats  # (N, 4, 4); in each component the first scan has the identity
    components: list[list[int]]  # scans that share a frame, largest first, ascending inside
    deviations: Floats  # (E,) how far each edge is from being fulfilled, in its standard deviations


def solve(count: int, edges: Sequence[Edge]) -> PoseGraph:
    """Place `count` scans so that the edges are fulfilled as well as they can be."""
    components = connected(count, edges)
    T = along_best_edges(count, edges, [scans[0] for scans in components])
    if not edges:
        return PoseGraph(T, components, np.zeros(0))
    problem = _Problem(edges, fixed=np.array([scans[0] for scans in components]), count=count)
    found, loss = problem.descend(T, OUTLIER**2, _STEPS)
    if problem.squares(found).max() > OUTLIER**2:
        # Trusted edges came first, then the rest. Or all at once, the loss wide at first: where a trusted
        # edge is wrong that is better, where many edges are wrong the first way often is.
        other, other_loss = problem.descend(problem.widely(T), OUTLIER**2, _STEPS)
        found = other if other_loss < loss else found
    T = found
    return PoseGraph(T, components, np.sqrt(problem.squares(T)))


def connected(count: int, edges: Sequence[Edge]) -> list[list[int]]:
    """Scans that edges connect, directly or by others: largest group first, then by its first scan."""
    ends = np.array([(e.source, e.target) for e in edges], dtype=np.intp).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count))
    groups, label = connected_components(graph, directed=False)
    found = [np.flatnonzero(label == group).tolist() for group in range(groups)]
    return sorted(found, key=lambda scans: (-len(scans), scans[0]))


def along_best_edges(count: int, edges: Sequence[Edge], roots: list[int]) -> Floats:
    """(N, 4, 4) poses to begin with: along the tree whose edges are trusted most."""
    at: list[list[int]] = [[] for _ in range(count)]
    for k, edge in enumerate(edges):
        at[edge.source].append(k)
        at[edge.target].append(k)
    T_world_scan = np.tile(np.eye(4), (count, 1, 1))
    for root in roots:
        reached = {root}
        waiting = [(-edges[k].confidence, k) for k in at[root]]
        heapq.heapify(waiting)
        while waiting:
            edge = edges[heapq.heappop(waiting)[1]]
            new = [scan for scan in (edge.source, edge.target) if scan not in reached]
            if not new:
                continue
            forth = new[0] == edge.source
            T_known_new = edge.T_target_source if forth else inverse(edge.T_target_source)
            T_world_scan[new[0]] = T_world_scan[edge.target if forth else edge.source] @ T_known_new
            reached.add(new[0])
            for k in at[new[0]]:
                heapq.heappush(waiting, (-edges[k].confidence, k))
    return T_world_scan


class _Problem:
    """The edges as arrays, and the steps of Levenberg and Marquardt on all poses at once.

    The residual of an edge is the twist (v, ω·extent), about the overlap's centre and in the target's frame,
    that the poses add to what was measured; times the root of its information. A pose changes by a
    twist in the scan's own frame: T_world_scan ← T_world_scan · exp(ξ).
    """

    def __init__(self, edges: Sequence[Edge], fixed: NDArray[np.intp], count: int) -> None:
        self.source = np.array([e.source for e in edges])
        self.target = np.array([e.target for e in edges])
        self.T_source_target = np.stack([inverse(e.T_target_source) for e in edges])  # (E, 4, 4) measured
        self.centre = np.stack([e.information.centre for e in edges])  # (E, 3)
        self.extent = np.array([max(e.information.extent, FLOOR) for e in edges])  # (E,)
        self.root = np.stack([_root_information(e) for e in edges])  # (E, 6, 6)
        self.free = np.setdiff1d(np.arange(count), fixed)
        self.place = np.full(count, -1)  # of a scan among the free ones
        self.place[self.free] = np.arange(len(self.free))

    def squares(self, T_world_scan: Floats) -> Floats:
        """(E,) squared deviations."""
        return np.asarray(np.square(self._residuals(T_world_scan)[0]).sum(axis=1))

    def widely(self, T: Floats) -> Floats:
        """Poses that a loss which began convex and became narrower leads to."""
        scale = float(self.squares(T).max())
        while scale > OUTLIER**2:
            T, _ = self.descend(T, scale, steps=2)
            scale /= 2
        return T

    def descend(self, T: Floats, scale: float, steps: int) -> tuple[Floats, float]:
        """Up to so many steps down the loss Σ scale·r² / (scale + r²); the poses and the loss there."""
        damping, loss = 1e-6, _loss(self.squares(T), scale)
        for _ in range(steps if len(self.free) else 0):
            gradient, hessian = self._normal_equations(T, scale)
            moved = False
            while damping < 1e6:
                diagonal = hessian.diagonal()
                damped = csc_array(hessian + diags_array(damping * diagonal + 1e-12 * diagonal.max()))
                step = np.asarray(spsolve(damped, -gradient)).reshape(-1, 6)
                T_new = T.copy()
                T_new[self.free] = T[self.free] @ _exp(step)
                new_loss = _loss(self.squares(T_new), scale)
                if new_loss <= loss:
                    T, loss, damping, moved = T_new, new_loss, max(damping / 10, 1e-9), True
                    break
                damping *= 10
            if not moved or np.abs(step).max() < _STILL:
                break
        T[:, :3, :3] = Rotation.from_matrix(T[:, :3, :3]).as_matrix()  # products of many lose it
        return T, loss

    def _residuals(self, T_world_scan: Floats) -> tuple[Floats, Floats, Floats]:
        """(E, 6) residuals, the motions (E, 4, 4) they are of, and these as rotation vectors (E, 3)."""
        T_target_source = inverse(T_world_scan[self.target]) @ T_world_scan[self.source]
        E = T_target_source @ self.T_source_target  # what is left: the identity if fulfilled
        turn = Rotation.from_matrix(E[:, :3, :3]).as_rotvec()
        shift = np.einsum("eij,ej->ei", E[:, :3, :3], self.centre) + E[:, :3, 3] - self.centre
        twist = np.hstack([shift, turn * self.extent[:, None]])
        return np.einsum("eij,ej->ei", self.root, twist), E, turn

    def _normal_equations(self, T: Floats, scale: float) -> tuple[Floats, csc_array]:
        r, E, turn = self._residuals(T)
        weight = np.square(scale / (scale + np.square(r).sum(axis=1)))  # (E,)
        R_E = E[:, :3, :3]
        moved = np.einsum("eij,ej->ei", R_E, self.centre) + E[:, :3, 3]  # the centre, after E
        # E → exp(−η) E for a step η of the target; E → E · exp(Ad ξ) for a step ξ of the source.
        by_target = np.zeros((len(E), 6, 6))
        by_target[:, :3, :3] = -np.eye(3)
        by_target[:, :3, 3:] = _cross(moved)
        by_target[:, 3:, 3:] = -_log_derivative(turn) * self.extent[:, None, None]
        by_moved = np.zeros((len(E), 6, 6))
        by_moved[:, :3, :3] = R_E
        by_moved[:, :3, 3:] = -R_E @ _cross(self.centre)
        by_moved[:, 3:, 3:] = _log_derivative(-turn) * self.extent[:, None, None]
        by_source = by_moved @ _adjoint(inverse(self.T_source_target))
        jacobians = [(self.root @ by_source, self.place[self.source]),
                     (self.root @ by_target, self.place[self.target])]  # fmt: skip

        size = 6 * len(self.free)
        gradient, rows, columns, values = np.zeros((len(self.free), 6)), [], [], []
        for J, at in jacobians:
            on = at >= 0
            np.add.at(gradient, at[on], np.einsum("e,eji,ej->ei", weight, J, r)[on])
            for other, there in jacobians:
                both = on & (there >= 0)
                block = np.einsum("e,eki,ekj->eij", weight, J, other)[both]  # (B, 6, 6)
                rows.append(np.broadcast_to(6 * at[both][:, None, None] + _SIX[:, None], block.shape))
                columns.append(np.broadcast_to(6 * there[both][:, None, None] + _SIX, block.shape))
                values.append(block)
        flat = [np.concatenate([part.ravel() for part in parts]) for parts in (values, rows, columns)]
        hessian = csc_array(coo_array((flat[0], (flat[1], flat[2])), shape=(size, size)))
        return gradient.ravel(), hessian


_SIX = np.arange(6)


def _root_information(edge: Edge) -> Floats:
    """W (6, 6) with WᵀW the inverse covariance of an edge's twist (v, ω·extent)."""
    values, vectors = np.linalg.eigh(edge.information.matrix)
    noise = max(min(edge.rmse, 4 * INDOOR_RESOLUTION), FLOOR) ** 2 / INDEPENDENT
    variance = noise / np.maximum(values, WEAKEST) + FLOOR**2
    return np.asarray((vectors / np.sqrt(variance)).T)


def _loss(squares: Floats, scale: float) -> float:
    return float((scale * squares / (scale + squares)).sum())


def _cross(x: Floats) -> Floats:
    """(E, 3, 3) matrices of the cross product x ×."""
    matrix = np.zeros((len(x), 3, 3))
    matrix[:, 0, 1], matrix[:, 0, 2], matrix[:, 1, 2] = -x[:, 2], x[:, 1], -x[:, 0]
    return matrix - matrix.transpose(0, 2, 1)


def _log_derivative(turn: Floats) -> Floats:
    """(E, 3, 3) how the rotation vector follows a small turn applied after it."""
    angle = np.linalg.norm(turn, axis=1)
    half = np.maximum(angle / 2, 1e-4)
    factor = (1 - half / np.tan(half)) / np.square(2 * half)  # 1 / 12 at no turn
    K = _cross(turn)
    return np.asarray(np.eye(3) - K / 2 + factor[:, None, None] * (K @ K))


def _adjoint(T_b_a: Floats) -> Floats:
    """(E, 6, 6): a twist (v, ω) about a's origin in a's frame, as one about b's origin in b's."""
    R = T_b_a[:, :3, :3]
    matrix = np.zeros((len(R), 6, 6))
    matrix[:, :3, :3] = matrix[:, 3:, 3:] = R
    matrix[:, :3, 3:] = _cross(T_b_a[:, :3, 3]) @ R
    return matrix


def _exp(twist: Floats) -> Floats:
    """(N, 4, 4) motions: turned by ω, then shifted by v, which for steps is as good as the exponential."""
    T = np.tile(np.eye(4), (len(twist), 1, 1))
    T[:, :3, :3] = Rotation.from_rotvec(twist[:, 3:]).as_matrix()
    T[:, :3, 3] = twist[:, :3]
    return T
