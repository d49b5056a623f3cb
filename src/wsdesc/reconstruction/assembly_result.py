"""Build the result of a reconstruction: poses and edges in names and coordinates of the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from wsdesc.cloud.local_frame import in_scan_frames
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse
from wsdesc.reconstruction.disambiguation import MIN_CONFIDENCE
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.georeference import Georeferenced, georeference
from wsdesc.reconstruction.pair_selection import RegisteredPair
from wsdesc.reconstruction.placement import Placement
from wsdesc.reconstruction.pose_graph import Pair
from wsdesc.reconstruction.result import Reconstruction
from wsdesc.registration.result import Pose

if TYPE_CHECKING:
    from wsdesc.reconstruction.assembly import Assembly


def build_result(
    assembly: Assembly, registered: Mapping[Pair, RegisteredPair], placement: Placement
) -> Reconstruction:
    """Express poses and edges in names and coordinates of the files."""
    names = [member.name for member in assembly.members]
    resolution = assembly.settings.resolution
    local_frames = [member.T_scan_local for member in assembly.members]
    geo = georeference(names, placement, local_frames, resolution, assembly.known)
    edges = []
    placed_pairs = zip(registered.items(), geo.placement.edges, geo.information, strict=True)
    for (ends, pair), placed, information in placed_pairs:
        a, b, T, numbers, rmse = *ends, None, (0.0, 0.0, 0), None
        if placed.edge is not None:
            a, b = placed.edge.source, placed.edge.target
            T = _in_files(assembly, placed.edge.T_target_source, a, b)
            rank = next(k for k, edge in enumerate(pair.edges) if edge is placed.edge)
            numbers = (placed.edge.confidence, pair.overlaps[rank], rank)
            rmse = placed.edge.rmse * resolution / INDOOR_RESOLUTION
        keypoints, rejection, deviation = pair.keypoints, placed.rejection, placed.deviation
        edge = EdgeResult(names[a], names[b], T, *numbers, keypoints, rejection, deviation, rmse)
        edges.append(replace(edge, information=information))
    frames = [_Frame.of(scans, names, geo) for scans in geo.components]
    if assembly.known.empty:
        frames = [_in_earlier_frame(frame, assembly.bases) for frame in frames]
    placed_names = {name for frame in frames for name in frame.poses}
    contradicting = {names[k]: reason for k, reason in placement.contradicting.items()}
    alone = [name for name in names if name not in placed_names]
    reasons = {name: contradicting.get(name) or _reason(name, edges) for name in alone}
    return Reconstruction(
        T_world_scan={name: T for frame in frames for name, T in frame.poses.items()},
        components=[list(frame.poses) for frame in frames],
        not_placed=assembly.failed | reasons,
        edges=edges,
        resolution=resolution,
        paths=assembly.paths,
        covariances={name: C for frame in frames for name, C in frame.covariances.items()},
        known=geo.known,
        in_world=geo.in_world or any(frame.in_world for frame in frames[:1]),
        duplicates=assembly.duplicates,
    )


def _in_files(assembly: Assembly, T_b_a: Pose, a: int, b: int) -> Pose:
    """Convert a pose in model metres between local frames to one in file coordinates."""
    T = T_b_a.copy()
    T[:3, 3] *= assembly.settings.resolution / INDOOR_RESOLUTION
    return in_scan_frames(T, assembly.members[a].T_scan_local, assembly.members[b].T_scan_local)


def _in_earlier_frame(frame: _Frame, bases: Sequence[Reconstruction]) -> _Frame:
    """Move a frame so that its first scan of an earlier model keeps its pose, and put that scan first."""
    for base in bases:
        for number, names in enumerate(base.components):
            first = next((name for name in names if name in frame.poses), None)
            if first is not None:
                moved = frame.moved(first, base.T_world_scan[first])
                return replace(moved, in_world=base.in_world and number == 0)
    return frame


@dataclass(frozen=True, eq=False)
class _Frame:
    """Poses and covariances of scans that share a frame, by name."""

    poses: dict[str, Pose]
    covariances: dict[str, Floats]
    in_world: bool = False

    @classmethod
    def of(cls, scans: Sequence[int], names: Sequence[str], geo: Georeferenced) -> _Frame:
        poses = {names[k]: geo.T_world_scan[k] for k in scans}
        return cls(poses, {names[k]: geo.covariances[k] for k in scans})

    def moved(self, first: str, T_world_first: Pose) -> _Frame:
        """Move all scans so that one, which comes first, has the given pose."""
        poses, covariances = self.poses, self.covariances
        if not np.array_equal(T_world_first, poses[first]):
            T = T_world_first @ inverse(poses[first])
            rotation = np.kron(np.eye(2), T[:3, :3])
            poses = {name: T @ pose for name, pose in poses.items()}
            covariances = {name: rotation @ C @ rotation.T for name, C in covariances.items()}
        return _Frame({first: T_world_first} | {n: T for n, T in poses.items() if n != first}, covariances)


def _reason(name: str, edges: Sequence[EdgeResult]) -> str:
    """Return why no edge of a scan was accepted."""
    own = [edge for edge in edges if name in (edge.source, edge.target)]
    best = max(own, key=lambda edge: edge.confidence, default=None)
    if best is None or best.confidence < MIN_CONFIDENCE:
        confidence = 0.0 if best is None else best.confidence
        return f"no overlap with another scan found; its best pair has a confidence of {confidence:.2f}"
    other = best.target if best.source == name else best.source
    return f"its edge to {other}, confidence {best.confidence:.2f}, was rejected: {best.rejection}"
