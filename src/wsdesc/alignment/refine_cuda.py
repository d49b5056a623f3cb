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

from wsdesc.alignment.observability import FEWEST
from wsdesc.alignment.observability_cuda import (
    Places,
    about_centre,
    contact_pairs,
    informations,
    moments,
    views_of,
    weights_of,
)
from wsdesc.alignment.refine import DOUBT, REACH, STEPS, STILL, WEAK, WIDTHS, Refined, merit, motion_of, rigid
from wsdesc.alignment.surface_cuda import DeviceSurface
from wsdesc.alignment.verify_cuda import agreements
from wsdesc.core.geometry import Floats

_SOFT = 1e-3  # variance of a place across its surface, in units of that along it


class _Stage(NamedTuple):
    """Some steps of Gauss-Newton. Lengths in resolutions."""

    weigh: Callable[[Places, float], tuple[Tensor, Tensor, Tensor]]
    reach: float  # within which partners are looked for
    steps: int  # at most
    still: float  # a step that moves the overlap by less is the last
    weak: float  # share of the strongest eigenvalue below which a motion is left as it is
    everywhere: float = 0.0  # weight of distances in all directions


def refine_all(
    source: DeviceSurface, target: DeviceSurface, poses: Floats, *, resolution: float, refined: bool = True
) -> list[Refined]:
    """What `refine` makes of each of the poses (H, 4, 4), or `evaluate_pose`."""
    if len(poses) == 0:
        return []
    reach = REACH * resolution
    T, still = poses, np.zeros(len(poses), bool)
    if refined:
        for stage in _STAGES:
            T, still = _descend(source, target, T, stage, resolution)
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
    for _ in range(stage.steps):
        rows = _sums(contact_pairs(source, target, T[moving], stage.reach * resolution), stage, resolution)
        for k, row in zip(list(moving), rows, strict=True):
            T_step, moved = _step(row, stage)
            if T_step is None:
                moving.remove(k)
                continue
            T[k] = T_step @ T[k]
            if moved < stage.still * resolution:
                rested[k] = True
                moving.remove(k)
        if not moving:
            break
    return np.stack([rigid(pose) for pose in T]), rested


def _sums(places: Places, stage: _Stage, resolution: float) -> Floats:
    """What the steps of all poses follow from: (H, 99).

    Σ of products of views along the mean normals and gaps (49), of 1, points and gaps (49), and the number of
    places.
    """
    along, weights, count = stage.weigh(places, stage.reach * resolution)
    normals = places.source_normals + places.target_normals
    normals = normals * (2 + 2 * places.cosine[..., None]).rsqrt()  # the mean of two unit vectors
    views = torch.cat([views_of(places.source, normals), (places.gap * normals).sum(-1, keepdim=True)], -1)
    plain = torch.cat([torch.ones_like(weights)[..., None], places.source, places.gap], -1)
    sums = (moments(along, views, views), moments(weights, plain, plain), count[:, None])
    return torch.cat([x.flatten(1) for x in sums], 1).cpu().numpy()


def _planes(places: Places, reach: float) -> tuple[Tensor, Tensor, Tensor]:
    """Distances between planes, along the mean of both normals."""
    weights, count = weights_of(places, reach)
    return weights, weights, count


def _generalised(places: Places, reach: float) -> tuple[Tensor, Tensor, Tensor]:
    """Distances that count the less, the more uncertain both surfaces are in their direction.

    A place is uncertain along its plane and nearly certain across it: C = 1 − (1 − s) n nᵀ. Of the inverse
    of the sum of two such C what matters is along the mean normal; in all directions it is about a half.
    """
    stiff = 1 / (2 - (1 - _SOFT) * (1 + places.cosine)) - 0.5
    return stiff * places.share, places.share, (places.share > 0).sum(1)


def _step(row: Floats, stage: _Stage) -> tuple[Floats | None, float]:
    """The motion T_target_target that the sums (99,) of a pose ask for, and how far it moves the overlap."""
    along, plain, count = row[:49].reshape(7, 7), row[49:98].reshape(7, 7), row[98]
    total = plain[0, 0]
    if count < FEWEST or not total > 0:
        return None, 0.0
    centre, extent, _, change = about_centre(plain[0, 1:4] / total, plain[1:4, 1:4] / total)
    if not extent > 0:
        return None, 0.0
    matrix, pull = along[:6, :6] / total, along[:6, 6] / total
    if stage.everywhere:
        isotropic = _in_all_directions(plain / total)
        matrix = matrix + stage.everywhere * isotropic[:, :6]
        pull = pull + stage.everywhere * isotropic[:, 6]
    values, vectors = np.linalg.eigh(change @ matrix @ change.T)
    return motion_of(values, vectors, (change @ pull) @ vectors, centre, extent, stage.weak)


def _in_all_directions(mean: Floats) -> Floats:
    """Matrix and right side (6, 7) of plain distances, from mean products (7, 7) of 1, points and gaps."""
    (x, y, z), second, across = mean[0, 1:4], mean[1:4, 1:4], mean[1:4, 4:]
    result = np.zeros((6, 7))
    result[:3, :3] = np.eye(3)
    result[3:, :3] = [[0, -z, y], [z, 0, -x], [-y, x, 0]]
    result[:3, 3:6] = result[3:, :3].T
    result[3:, 3:6] = np.trace(second) * np.eye(3) - second
    result[:3, 6] = mean[0, 4:]
    result[3:, 6] = across[1, 2] - across[2, 1], across[2, 0] - across[0, 2], across[0, 1] - across[1, 0]
    return result


_STAGES = (
    *(_Stage(_generalised, width, 20, 0.03, weak=1e-9, everywhere=0.5) for width in WIDTHS),
    _Stage(_planes, REACH, STEPS, STILL, WEAK),
)
