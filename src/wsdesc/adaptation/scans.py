"""Scans of an adaptation: points as `register` describes them, in local frames and metres of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from wsdesc.alignment.surface import Surface, make_surface
from wsdesc.cloud.range_image import RangeImage
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.errors import WSDescError
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.kernels import run_each
from wsdesc.descriptor.preparation import clean_scan, prepare_scan


@dataclass(frozen=True, eq=False)
class TaughtScan:
    """A scan at the working resolution.

    Attributes:
        name: Name of the scan in the reconstruction.
        points: (N, 3) float32, in the local frame.
        T_scan_local: (4, 4), from the local frame to file coordinates, in the scan's unit.
        unit: Length of one metre of the model, in the scan's unit.
        range_image: Free space around the viewpoint; None if it is not known.
    """

    name: str
    points: Tensor
    T_scan_local: Floats = field(repr=False)
    unit: float
    range_image: RangeImage | None = field(default=None, repr=False)

    @cached_property
    def tree(self) -> cKDTree:
        """Search tree of the points."""
        return cKDTree(self.points.numpy())

    @cached_property
    def surface(self) -> Surface:
        """Surface for free space, on the CPU."""
        return make_surface(self.points)

    @cached_property
    def radius(self) -> float:
        """Root mean square distance of the points from the local origin."""
        return float(self.points.double().square().sum(1).mean().sqrt())

    @cached_property
    def outer_radius(self) -> float:
        """Largest distance of a point from the local origin."""
        return float(torch.linalg.vector_norm(self.points, dim=1).max())

    def sample(self, count: int) -> Tensor:
        """Indices (K,) of evenly chosen points; the same at each call."""
        stride = max(1, len(self.points) // count)
        return torch.arange(0, len(self.points), stride)[:count]

    def local_pose(self, T_world_scan: Floats) -> Floats:
        """Convert a pose of file coordinates to T_world_local (4, 4), both in metres of the model."""
        T = T_world_scan @ self.T_scan_local
        T[:3, 3] /= self.unit
        return T


def load_scans(paths: dict[str, Path], resolution: float) -> list[TaughtScan]:
    """Read scans by name; those that cannot be read or have too few points are left out."""
    unit = resolution / INDOOR_RESOLUTION

    def load(item: tuple[str, Path]) -> TaughtScan | None:
        try:
            cleaned = clean_scan(item[1])
            description = prepare_scan(cleaned, resolution, "", 0, 3)
        except WSDescError:
            return None
        return TaughtScan(
            item[0], description.points, description.T_scan_local, unit, description.range_image
        )

    return [scan for scan in run_each(load, list(paths.items())) if scan is not None]


def relative_pose(T_world_p: Floats, T_world_q: Floats) -> Floats:
    """Return T_q_p (4, 4)."""
    T_q_p: Floats = inverse(T_world_q) @ T_world_p
    return T_q_p


def overlap_at(p: TaughtScan, q: TaughtScan, T_q_p: Floats, distance: float, count: int = 2000) -> float:
    """Measure the overlap at a pose: the share of points with a partner, the smaller one of both scans."""
    return min(_covered(p, q, T_q_p, distance, count), _covered(q, p, inverse(T_q_p), distance, count))


def _covered(p: TaughtScan, q: TaughtScan, T_q_p: Floats, distance: float, count: int) -> float:
    points = p.points[p.sample(count)].double().numpy() @ T_q_p[:3, :3].T + T_q_p[:3, 3]
    nearest, _ = q.tree.query(points, distance_upper_bound=distance, workers=-1)
    return float(np.isfinite(nearest).mean())


def by_name(scans: Sequence[TaughtScan]) -> dict[str, int]:
    """Return the index of each scan by name."""
    return {scan.name: k for k, scan in enumerate(scans)}
