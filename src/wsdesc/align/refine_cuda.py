"""`refine` for several poses at once on a GPU.

The GPU adds up the equations of all poses; six unknowns each are solved on the CPU, which also sees who came
to rest. First a generalised ICP of both clouds' samples in one problem, wide, then narrower; then the same
last steps as on the CPU, which end at the same pose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from wsdesc.align.observability import FEWEST
from wsdesc.align.observability_cuda import (
    TINY,
    Places,
    about_centre,
    informations,
    seen,
    touching,
    weights_of,
)
from wsdesc.align.refine import DOUBT, REACH, STEPS, STILL, WEAK, WIDTHS, Refined, merit, motion_of, rigid
from wsdesc.align.surface import Floats
from wsdesc.align.surface_cuda import DeviceSurface
from wsdesc.align.verify_cuda import agreements

_SOFT = 1e-3  # variance of a place across its surface, in units of that along it


class _Stage(NamedTuple):
    """Some steps of Gauss-Newton. Lengths in resolutions."""

    equations: Callable[[Places, float], Tensor]
    reach: float  # within which partners are looked for
    steps: int  # at most
    still: float  # a step that moves the overlap by less is the last
    weak: float  # share of the strongest eigenvalue below which a motion is left as it is


def refine_all(
    source: DeviceSurface, target: DeviceSurface, poses: Floats, *, resolution: float, refined: bool = True
) -> list[Refined]:
    """What `refine` makes of each of the poses (H, 4, 4), or `unrefined`."""
    if len(poses) == 0:
        return []
    reach = REACH * resolution
    T, still = poses, np.zeros(len(poses), bool)
    if refined:
        for width in WIDTHS:
            T, _ = _descend(source, target, T, _Stage(_generalised, width, 20, 0.03, 1e-9), resolution)
        T, still = _descend(source, target, T, _Stage(_planes, REACH, STEPS, STILL, WEAK), resolution)
    found = agreements(source, target, np.concatenate([poses, T]), reach)
    before, after = found[: len(T)], found[len(T) :]
    worse = [merit(a, reach) < (1 - DOUBT) * merit(b, reach) for b, a in zip(before, after, strict=True)]
    T = np.where(np.array(worse)[:, None, None], poses, T)
    known = informations(source, target, T, reach)
    results = []
    for k, information in enumerate(known):
        judged = before[k] if worse[k] else after[k]
        at_rest = bool(still[k]) and not worse[k]
        results.append(Refined(T[k], at_rest, judged.rmse_plane, information, judged))
    return results


def _descend(
    source: DeviceSurface, target: DeviceSurface, poses: Floats, stage: _Stage, resolution: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Where each of the poses (H, 4, 4) comes to, and whether it came to rest there (H,). Those without
    enough places stay where they are."""
    T, rested = poses.copy(), np.zeros(len(poses), bool)
    moving = list(range(len(poses)))
    reach = stage.reach * resolution
    for _ in range(stage.steps):
        motions = torch.from_numpy(T[moving]).to(source.points.device)
        rows = stage.equations(touching(source, target, motions, reach), reach).cpu().numpy()
        for k, row in zip(list(moving), rows, strict=True):
            matrix, pull, centre = row[:36].reshape(6, 6), row[36:42], row[42:45]
            extent, count = float(row[45]), row[46]
            if count < FEWEST or not extent > 0:
                moving.remove(k)
                continue
            values, vectors = np.linalg.eigh(matrix)
            T_step, moved = motion_of(values, vectors, pull @ vectors, centre, extent, stage.weak)
            T[k] = rigid(T_step @ T[k])
            if moved < stage.still * resolution:
                rested[k] = True
                moving.remove(k)
        if not moving:
            break
    return T, rested


def _planes(places: Places, reach: float) -> Tensor:
    """Equations of the distances between planes, along the mean of both normals."""
    weights, count = weights_of(places, reach)
    normals = normalize(places.source_normals + places.target_normals, dim=-1)
    centre, extent, arms = about_centre(places.source, weights)
    gaps = ((places.target - places.source) * normals).sum(-1)
    return _equations(seen(arms, normals), weights, gaps, centre, extent, count)


def _generalised(places: Places, reach: float) -> Tensor:
    """Equations of distances that count the less, the more uncertain both surfaces are in their direction.

    A place is uncertain along its plane and nearly certain across it: C = 1 − (1 − s) n nᵀ. Of the inverse of
    the sum of two such C what matters is along the mean normal; in all directions it is about a half.
    """
    weights = places.share / places.share.sum(1, keepdim=True).clamp(min=TINY)
    stiff = 1 / (2 - (1 - _SOFT) * (1 + places.cosine)) - 0.5  # (H, M)
    normals = normalize(places.source_normals + places.target_normals, dim=-1)
    centre, extent, arms = about_centre(places.source, weights)
    gap = places.target - places.source  # (H, M, 3)
    axes = torch.eye(3, dtype=gap.dtype, device=gap.device).expand(*gap.shape, 3)
    directions = torch.cat([normals[:, :, None], axes], 2)  # (H, M, 4, 3)
    gaps = torch.cat([(gap * normals).sum(-1, keepdim=True), gap], 2)
    half = torch.full_like(stiff, 0.5)
    scale = weights[..., None] * torch.stack([stiff, half, half, half], 2)  # (H, M, 4)
    views = seen(arms[:, :, None].expand_as(directions), directions).flatten(1, 2)  # (H, 4M, 6)
    return _equations(views, scale.flatten(1), gaps.flatten(1), centre, extent, (weights > 0).sum(1))


def _equations(
    views: Tensor, weights: Tensor, gaps: Tensor, centre: Tensor, extent: Tensor, count: Tensor
) -> Tensor:
    """(H, 47): matrix (36), right side (6), centre (3), extent and number of places."""
    pull = (weights[..., None] * views).mT  # (H, 6, M)
    matrix, right = pull @ views, pull @ gaps[..., None]
    return torch.cat([matrix.flatten(1), right[..., 0], centre, extent[:, None], count[:, None]], 1)
