"""Free space on the CPU: look-ups in range images, poses on threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wsdesc.alignment.free_space.counts import FreeSpace, Limits, ViewCounts
from wsdesc.alignment.surface.cpu import CpuSurface
from wsdesc.cloud.range_image import RangeImage, cell_of
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.kernels import kernel, run_in_chunks

_POSES_AT_ONCE = 16  # per call of the kernel


def measure(
    source: CpuSurface,
    target: CpuSurface,
    images: Sequence[RangeImage | None],
    poses: Floats,
    limits: Limits,
    dense: bool,
) -> list[FreeSpace]:
    """Measure poses T_target_source (H, 4, 4); see `measure_free_space`."""
    source_counts = _count(source, images[1], poses, limits, dense)
    target_counts = _count(target, images[0], inverse(poses), limits, dense)
    return [
        FreeSpace(ViewCounts(*s), ViewCounts(*t))
        for s, t in zip(source_counts.tolist(), target_counts.tolist(), strict=True)
    ]


def _count(
    surface: CpuSurface, image: RangeImage | None, T_viewer_surface: Floats, limits: Limits, dense: bool
) -> NDArray[np.int64]:
    """Count points in the view of the other scan: (H, fields of `ViewCounts`)."""
    counts = np.zeros((len(T_viewer_surface), len(ViewCounts._fields)), np.int64)
    if image is not None:
        arguments = (
            surface.points if dense else surface.points[surface.sample],
            surface.neighbours if dense else surface.sample_neighbours,
            np.ascontiguousarray(T_viewer_surface),
            image.viewpoint,
            image.free,
            *limits,
            counts,
        )
        run_in_chunks(_count_poses, len(counts), *arguments, chunk=1 if dense else _POSES_AT_ONCE)
    return counts


@kernel
def _count_poses(
    start, stop, points, neighbours, poses, viewpoint, free, margin, relative_margin, least_neighbours, counts
):
    cells = free.shape[1]
    ranges = free.ravel()
    violates = np.empty(len(points), np.bool_)
    for h in range(start, stop):
        T = poses[h]
        offset = T[:3, 3] - viewpoint
        in_view, at_surface, violating = 0, 0, 0
        for k in range(len(points)):
            a, b, c = points[k, 0], points[k, 1], points[k, 2]
            x = T[0, 0] * a + T[0, 1] * b + T[0, 2] * c + offset[0]
            y = T[1, 0] * a + T[1, 1] * b + T[1, 2] * c + offset[1]
            z = T[2, 0] * a + T[2, 1] * b + T[2, 2] * c + offset[2]
            length = np.sqrt(x * x + y * y + z * z)
            end = ranges[cell_of(x, y, z, cells)] if length > 0 else np.float32(0)
            slack = margin + relative_margin * end
            violates[k] = end > 0 and length < end - slack
            if end > 0:
                in_view += 1
                at_surface += int(not violates[k] and length < end + slack)
        for k in range(len(points)):
            if violates[k]:
                support = 0
                for j in range(neighbours.shape[1]):
                    support += int(violates[neighbours[k, j]])
                violating += int(support >= least_neighbours)
        counts[h, 0], counts[h, 1], counts[h, 2] = in_view, at_surface, violating
