"""Express a solved pose graph in the coordinates of the files and, if it is known, of the world."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array, diags_array

from wsdesc.cloud.local_frame import in_scan_frames
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse, make_pose, transform
from wsdesc.reconstruction.anchoring import Anchored, ItemState, anchor
from wsdesc.reconstruction.covariance import diagonal_blocks_of_inverse
from wsdesc.reconstruction.known import Known, KnownResult, with_defaults
from wsdesc.reconstruction.known_items import known_items
from wsdesc.reconstruction.least_squares import adjoints, cross_matrices
from wsdesc.reconstruction.placement import Placement
from wsdesc.reconstruction.pose_graph import Edge, edge_factor


class Georeferenced(NamedTuple):
    """Poses in file coordinates; scans are numbered."""

    T_world_scan: Floats  # (N, 4, 4)
    components: list[list[int]]  # with two scans or more; first that in the world, if there is one
    in_world: bool  # whether the first component is in the frame of known poses or control points
    covariances: Floats  # (N, 6, 6) of translation and rotation at each scan's centre, in axes of the frame
    known: list[KnownResult]
    information: list[Floats | None]  # (6, 6) of each accepted pair; see `EdgeResult.information`
    placement: Placement  # with the edges that contradict known items rejected


def georeference(
    names: Sequence[str],
    placement: Placement,
    T_scan_local: Sequence[Floats],
    resolution: float,
    known: Known,
) -> Georeferenced:
    """Anchor a pose graph by what is known, and convert it to file coordinates.

    Args:
        names: Names of the N scans.
        placement: Poses and edges, in model metres.
        T_scan_local: (4, 4) local frame of each scan.
        resolution: Working resolution, in the scans' unit.
        known: What is known beforehand.
    """
    metre = resolution / INDOOR_RESOLUTION
    known = with_defaults(known, resolution)
    index = {name: k for k, name in enumerate(names)}
    offset = _offset(known, index, T_scan_local)
    items = known_items(known, index, T_scan_local, offset, metre)
    accepted = [p for p, pair in enumerate(placement.edges) if pair.rejection is None]
    edges = [edge for p in accepted if (edge := placement.edges[p].edge) is not None]
    axes = np.stack([T[:3, :3] for T in T_scan_local])
    reference = index.get(known.reference or "")
    anchored = anchor(len(names), edges, placement.graph.T_world_scan, items, axes, reference)

    T_world_scan, frames = _in_file_coordinates(anchored, T_scan_local, reference, offset, metre)
    updated = _updated(placement, accepted, anchored)
    return Georeferenced(
        T_world_scan=T_world_scan,
        components=[c for c in frames if len(c) > 1 or (anchored.in_world and c is frames[0])],
        in_world=anchored.in_world,
        covariances=_covariances(anchored, [frame[0] for frame in frames], T_scan_local, metre),
        information=[
            None if p.rejection or not p.edge else _information(p.edge, T_scan_local, metre)
            for p in updated.edges
        ],
        known=[_known_result(state, names, metre) for state in anchored.items if _is_reported(state)]
        + _unused(known, index),
        placement=updated,
    )


def _in_file_coordinates(
    anchored: Anchored, T_scan_local: Sequence[Floats], reference: int | None, offset: Floats, metre: float
) -> tuple[Floats, list[list[int]]]:
    """Return the poses (N, 4, 4) of all scans, and the scans of each frame; a frame's root comes first."""
    T_world_scan = np.tile(np.eye(4), (len(T_scan_local), 1, 1))
    frames = []
    for number, scans in enumerate(anchored.components):
        root = reference if reference is not None and reference in scans else scans[0]
        frame = T_scan_local[root]
        if number == 0 and anchored.in_world:
            frame = make_pose(np.eye(3), offset)
        elif anchored.levelled[number]:
            frame = make_pose(np.eye(3), T_scan_local[root][:3, 3])
        else:  # the frame is that of the root
            scans = [root, *(scan for scan in scans if scan != root)]
        frames.append(scans)
        for k in scans:
            T = anchored.T_world_scan[k].copy()
            T[:3, 3] *= metre
            T_world_scan[k] = in_scan_frames(T, T_scan_local[k], frame)
    return T_world_scan, frames


def _offset(known: Known, index: dict[str, int], T_scan_local: Sequence[Floats]) -> Floats:
    """Choose a world point (3,) near the scans, as origin: float64 then has digits to spare."""
    points = [np.array(point.world) for point in known.control]
    points += [
        transform(T_scan_local[index[name]][None, :3, 3], prior.T_world_scan)[0]
        for name, prior in known.poses.items()
        if name in index
    ]
    return np.round(np.median(points, axis=0)) if points else np.zeros(3)


def _covariances(
    anchored: Anchored, roots: Sequence[int], T_scan_local: Sequence[Floats], metre: float
) -> Floats:
    """Return the covariance (N, 6, 6) of translation and rotation of each scan, in axes of its frame."""
    count = len(anchored.T_world_scan)
    covariances = np.zeros((count, 6, 6))
    problem = anchored.problem
    if problem is None:
        return covariances
    T = np.concatenate([anchored.T_world_scan, np.eye(4)[None]])
    _, hessian = problem.normal_equations(T, problem.limit)
    # As in the minimization: directions that nothing determines get a huge variance instead of none.
    least = diags_array(np.full(hessian.shape[0], 1e-12 * hessian.diagonal().max(initial=1.0)))
    covariances[problem.free] = diagonal_blocks_of_inverse(csc_array(hessian + least))
    # Steps of the graph are in the axes of each scan.
    R = anchored.T_world_scan[:, :3, :3].copy()
    for number, scans in enumerate(anchored.components):
        if not (number == 0 and anchored.in_world) and not anchored.levelled[number]:
            R[scans] = T_scan_local[roots[number]][:3, :3] @ R[scans]
    rotation = np.zeros((count, 6, 6))
    rotation[:, :3, :3], rotation[:, 3:, 3:] = metre * R, R
    return np.asarray(rotation @ covariances @ rotation.transpose(0, 2, 1))


def _information(edge: Edge, T_scan_local: Sequence[Floats], metre: float) -> Floats:
    """Return the information (6, 6) of small motions in the source's coordinates, in the scans' unit."""
    factor = edge_factor(edge)
    T_local_scan = inverse(T_scan_local[edge.source])
    T_local_scan[:3, 3] /= metre
    about_centre = np.eye(6)  # of the overlap, instead of the origin
    about_centre[:3, 3:] = -cross_matrices(factor.centre[None])[0]
    J = about_centre @ adjoints((edge.T_target_source @ T_local_scan)[None])[0]
    J[:, :3] /= metre
    J[3:] *= factor.extent
    root = factor.root @ J
    return np.asarray(root.T @ root)


def _is_reported(state: ItemState) -> bool:
    """Return whether an item is reported: up of a scan that was not placed says nothing."""
    return state.item.kind != "up" or state.deviation is not None


def _known_result(state: ItemState, names: Sequence[str], metre: float) -> KnownResult:
    item = state.item
    return KnownResult(
        kind=item.kind,
        scan=names[item.scan],
        name=item.name,
        distance=None if state.distance is None else state.distance * metre,
        angle=None if state.angle is None else math.degrees(state.angle),
        deviation=state.deviation,
        rejection=state.rejection,
    )


def _unused(known: Known, index: dict[str, int]) -> list[KnownResult]:
    """Report what is known about scans that cannot be used."""
    reason = "the scan cannot be used"
    results = [KnownResult("pose", n, "", None, None, None, reason) for n in known.poses if n not in index]
    results += [
        KnownResult("control", point.scan, point.name or f"{row + 1}", None, None, None, reason)
        for row, point in enumerate(known.control)
        if point.scan not in index
    ]
    return results


def _updated(placement: Placement, accepted: Sequence[int], anchored: Anchored) -> Placement:
    edges = list(placement.edges)
    for n, p in enumerate(accepted):
        rejection = anchored.rejected_edges.get(n)
        deviation = None if rejection else float(anchored.deviations[n])
        edges[p] = edges[p]._replace(rejection=rejection, deviation=deviation)
    return placement._replace(edges=edges)
