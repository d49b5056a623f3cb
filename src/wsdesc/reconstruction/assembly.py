"""Assemble a model: register the new pairs of its scans, and place the scans.

A model has described scans and registered pairs. Some come from earlier models: their pairs are kept, and
only pairs with other scans are registered. All pairs together place the scans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from wsdesc.cloud.local_frame import in_local_frames
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, inverse
from wsdesc.core.progress import ProgressHook
from wsdesc.reconstruction.assembly_result import build_result
from wsdesc.reconstruction.jobs import DescribedScan, DescribeJob, DescribeSettings
from wsdesc.reconstruction.known import Known
from wsdesc.reconstruction.model_file import ModelPair, ModelScan, ModelState
from wsdesc.reconstruction.options import ReconstructOptions
from wsdesc.reconstruction.pair_selection import (
    ALL_PAIRS,
    RegisteredPair,
    connecting_pairs,
    first_pairs,
    loop_pairs,
)
from wsdesc.reconstruction.placement import KeptEdge, Placement, place_scans
from wsdesc.reconstruction.places import SavedPlaces, find_places, predicted_overlaps
from wsdesc.reconstruction.pose_graph import Pair
from wsdesc.reconstruction.result import Reconstruction
from wsdesc.reconstruction.rigid_frames import RigidFrame
from wsdesc.reconstruction.runner import Runner
from wsdesc.reconstruction.usual_violation import update_confidences
from wsdesc.reconstruction.verified_layout import verify_layout

_REACH = 3.0  # times the root mean square radius of a scan: hardly any point is further away


@dataclass(frozen=True, eq=False)
class Member:
    """A described scan of the model to assemble."""

    name: str
    path: Path
    job: DescribeJob
    scan: DescribedScan
    origin: int | None = None  # number of the earlier model that it comes from; None for a new scan

    @property
    def T_scan_local(self) -> Floats:
        """Local frame (4, 4) of the description, in file coordinates."""
        return np.array(self.scan.T_scan_local)


@dataclass(frozen=True, eq=False)
class Assembly:
    """Scans and pairs of a model, before they are placed.

    Attributes:
        members: All described scans.
        settings: Settings of the descriptions.
        options: Options of the model.
        earlier_pairs: Registered pairs of earlier models, by indices of members.
        places: Signatures of earlier models.
        bases: Earlier models, in terms of the names of the members. Frames keep the pose of their first scan.
        fixed: Keep all relative poses inside the frames of earlier models.
        paths: File of each scan, by name, with scans that are no members.
        known: What is known about poses beforehand.
        failed: Scans that cannot be used, with reasons.
        duplicates: Scans that equal another one, with its name.
    """

    members: list[Member]
    settings: DescribeSettings
    options: ReconstructOptions
    earlier_pairs: dict[Pair, RegisteredPair] = field(default_factory=dict)
    places: SavedPlaces | None = None
    bases: Sequence[Reconstruction] = ()
    fixed: bool = False
    paths: dict[str, Path] = field(default_factory=dict)
    known: Known = field(default_factory=Known)
    failed: dict[str, str] = field(default_factory=dict)
    duplicates: dict[str, str] = field(default_factory=dict)

    @property
    def radii(self) -> Floats:
        """Root mean square radius (N,) of each member, in model metres."""
        return np.array([member.scan.radius for member in self.members])

    def register(self, runner: Runner) -> tuple[dict[Pair, RegisteredPair], SavedPlaces | None]:
        """Register new pairs; return all pairs, and the signatures of the scans."""
        o, jobs = self.options, [member.job for member in self.members]
        origins = [member.origin for member in self.members]
        registered = dict(self.earlier_pairs)
        if len(set(origins)) == 1 and origins[0] is not None:
            return update_confidences(registered), self.places  # all scans are of one earlier model
        names = [member.name for member in self.members]
        with runner.progress("select pairs", 0):
            places = find_places(names, jobs, o.seed, self.places)
            pairs = first_pairs(places.signatures, o.neighbours, origins, places.score_pairs)
        registered |= runner.register([pair for pair in pairs if pair not in self.earlier_pairs], jobs)
        registered = update_confidences(registered)
        if len(jobs) > ALL_PAIRS:
            graph = self.place(registered, runner.progress).graph
            overlaps: dict[Pair, float] = {}
            for scans in graph.components:
                near = self._near_new_scans(scans, graph.T_world_scan)
                overlaps |= predicted_overlaps(graph.T_world_scan, near, places.features)
            loops = loop_pairs(overlaps, registered, max(1, o.neighbours // 2), origins)
            registered |= runner.register(loops, jobs, "close loops")
            registered = update_confidences(registered)
        if o.more_keypoints > o.keypoints:
            graph = self.verify(registered, self.place(registered, runner.progress), runner).graph
            retry = connecting_pairs(graph.components, registered, places.signatures, o.neighbours, origins)
            registered = _register_again(retry, registered, jobs, o.more_keypoints, runner)
        return registered, places.saved(names)

    def _near_new_scans(self, scans: list[int], T_world_scan: Floats) -> list[int]:
        """Return the scans of a frame that may overlap a new one: the descriptions of others are not read."""
        new = [k for k in scans if self.members[k].origin != 0]
        if not self.bases or not new:
            return new
        radii = self.radii
        centres = T_world_scan[:, :3, 3]
        distance = np.linalg.norm(centres[scans][:, None] - centres[new], axis=2)  # (scans, new)
        reach = _REACH * (radii[scans][:, None] + radii[new])
        return [scan for scan, near in zip(scans, (distance < reach).any(axis=1), strict=True) if near]

    def place(self, registered: Mapping[Pair, RegisteredPair], progress: ProgressHook) -> Placement:
        """Place all scans."""
        frames, kept = self._rigid_frames(registered) if self.fixed else ([], {})
        new = {k for k, member in enumerate(self.members) if self.bases and member.origin is None}
        with progress("place scans", 0):
            edges = [pair.edges for pair in registered.values()]
            return place_scans(edges, self.radii, frames=frames, kept=kept, new=new)

    def verify(
        self, registered: Mapping[Pair, RegisteredPair], placement: Placement, runner: Runner
    ) -> Placement:
        """Check the placed scans by free space. Fixed poses are not checked."""
        if self.fixed:
            return placement
        jobs = [member.job for member in self.members]
        edges = [pair.edges for pair in registered.values()]
        return verify_layout(
            placement,
            edges,
            self.radii,
            lambda poses: runner.check(poses, jobs),
            distinct=self.options.distinct,
        )

    def _rigid_frames(
        self, registered: Mapping[Pair, RegisteredPair]
    ) -> tuple[list[RigidFrame], dict[int, KeptEdge]]:
        """Return the frames of earlier models, and the state of the pairs inside them."""
        index = {member.name: k for k, member in enumerate(self.members)}
        unit = self.settings.resolution / INDOOR_RESOLUTION
        frame_of: dict[int, int] = {}
        frames: list[RigidFrame] = []
        for base in self.bases:
            for names in base.components:
                scans = [index[name] for name in names if name in index and index[name] not in frame_of]
                if not scans:
                    continue
                T_world = {k: base.T_world_scan[self.members[k].name] for k in scans}
                first = self.members[scans[0]].T_scan_local
                T_frame = [
                    in_local_frames(inverse(T_world[scans[0]]) @ T, self.members[k].T_scan_local, first)
                    for k, T in T_world.items()
                ]
                poses = np.stack(T_frame)
                poses[:, :3, 3] /= unit
                frame_of |= dict.fromkeys(scans, len(frames))
                frames.append(RigidFrame(scans, poses))
        states = {
            frozenset((index[edge.source], index[edge.target])): KeptEdge(edge.rank, edge.rejection)
            for base in self.bases[::-1]
            for edge in base.edges
            if edge.source in index and edge.target in index
        }
        kept = {
            p: states[frozenset(pair)]
            for p, pair in enumerate(registered)
            if frozenset(pair) in states and len({frame_of.get(k, -1 - k) for k in pair}) == 1
        }
        return frames, kept

    def state(self, registered: Mapping[Pair, RegisteredPair], places: SavedPlaces | None) -> ModelState:
        """Return what the model needs to grow."""
        names = [member.name for member in self.members]
        return ModelState(
            options=self.options.model_copy(update={"resolution": self.settings.resolution}),
            weights=self.settings.weights,
            known=self.known,
            places=places,
            scans={m.name: ModelScan(m.job.file.content, m.scan) for m in self.members},
            pairs=[
                ModelPair(names[pair.source], names[pair.target], pair.candidates, pair.keypoints)
                for pair in registered.values()
            ],
        )


def assemble(assembly: Assembly, runner: Runner) -> Reconstruction:
    """Register the new pairs of a model and place its scans."""
    registered, places = assembly.register(runner)
    placement = assembly.verify(registered, assembly.place(registered, runner.progress), runner)
    result = build_result(assembly, registered, placement)
    return replace(result, state=assembly.state(registered, places))


def pairs_by_index(pairs: Sequence[ModelPair], index: Mapping[str, int]) -> dict[Pair, RegisteredPair]:
    """Return the registered pairs of a model between scans in `index`, by these indices."""
    registered = {}
    for pair in pairs:
        if pair.source in index and pair.target in index:
            i, j = index[pair.source], index[pair.target]
            registered[min(i, j), max(i, j)] = RegisteredPair.of(i, j, pair.candidates, pair.keypoints)
    return dict(sorted(registered.items()))


def _register_again(
    pairs: Sequence[Pair],
    registered: dict[Pair, RegisteredPair],
    jobs: Sequence[DescribeJob],
    keypoints: int,
    runner: Runner,
) -> dict[Pair, RegisteredPair]:
    """Register unconnected pairs again, with more keypoints and more hypotheses."""
    if not pairs:
        return registered
    scans = sorted({scan for pair in pairs for scan in pair})
    larger = dict(zip(scans, runner.describe_more([jobs[k] for k in scans], keypoints), strict=True))
    described = [larger.get(k, job) for k, job in enumerate(jobs)]
    retried = runner.register(pairs, described, "register again", thorough=True)
    better = {pair: result for pair, result in retried.items() if pair not in registered or result.edges}
    return update_confidences(registered | better)
