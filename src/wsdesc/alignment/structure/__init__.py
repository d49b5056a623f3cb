"""Structure search: poses at which the walls and floors of two scans coincide, without descriptors.

Built places have three perpendicular directions. If both scans show them, 24 rotations are possible. For each
one, the Fourier transform compares all shifts at once on coarse voxels: surfaces of equal direction should
coincide, and no surface should lie in space that the other scanner saw through. In a repetitive place the
descriptors propose poses at which many details agree, and the right one may be missing. This search lists the
others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from wsdesc.alignment.axes import find_axes
from wsdesc.alignment.structure import cpu, cuda
from wsdesc.alignment.structure.peaks import SHIFTS, choose_peaks
from wsdesc.alignment.structure.voxels import Voxels
from wsdesc.alignment.surface import Surface
from wsdesc.cloud.range_image import RangeImage
from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import run_each

__all__ = ["search_structure"]

_VOXEL = 6.0  # working resolutions,
_MAX_VOXELS = 96  # or more, so that a scan has at most as many voxels along an axis
_ROTATIONS_COMPARED = 8  # of 24, on the finer voxels; chosen on coarser ones


def search_structure(
    source: Surface,
    target: Surface,
    images: tuple[RangeImage | None, RangeImage | None],
    resolution: float,
    *,
    count: int,
    allow: Callable[[Floats], NDArray[np.bool_]] | None = None,
) -> Floats:
    """Find poses T_target_source (K, 4, 4), K ≤ `count`, at which the structures of two scans coincide.

    Args:
        source, target: Surfaces of one backend.
        images: Range images of source and target; None for a scan without a viewpoint.
        resolution: Working resolution, in the unit of the surfaces.
        count: Largest number of poses.
        allow: Which of poses (K, 4, 4) are possible; None for all.

    Returns:
        The poses with the best agreement first, exact to some resolutions; none if a scan does not have three
        perpendicular directions.
    """
    surfaces = source, target
    axes = run_each(find_axes, [_numpy(surface.normals[surface.sample]) for surface in surfaces])
    if axes[0] is None or axes[1] is None:
        return np.zeros((0, 4, 4))
    clouds = [torch.as_tensor(surface.points) for surface in surfaces]
    extent = torch.stack([points.amax(0) - points.amin(0) for points in clouds]).max()
    voxel = max(_VOXEL * resolution, float(extent) / _MAX_VOXELS)
    p = Voxels.of(source, images[0], axes[0], voxel, resolution)
    q = Voxels.of(target, images[1], axes[1], voxel, resolution)
    if p.free.is_cuda:
        p = p.cubic()
        rotations, maxima = cuda.best_shifts(p, q, _ROTATIONS_COMPARED)
    else:
        rotations, maxima = cpu.best_shifts(p, q, _ROTATIONS_COMPARED)
    limit = count if allow is None else SHIFTS  # of a rotation
    values, proposed = [], []
    for R, largest in zip(rotations, maxima, strict=True):
        peaks, shifts = choose_peaks(largest, q.free.shape, limit)
        T = np.tile(np.eye(4), (len(shifts), 1, 1))
        T[:, :3, :3] = axes[1].T @ R @ axes[0]
        T[:, :3, 3] = (q.origin - p.turned_origin(R) + voxel * shifts) @ axes[1]
        values.append(peaks)
        proposed.append(T)
    poses = np.concatenate(proposed)[np.argsort(-np.concatenate(values), kind="stable")]
    return poses[:count] if allow is None else poses[allow(poses)][:count]


def _numpy(values: object) -> Floats:
    return np.asarray(torch.as_tensor(values).cpu())
