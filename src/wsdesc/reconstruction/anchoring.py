"""Anchor a pose graph in the world by known items, and find the items and edges that are wrong.

Each component gets the world pose that most of its known items agree with. From there, edges and known items
are optimised together. Known items that do not agree with the result are left out and reported; edges that
contradict many known items are rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.known_items import KNOWN_OUTLIER, UP, KnownItem, level_item, rotation_between
from wsdesc.reconstruction.least_squares import Factor, Problem
from wsdesc.reconstruction.pose_graph import MAX_STEPS, OUTLIER, Edge, connected_scans, edge_factor
from wsdesc.reconstruction.world_pose import choose_world_pose, common_direction

_ROUNDS = 8  # of rejection


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


@dataclass(frozen=True, eq=False)
class _Component:
    """Scans that edges connect, and what is known about them."""

    scans: list[int]
    items: list[KnownItem]
    T_world_component: Floats | None  # (4, 4); None if too little is known
    undecided: bool  # see `WorldPose`

    def root(self, reference: int | None) -> int:
        """Return the reference scan if it is in the component, else the first scan."""
        return reference if reference is not None and reference in self.scans else self.scans[0]


def _anchor(
    count: int,
    edges: Sequence[Edge],
    T_component_scan: Floats,
    items: Sequence[KnownItem],
    R_scan_local: Floats,
    reference: int | None,
) -> Anchored:
    """Anchor the edges without rejecting any; the arguments are those of `anchor`."""
    components = _find_components(count, edges, items, T_component_scan)
    world, T = count, np.concatenate([T_component_scan, np.eye(4)[None]])
    level: list[KnownItem] = []
    for component in components:
        scans = component.scans
        if component.T_world_component is not None:
            T[scans] = component.T_world_component @ T_component_scan[scans]
        elif any(item.kind == "up" for item in component.items):
            level.append(_level(component, T, R_scan_local, reference))
        else:
            T[scans] = inverse(T_component_scan[component.root(reference)]) @ T_component_scan[scans]

    in_world = [c for c in components if c.T_world_component is not None]
    elsewhere = [c for c in components if c.T_world_component is None]
    levelled = {item.scan for item in level}
    free = [c for c in elsewhere if not levelled & set(c.scans)]
    fixed = np.array([world, *(c.root(reference) for c in free)])
    edge_factors = [edge_factor(edge) for edge in edges]
    active = [item for c in components if c not in free for item in c.items if _is_usable(item, c)]
    T, states, problem = _optimise(T, edge_factors, active, level, fixed, in_world)
    by_item = {id(state.item): state for state in states}
    deviations = np.zeros(0)
    if problem is not None:
        deviations = np.sqrt(problem.squared_errors(T))[: len(edges)]

    merged = sorted(scan for c in in_world for scan in c.scans)
    elsewhere.sort(key=lambda c: -len(c.scans))
    return Anchored(
        T_world_scan=T[:count],
        components=([merged] if merged else []) + [c.scans for c in elsewhere],
        in_world=bool(merged),
        levelled=([False] if merged else []) + [bool(levelled & set(c.scans)) for c in elsewhere],
        rejected_edges={},
        deviations=deviations,
        items=[by_item.get(id(item)) or _unused(item, components) for item in items],
        problem=problem,
    )


def _find_components(
    count: int, edges: Sequence[Edge], items: Sequence[KnownItem], T_component_scan: Floats
) -> list[_Component]:
    """Return the connected scans, with the known items that can be used."""
    components = []
    for scans in connected_scans(count, edges):
        inside = set(scans)
        own = [item for item in items if item.scan in inside]
        # A single scan with a known pose is confirmed by nothing.
        usable = len(scans) > 1 or sum(item.kind == "control" for item in own) >= 3
        used = own if usable else []
        components.append(_Component(scans, used, *choose_world_pose(used, T_component_scan)))
    return components


def _is_usable(item: KnownItem, component: _Component) -> bool:
    """Return whether an item can be used: outside of the world, only up can."""
    return component.T_world_component is not None or item.kind == "up"


def _unused(item: KnownItem, components: Sequence[_Component]) -> ItemState:
    """Return the state of an item that was not used, and why."""
    scans = next(c.scans for c in components if item.scan in c.scans)
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
    undecided = {scan for c in in_world if c.undecided for scan in c.scans}

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
        with_all_items = build(range(len(active)))
        assert with_all_items is not None
        squared = with_all_items.squared_errors(T)[len(edge_factors) + len(level) :]
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


def _level(component: _Component, T: Floats, R_scan_local: Floats, reference: int | None) -> KnownItem:
    """Level a component of which only up is known; return the item that fixes position and heading."""
    root = component.root(reference)
    ups = np.stack([T[item.scan][:3, :3] @ item.point for item in component.items if item.kind == "up"])
    T_root = np.eye(4)
    up = R_scan_local[root] @ T[root][:3, :3].T @ common_direction(ups)
    T_root[:3, :3] = rotation_between(up, UP) @ R_scan_local[root]
    T[component.scans] = T_root @ inverse(T[root]) @ T[component.scans]
    return level_item(root, T_root)
