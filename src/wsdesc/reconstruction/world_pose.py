"""Find the pose of connected scans in the world by what is known about them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from wsdesc.alignment.rigid import fit_rigid
from wsdesc.core.geometry import Floats, inverse, transform
from wsdesc.reconstruction.known_items import KNOWN_OUTLIER, UP, KnownItem

_MAX_HYPOTHESES = {1: 100, 2: 200, 3: 400}  # per component, by the number of items that each takes
_SEPARATE = 0.5  # agreement below which two hypotheses contradict each other in an item


class WorldPose(NamedTuple):
    """Pose of a component in the world."""

    T_world_component: Floats | None  # (4, 4); None if too little is known
    undecided: bool  # whether another pose agrees with as many items


def choose_world_pose(items: Sequence[KnownItem], T_component_scan: Floats) -> WorldPose:
    """Find the pose of a component in the world that most of its known items agree with.

    Args:
        items: Known items of its scans.
        T_component_scan: (N, 4, 4) poses of all scans.
    """
    T_world_component: Floats | None = None
    score, others = 0.0, list[tuple[float, Floats]]()
    for T, near in _hypotheses(items, T_component_scan):
        agreement = np.array([i.agreement(T @ T_component_scan[i.scan], near) for i in items])
        others.append((float(agreement.sum()), agreement))
        if agreement.sum() > score and _determined(items, agreement):
            score, chosen, T_world_component = float(agreement.sum()), agreement, T
    undecided = any(
        other > score - _SEPARATE and np.abs(agreement - chosen).max() > _SEPARATE
        for other, agreement in others
        if T_world_component is not None
    )
    return WorldPose(T_world_component, undecided)


def _hypotheses(items: Sequence[KnownItem], T: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Yield poses of a component in the world, and the world point (3,) that each is best known at."""
    rng = np.random.default_rng(0)
    poses = [item for item in items if item.kind == "pose"]
    for (k,) in _subsets(len(poses), 1, rng):
        item = poses[k]
        yield item.T_world_scan @ inverse(T[item.scan]), item.world_point()
    control = [item for item in items if item.kind == "control"]
    if not control:
        return
    points = np.stack([transform(i.point[None], T[i.scan])[0] for i in control])  # (n, 3) in the component
    world = np.stack([item.world_point() for item in control])
    slack = 2 * KNOWN_OUTLIER * max(item.length for item in control)
    for chosen in _subsets(len(control), 3, rng):
        a, b = points[list(chosen)], world[list(chosen)]
        sides = [np.linalg.norm(x - np.roll(x, 1, axis=0), axis=1) for x in (a, b)]
        if np.all(np.abs(sides[0] - sides[1]) < slack + 0.1 + 0.02 * sides[1]):
            yield _fit(a, b), b.mean(axis=0)
    ups = [T[item.scan][:3, :3] @ item.point for item in items if item.kind == "up"]
    if not ups:
        return
    up = common_direction(np.stack(ups))
    for i, j in _subsets(len(control), 2, rng):
        length = float(np.linalg.norm(world[i] - world[j]))
        a = np.stack([points[i], points[j], points[i] + length * up, points[j] + length * up])
        b = np.stack([world[i], world[j], world[i] + length * UP, world[j] + length * UP])
        yield _fit(a, b), b[:2].mean(axis=0)


def _subsets(count: int, size: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """List the subsets of `count` numbers, or a random choice of them if there are many."""
    if math.comb(count, size) <= _MAX_HYPOTHESES[size]:
        return list(itertools.combinations(range(count), size))
    return [tuple(rng.choice(count, size, replace=False).tolist()) for _ in range(_MAX_HYPOTHESES[size])]


def _fit(a: Floats, b: Floats) -> Floats:
    return np.asarray(fit_rigid(torch.from_numpy(a), torch.from_numpy(b)).numpy())


def common_direction(directions: Floats) -> Floats:
    """Return the direction (3,) among unit vectors (n, 3) that most of the others are near to."""
    nearness = np.clip(directions @ directions.T - 0.99, 0.0, None).sum(axis=1)
    near = directions @ directions[nearness.argmax()] > 0.99
    mean = directions[near].mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean))


def _determined(items: Sequence[KnownItem], agreement: Floats) -> bool:
    """Return whether the items that agree determine all six degrees of freedom of a component."""
    agreeing = [item for item, value in zip(items, agreement, strict=True) if value > 0]
    if any(item.kind == "pose" for item in agreeing):
        return True
    control = [item for item in agreeing if item.kind == "control"]
    if len(control) < 2:
        return False
    world = np.stack([item.world_point() for item in control])
    sigma = max(item.length for item in control)
    spread = np.linalg.svd(world - world.mean(axis=0), compute_uv=False)
    if len(control) > 2 and spread[1] > max(KNOWN_OUTLIER * sigma, 0.02 * spread[0]):
        return True
    horizontal = np.linalg.norm(np.ptp(world[:, :2], axis=0))
    return any(item.kind == "up" for item in agreeing) and bool(horizontal > KNOWN_OUTLIER * sigma)
