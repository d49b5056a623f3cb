"""Anchor a pose graph in the world by what is known, and find what of it is wrong.

Each component gets the world pose that most of its known items agree with. From there, edges and known items
are optimised together. Known items that do not agree with the result are left out and reported; edges that
contradict many known items are rejected.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from wsdesc.alignment.rigid import fit_rigid
from wsdesc.core.geometry import Floats, inverse, transform
from wsdesc.reconstruction.known_items import KNOWN_OUTLIER, KnownItem, level_item, rotation_between
from wsdesc.reconstruction.least_squares import Factor, Problem
from wsdesc.reconstruction.pose_graph import MAX_STEPS, OUTLIER, Edge, connected_scans, edge_factor

_MAX_HYPOTHESES = {1: 100, 2: 200, 3: 400}  # per component, by the number of items that each takes
_ROUNDS = 8  # of rejection
_SEPARATE = 0.5  # agreement below which two hypotheses contradict each other in an item
_UP = np.array([0.0, 0.0, 1.0])


class ItemState(NamedTuple):
    """A known item after the optimization."""

    item: KnownItem
    distance: float | None  # metres; None if the component has no pose in the world
    angle: float | None  # radians
    deviation: float | None  # standard deviations
    rejection: str | None


class Anchored(NamedTuple):
    """A pose graph with known items."""

    T_world_scan: Floats  # (N, 4, 4)
    components: list[list[int]]  # scans that share a frame; the world first, then the largest
    in_world: bool  # whether the first component is in the world
    levelled: list[bool]  # (C,) whether up is known for a component that is not in the world
    rejected_edges: dict[int, str]  # reasons
    deviations: Floats  # (E,) of the edges, in standard deviations
    items: list[ItemState]
    problem: Problem | None  # at the solution, for covariances; None without factors


def anchor(
    count: int,
    edges: Sequence[Edge],
    T_component_scan: Floats,
    items: Sequence[KnownItem],
    R_scan_local: Floats,
    reference: int | None = None,
) -> Anchored:
    """Find the poses that satisfy edges and known items best.

    Args:
        count: Number of scans N.
        edges: E accepted edges.
        T_component_scan: (N, 4, 4) poses by the edges alone, each component in a frame of its own.
        items: What is known.
        R_scan_local: (N, 3, 3) axes of the poses in the coordinates of the scans.
        reference: Scan whose frame is that of its component, if nothing else determines a frame.
    """
    rejected: dict[int, str] = {}
    kept = list(range(len(edges)))
    for _ in range(_ROUNDS):
        result = _anchor(count, [edges[k] for k in kept], T_component_scan, items, R_scan_local, reference)
        outliers = np.flatnonzero(result.deviations > OUTLIER)
        if len(outliers) == 0:
            break
        rejected |= {
            kept[n]: f"{result.deviations[n]:.0f} standard deviations from what is known about its scans"
            for n in outliers.tolist()
        }
        kept = [k for n, k in enumerate(kept) if n not in set(outliers.tolist())]
    deviations = np.zeros(len(edges))
    deviations[kept] = result.deviations
    return result._replace(rejected_edges=rejected, deviations=deviations)


class _Component:
    """Scans that edges connect, and what is known about them."""

    def __init__(self, scans: list[int], items: list[KnownItem]) -> None:
        self.scans, self.items = scans, items
        self.T_world_component: Floats | None = None
        self.undecided = False  # whether another pose agrees with as many items


def _anchor(
    count: int,
    edges: Sequence[Edge],
    T_component_scan: Floats,
    items: Sequence[KnownItem],
    R_scan_local: Floats,
    reference: int | None,
) -> Anchored:
    components = _find_components(count, edges, items)
    world, T = count, np.concatenate([T_component_scan, np.eye(4)[None]])
    level: list[KnownItem] = []
    for part in components:
        _choose_world_pose(part, T_component_scan)
        if part.T_world_component is None:
            if any(item.kind == "up" for item in part.items):
                level.append(_level(part, T, R_scan_local, reference))
            else:
                first = reference if reference in part.scans else part.scans[0]
                T[part.scans] = inverse(T_component_scan[first]) @ T_component_scan[part.scans]
        else:
            T[part.scans] = part.T_world_component @ T_component_scan[part.scans]

    in_world = [part for part in components if part.T_world_component is not None]
    levelled = {item.scan for item in level}
    free = [part for part in components if part not in in_world and not levelled & set(part.scans)]
    fixed = np.array([world, *(reference if reference in c.scans else c.scans[0] for c in free)])
    edge_factors = [edge_factor(edge) for edge in edges]
    active = [i for part in components if part not in free for i in part.items if _counts(i, part)]
    T, states, problem = _optimise(T, edge_factors, active, level, fixed, in_world)
    by_item = {id(state.item): state for state in states}
    deviations = np.zeros(0)
    if problem is not None:
        deviations = np.sqrt(problem.squared_errors(T))[: len(edges)]

    merged = sorted(itertools.chain(*(part.scans for part in in_world)))
    rest = sorted((part for part in components if part not in in_world), key=lambda p: -len(p.scans))
    return Anchored(
        T_world_scan=T[:count],
        components=([merged] if merged else []) + [part.scans for part in rest],
        in_world=bool(merged),
        levelled=([False] if merged else []) + [bool(levelled & set(part.scans)) for part in rest],
        rejected_edges={},
        deviations=deviations,
        items=[by_item.get(id(item)) or _unused(item, components) for item in items],
        problem=problem,
    )


def _find_components(count: int, edges: Sequence[Edge], items: Sequence[KnownItem]) -> list[_Component]:
    """Return the connected scans, with the known items that can be used."""
    components = []
    for scans in connected_scans(count, edges):
        inside = set(scans)
        own = [item for item in items if item.scan in inside]
        # A single scan with a known pose is confirmed by nothing.
        usable = len(scans) > 1 or sum(item.kind == "control" for item in own) >= 3
        components.append(_Component(scans, own if usable else []))
    return components


def _counts(item: KnownItem, part: _Component) -> bool:
    """Return whether an item can be used: outside of the world, only up can."""
    return part.T_world_component is not None or item.kind == "up"


def _unused(item: KnownItem, components: Sequence[_Component]) -> ItemState:
    scans = next(part.scans for part in components if item.scan in part.scans)
    reason = "no edge confirms it: the scan was not registered with any other"
    if len(scans) > 1:
        reason = (
            f"too little is known about the {len(scans)} scans of its component: one known pose, three "
            "control points that are not on a line, or two with up are needed"
        )
    return ItemState(item, None, None, None, reason)


def _optimise(
    T: Floats,
    edge_factors: list[Factor],
    active: list[KnownItem],
    level: list[KnownItem],
    fixed: np.ndarray,
    in_world: Sequence[_Component],
) -> tuple[Floats, list[ItemState], Problem | None]:
    """Minimize over all poses, and leave out known items until all others agree."""
    world, used = len(T) - 1, list(range(len(active)))
    undecided = {scan for part in in_world if part.undecided for scan in part.scans}

    def build(chosen: Sequence[int]) -> Problem | None:
        factors = [item.factor(world, T[item.scan]) for item in level]
        factors = [*edge_factors, *factors, *(active[k].factor(world, T[active[k].scan]) for k in chosen)]
        return Problem(factors, fixed, len(T)) if factors else None

    deviations = np.zeros(len(active))
    for _ in range(_ROUNDS):
        problem = build(used)
        if problem is None:
            break
        T = problem.solve(T, MAX_STEPS) if active or level else T  # the edges alone are satisfied already
        everything = build(range(len(active)))
        assert everything is not None
        squared = everything.squared_errors(T)[len(edge_factors) + len(level) :]
        deviations = np.sqrt(squared)
        agreeing = [k for k, d in enumerate(deviations) if d <= KNOWN_OUTLIER or active[k].exact]
        if agreeing == used:
            break
        used = agreeing
    states = []
    for k, item in enumerate(active):
        distance, angle = item.errors(T[item.scan])
        rejection = None
        if k not in used:
            rejection = f"{deviations[k]:.0f} standard deviations from the poses that the others give"
            if item.scan in undecided and item.kind != "up":
                rejection += "; as many agree with it as contradict it: check all known items"
        states.append(ItemState(item, distance, angle, float(deviations[k]), rejection))
    return T, states, problem


def _choose_world_pose(part: _Component, T_component_scan: Floats) -> None:
    """Find the pose of a component in the world that most of its known items agree with."""
    score, others = 0.0, list[tuple[float, Floats]]()
    for T, near in _hypotheses(part.items, T_component_scan):
        agreement = np.array([i.agreement(T @ T_component_scan[i.scan], near) for i in part.items])
        others.append((float(agreement.sum()), agreement))
        if agreement.sum() > score and _determined(part.items, agreement):
            score, chosen, part.T_world_component = float(agreement.sum()), agreement, T
    part.undecided = any(
        other > score - _SEPARATE and np.abs(agreement - chosen).max() > _SEPARATE
        for other, agreement in others
        if part.T_world_component is not None
    )


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
    up = _common_direction(np.stack(ups))
    for i, j in _subsets(len(control), 2, rng):
        length = float(np.linalg.norm(world[i] - world[j]))
        a = np.stack([points[i], points[j], points[i] + length * up, points[j] + length * up])
        b = np.stack([world[i], world[j], world[i] + length * _UP, world[j] + length * _UP])
        yield _fit(a, b), b[:2].mean(axis=0)


def _subsets(count: int, size: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """List the subsets of `count` numbers, or a random choice of them if there are many."""
    if math.comb(count, size) <= _MAX_HYPOTHESES[size]:
        return list(itertools.combinations(range(count), size))
    return [tuple(rng.choice(count, size, replace=False).tolist()) for _ in range(_MAX_HYPOTHESES[size])]


def _fit(a: Floats, b: Floats) -> Floats:
    return np.asarray(fit_rigid(torch.from_numpy(a), torch.from_numpy(b)).numpy())


def _common_direction(directions: Floats) -> Floats:
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


def _level(part: _Component, T: Floats, R_scan_local: Floats, reference: int | None) -> KnownItem:
    """Level a component of which only up is known; return the item that fixes position and heading."""
    root = reference if reference in part.scans else part.scans[0]
    ups = np.stack([T[item.scan][:3, :3] @ item.point for item in part.items if item.kind == "up"])
    T_root = np.eye(4)
    up = R_scan_local[root] @ T[root][:3, :3].T @ _common_direction(ups)
    T_root[:3, :3] = rotation_between(up, _UP) @ R_scan_local[root]
    T[part.scans] = T_root @ inverse(T[root]) @ T[part.scans]
    return level_item(root, T_root)
