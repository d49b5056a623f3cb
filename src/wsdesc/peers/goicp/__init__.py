"""Go-ICP (Yang et al. 2016): the globally best alignment of two clouds, by branch and bound. Own code.

The error of a pose is the sum of squared distances from the source's points to the target. Cubes of rotations
are searched best first. A nested search over translations bounds the error in each cube from below. ICP
starts from each better pose. The search stops when the best pose is within the threshold of the lowest bound.
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc.cloud.neighbours import check_points
from wsdesc.core.geometry import Floats, check_length, make_pose
from wsdesc.core.kernels import run_each
from wsdesc.peers.goicp.field import DistanceField
from wsdesc.peers.goicp.icp import TrimmedIcp
from wsdesc.peers.goicp.translations import search_translations

_MIN_POINTS = 10  # fewest points of a cloud
_DIAGONAL = math.sqrt(3)


@dataclass(frozen=True)
class Solution:
    """The best pose of a search, in the normalised frame."""

    T_target_source: Floats  # (4, 4)
    error: float  # sum of squared distances
    lower_bound: float  # no pose of the search domain has a smaller error
    nodes: int  # evaluated cubes of rotations
    optimal: bool  # False if the time limit ended the search


class GoIcp:
    """A pose peer. It runs on the CPU."""

    def __init__(
        self,
        half_range: float = math.pi,
        trim: float = 0.0,
        threshold: float = 1e-3,
        points: int = 300,
        cells: int = 100,
        time_limit: float = 20.0,
    ) -> None:
        """Set the search.

        Args:
            half_range: Half side of the cube of rotation vectors, in radians; π holds all rotations.
            trim: Share of the source's points, those with the largest distances, that do not count.
            threshold: Mean squared distance, in the normalised frame, within which the result is optimal.
            points: Number of points that are drawn from the source.
            cells: Side of the target's distance field.
            time_limit: Seconds after which the best pose so far is returned.
        """
        self.half_range, self.trim, self.threshold = half_range, trim, threshold
        self.points, self.cells, self.time_limit = points, cells, time_limit

    def __call__(self, source: Tensor, target: Tensor, unit: float = 1.0, *, seed: int = 0) -> Tensor | None:
        """Estimate T_target_source (4, 4) float64 of source (N, 3) and target (M, 3); None if it fails.

        The clouds are normalised by their size, so the result does not depend on `unit`.
        """
        check_length(unit, "the unit")
        check_points(source, "source")
        check_points(target, "target")
        if min(len(source), len(target)) < _MIN_POINTS:
            return None
        p, q = (cloud.detach().cpu().double().numpy() for cloud in (source, target))
        p_mean, q_mean = p.mean(0), q.mean(0)
        scale = max(float(np.abs(p - p_mean).max()), float(np.abs(q - q_mean).max()))
        if scale == 0:
            return None
        drawn = np.random.default_rng(seed).permutation(len(p))[: self.points]
        T = self.solve((p[drawn] - p_mean) / scale, (q - q_mean) / scale).T_target_source
        T = T.copy()
        T[:3, 3] = scale * T[:3, 3] + q_mean - T[:3, :3] @ p_mean
        return torch.from_numpy(T)

    def solve(self, source: Floats, target: Floats) -> Solution:
        """Search for the best pose of centred clouds (n, 3) and (m, 3) in the cube [−1, 1]³."""
        return _RotationSearch(self, source, target).run()


class _RotationSearch:
    """Best-first search over cubes of rotation vectors."""

    def __init__(self, settings: GoIcp, source: Floats, target: Floats) -> None:
        self.settings, self.source = settings, np.ascontiguousarray(source)
        self.field = DistanceField.of(target, settings.cells)
        self.kept = max(3, round((1 - settings.trim) * len(source)))
        self.gap = settings.threshold * self.kept  # of the error
        self.icp = TrimmedIcp(target, self.kept, settings.threshold * 1e-4)
        self.lengths = np.linalg.norm(self.source, axis=1)
        self.best, self.T = np.inf, np.eye(4)

    def run(self) -> Solution:
        """Search until the bounds meet or the time is over."""
        end = time.monotonic() + self.settings.time_limit
        self._improve(np.eye(4))
        queue = [(0.0, (0.0, 0.0, 0.0), self.settings.half_range)]  # lower bound, centre, half side
        nodes = 0
        while queue and self.best - queue[0][0] >= self.gap and time.monotonic() < end:
            _, centre, half = heapq.heappop(queue)
            children = [child for child in _split(centre, half / 2) if _meets_ball(child, half / 2)]
            uppers = run_each(partial(self._translations, half=0.0), children)
            for child, (error, translation, _) in zip(children, uppers, strict=True):
                if error < self.best:
                    self._improve(_pose(child, translation))
            bounded = run_each(partial(self._translations, half=half / 2), children)
            nodes += len(children)
            for child, (_, _, lower) in zip(children, bounded, strict=True):
                if lower < self.best:
                    heapq.heappush(queue, (lower, child, half / 2))
            queue = [node for node in queue if node[0] < self.best]
            heapq.heapify(queue)
        lowest = min(queue[0][0], self.best) if queue else self.best
        return Solution(self.T, self.best, lowest, nodes, self.best - lowest < self.gap)

    def _translations(self, rotation: tuple[float, float, float], half: float) -> tuple[float, Floats, float]:
        """Search translations for the rotations of a cube: smallest error, its translation, lower bound."""
        turned = Rotation.from_rotvec(rotation).apply(self.source)
        # No rotation of the cube moves a point further than this from its place at the centre.
        reach = 2 * math.sin(min(_DIAGONAL * half, math.pi) / 2) * self.lengths
        error, x, y, z, bound = search_translations(
            turned, reach, self.field.values, self.field.low, self.field.step, self.best, self.gap, self.kept
        )
        return error, np.array([x, y, z]), bound

    def _improve(self, T: Floats) -> None:
        """Run ICP from a pose and keep the result if it is better than the best pose."""
        for candidate in (T, self.icp(self.source, T)):
            error = self.error(candidate)
            if error < self.best:
                self.best, self.T = error, candidate

    def error(self, T: Floats) -> float:
        """Return the trimmed sum of squared distances of a pose."""
        distances = self.field.at(self.source @ T[:3, :3].T + T[:3, 3])
        return float(np.sort(distances**2)[: self.kept].sum())


def _split(centre: tuple[float, float, float], half: float) -> list[tuple[float, float, float]]:
    """Return the centres of the eight cubes of half side `half` in a cube twice as large."""
    x, y, z = centre
    signs = (-half, half)
    return [(x + dx, y + dy, z + dz) for dx in signs for dy in signs for dz in signs]


def _meets_ball(centre: tuple[float, float, float], half: float) -> bool:
    """Check that a cube holds rotation vectors not longer than π."""
    return math.hypot(*centre) - _DIAGONAL * half <= math.pi


def _pose(rotation: tuple[float, float, float], translation: Floats) -> Floats:
    return make_pose(Rotation.from_rotvec(rotation).as_matrix(), translation)
