"""Verification on the CPU: one pose per thread."""

from __future__ import annotations

import math

import numpy as np

from wsdesc.alignment.surface.cpu import CpuSurface
from wsdesc.alignment.verify.score import (
    ALIGNED,
    CROSSED,
    FACING,
    FLAT,
    HOVER_DISTANCE,
    PoseScore,
    SideSums,
    combine_sides,
)
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.kernels import kernel, run_each


def verify(
    source: CpuSurface, target: CpuSurface, poses: Floats, distance: float, *, coarse: bool = False
) -> list[PoseScore]:
    """Measure poses T_target_source (H, 4, 4); see `wsdesc.alignment.verify.verify`."""

    def verify_pose(T: Floats) -> PoseScore:
        source_side = _sum_side(source, target, T, distance, coarse)
        target_side = _sum_side(target, source, inverse(T), distance, coarse)
        return combine_sides(source_side, target_side, distance)

    return run_each(verify_pose, list(poses))


def _sum_side(
    sampled: CpuSurface, searched: CpuSurface, T_searched_sampled: Floats, distance: float, coarse: bool
) -> SideSums:
    sample = sampled.coarse_sample if coarse else sampled.full_sample
    gap, partner = searched.nearest(sample.points, HOVER_DISTANCE * distance, T_searched_sampled)
    sums = np.zeros(len(SideSums._fields))
    surface = (searched.points, searched.normals, searched.curvature)
    _add_points(*sample, T_searched_sampled, gap, partner, *surface, distance, sums)
    return SideSums(*sums.tolist())


@kernel(
    types="float64[:, ::1], float64[:, ::1], float64[::1], float64[::1], float64[:, ::1], float64[::1], "
    "int64[::1], float64[:, ::1], float64[:, ::1], float64[::1], float64, float64[::1]",
)
def _add_points(
    points, normals, curvatures, weights, T, gap, partner,
    other_points, other_normals, other_curvatures, distance, sums,
):  # fmt: skip
    """Add the points of a sample to `sums`, in the order of `SideSums`."""
    for m in range(len(points)):
        sums[0] += 1
        if not gap[m] < np.inf:
            continue
        j, overlapping = partner[m], gap[m] <= distance
        normal, other = normals[m], other_normals[j]  # the sample is not yet moved
        has_other = other[0] != 0 or other[1] != 0 or other[2] != 0
        plane, cosine = 0.0, 0.0
        for a in range(3):
            moved, turned = T[a, 3], 0.0
            for b in range(3):
                moved += T[a, b] * points[m, b]
                turned += T[a, b] * normal[b]
            plane += (moved - other_points[j, a]) * other[a]
            cosine += turned * other[a]
        plane = abs(plane) if has_other else gap[m]
        cosine = min(abs(cosine), 1.0)
        low, high = min(curvatures[m], other_curvatures[j]), max(curvatures[m], other_curvatures[j])
        if not overlapping:
            if plane > FACING * gap[m]:  # hovering
                sums[8] += 1
                sums[12] += curvatures[m] >= FLAT
            continue
        sums[1] += 1
        sums[2] += weights[m]
        if high >= FLAT:
            sums[11] += low
            sums[12] += high
        sums[13] += plane * plane
        sums[14] += gap[m] * gap[m]
        if not (has_other and (normal[0] != 0 or normal[1] != 0 or normal[2] != 0)):
            continue
        sums[3] += cosine > ALIGNED
        sums[9] += low
        sums[10] += high
        if high < FLAT:
            sums[4] += 1
            sums[5] += cosine < CROSSED
            if cosine > ALIGNED:
                sums[6] += weights[m]
                sums[7] += weights[m] * math.sqrt(plane)
