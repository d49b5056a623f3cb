"""Surfaces: scans prepared for verification and refinement of poses.

Poses are verified on a sample of each scan, searched in all points of the other. The sample depends on the
positions of the points, see `sample_order`. So scans must be in their local frames, for a moved scan to have
the same sample. A surface on the CPU compares one pose at a time, on threads; a surface on a GPU compares all
poses at once.
"""

from __future__ import annotations

from typing import Any

import torch

from wsdesc.alignment.surface.base import Surface, check_poses, for_backend
from wsdesc.alignment.surface.cpu import CpuSurface
from wsdesc.alignment.surface.cuda import CudaSurface
from wsdesc.core.kernels import run_each

__all__ = [
    "CpuSurface",
    "CudaSurface",
    "Surface",
    "check_poses",
    "for_backend",
    "make_surface",
    "make_surfaces",
]


def make_surface(points: Any) -> Surface:
    """Prepare the points of a scan on their device.

    Args:
        points: (N, 3) array or tensor, N ≥ 1, finite, downsampled to the working resolution; any unit.

    Raises:
        InputError: The shape is wrong or a coordinate is not finite.
    """
    if not isinstance(points, torch.Tensor):
        return CpuSurface.of(points)
    return CudaSurface.of(points) if points.is_cuda else CpuSurface.of(points.detach().numpy())


def make_surfaces(source: Any, target: Any) -> tuple[Surface, Surface]:
    """Prepare the points of two scans: on the CPU at once, on a GPU one after the other."""
    if isinstance(source, torch.Tensor) and source.is_cuda:
        return make_surface(source), make_surface(target)
    p, q = run_each(make_surface, (source, target))
    return p, q
