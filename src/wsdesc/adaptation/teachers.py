"""Teachers: pairs of scans with the relative pose of a reconstruction, also those with little overlap.

Wrong poses teach wrong matches. A pair is therefore left out for any of these reasons:
- its scans are connected only by an edge that no triangle confirms;
- its pose contradicts triangles of other pairs;
- its pose puts surfaces of one scan into the free space of the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from wsdesc.adaptation.scans import TaughtScan, by_name, overlap_at, relative_pose
from wsdesc.adaptation.triangles import contradicted_pairs
from wsdesc.alignment.free_space import measure_free_space
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, motion_about
from wsdesc.reconstruction.result import Reconstruction

OVERLAP_DISTANCE = 3 * INDOOR_RESOLUTION  # metres: points nearer to each other are partners
MAX_VIOLATION = 0.04  # share of visible points in free space above which a pose is wrong
MIN_UNCONFIRMED = 0.97  # smallest confidence of an edge that needs no triangle
_NEIGHBOURS = 3  # likely neighbours of a scan that was not placed


class TeacherPair(NamedTuple):
    """Two scans, by their indices, and their relative pose in metres of the model."""

    p: int  # smaller than q
    q: int
    T_q_p: Floats  # (4, 4) between the local frames
    overlap: float  # overlap at this pose
    wrong: bool = False  # the pose was replaced by a wrong one, in an experiment


class Teachers(NamedTuple):
    """Pairs of scans that an adaptation is taught with."""

    pairs: list[TeacherPair]
    neighbours: list[tuple[int, int]]  # pairs without a pose: unplaced scans and their likely neighbours
    left_out: dict[str, int]  # number of pairs by reason
    placed: list[int]  # scans that occur in `pairs`

    def without(self, scans: set[int]) -> Teachers:
        """Return the teachers without any pair of these scans."""
        pairs = [pair for pair in self.pairs if not {pair.p, pair.q} & scans]
        neighbours = [pair for pair in self.neighbours if not set(pair) & scans]
        return Teachers(pairs, neighbours, self.left_out, [k for k in self.placed if k not in scans])


def find_teachers(
    scans: Sequence[TaughtScan],
    reconstruction: Reconstruction,
    *,
    min_overlap: float = 0.05,
    wrong: float = 0.0,
    check: bool = True,
    seed: int = 0,
) -> Teachers:
    """Select the pairs of scans that teach.

    Args:
        scans: Scans of the reconstruction.
        reconstruction: Poses that were found.
        min_overlap: Smallest overlap of a pair.
        wrong: Share of the pairs that receive a wrong pose, as an experiment.
        check: Leave out pairs that contradict triangles or free space.
        seed: Seed of the experiment.
    """
    index, pairs, left_out = by_name(scans), list[TeacherPair](), Counter[str]()
    groups = confirmed_groups(reconstruction)
    poses = {
        name: scans[k].local_pose(reconstruction.T_world_scan[name])
        for name, k in index.items()
        if name in reconstruction.T_world_scan
    }
    for names in reconstruction.components:
        for a, b in combinations([name for name in names if name in index], 2):
            p, q = sorted((index[a], index[b]))
            T_q_p = relative_pose(poses[scans[p].name], poses[scans[q].name])
            if np.linalg.norm(T_q_p[:3, 3]) > scans[p].outer_radius + scans[q].outer_radius:
                continue
            overlap = overlap_at(scans[p], scans[q], T_q_p, OVERLAP_DISTANCE)
            if overlap < min_overlap:
                continue
            if check and groups[a] != groups[b]:
                left_out["connected only by an edge that no triangle confirms"] += 1
                continue
            pairs.append(TeacherPair(p, q, T_q_p, overlap))
    if wrong:
        pairs = with_wrong_poses(pairs, scans, wrong, seed)
    if check:
        for reason, rejected in _contradictions(pairs, scans):
            left_out[reason] += len(rejected)
            pairs = [pair for k, pair in enumerate(pairs) if k not in rejected]
    placed = sorted({k for pair in pairs for k in (pair.p, pair.q)})
    neighbours = likely_neighbours(reconstruction, index, set(placed))
    return Teachers(pairs, neighbours, dict(left_out), placed)


def confirmed_groups(reconstruction: Reconstruction) -> dict[str, int]:
    """Group scans connected by edges in triangles, or of high confidence; return the group by name."""
    accepted = [edge for edge in reconstruction.edges if edge.accepted]
    partners: dict[str, set[str]] = {}
    for edge in accepted:
        partners.setdefault(edge.source, set()).add(edge.target)
        partners.setdefault(edge.target, set()).add(edge.source)
    group = {name: k for k, name in enumerate(reconstruction.T_world_scan)}
    for edge in accepted:
        a, b = edge.source, edge.target
        if edge.confidence >= MIN_UNCONFIRMED or partners[a] & partners[b]:
            old, new = group[a], group[b]
            group = {name: new if number == old else number for name, number in group.items()}
    return group


def _contradictions(pairs: list[TeacherPair], scans: Sequence[TaughtScan]) -> list[tuple[str, set[int]]]:
    """Find the pairs that triangles of pairs contradict, then those that free space contradicts."""
    poses = {(pair.p, pair.q): pair.T_q_p for pair in pairs}
    triangles = contradicted_pairs(poses, [scan.radius for scan in scans])
    kept = [pair for k, pair in enumerate(pairs) if k not in triangles]
    free_space = {k for k, pair in enumerate(kept) if _violation(pair, scans) > MAX_VIOLATION}
    return [("contradicts triangles of other pairs", triangles), ("violates free space", free_space)]


def _violation(pair: TeacherPair, scans: Sequence[TaughtScan]) -> float:
    """Return the share of visible points in free space; 0 if no viewpoint is known."""
    p, q = scans[pair.p], scans[pair.q]
    if p.range_image is None and q.range_image is None:
        return 0.0
    images = (p.range_image, q.range_image)
    return measure_free_space(p.surface, q.surface, images, pair.T_q_p[None])[0].violation


def likely_neighbours(
    reconstruction: Reconstruction, index: dict[str, int], placed: set[int]
) -> list[tuple[int, int]]:
    """Pair each scan that was not placed with the scans that it fits best.

    The reconstruction registers scans of similar signatures; the most confident of these edges count.
    """
    edges = [e for e in reconstruction.edges if e.T_target_source is not None]
    edges = [e for e in edges if {e.source, e.target} <= index.keys()]
    edges.sort(key=lambda e: (-e.confidence, -e.overlap, e.source, e.target))
    count: Counter[int] = Counter()
    pairs = []
    for edge in edges:
        ends = (index[edge.source], index[edge.target])
        if any(k not in placed and count[k] < _NEIGHBOURS for k in ends):
            pairs.append((min(ends), max(ends)))
            count.update(ends)
    return sorted(set(pairs))


def with_wrong_poses(
    pairs: Sequence[TeacherPair], scans: Sequence[TaughtScan], share: float, seed: int
) -> list[TeacherPair]:
    """Replace the poses of a share of the pairs by wrong ones at which the scans overlap.

    As in repetitive structure, the source is turned by 90°, 180° or 270° about the most upright axis through
    the overlap, or shifted along it.
    """
    rng = np.random.default_rng([seed, 0x31])
    chosen = set(rng.permutation(len(pairs))[: round(share * len(pairs))].tolist())
    result = []
    for k, pair in enumerate(pairs):
        if k in chosen:
            T = _wrong_pose(pair, scans, rng)
            overlap = overlap_at(scans[pair.p], scans[pair.q], T, OVERLAP_DISTANCE)
            pair = TeacherPair(pair.p, pair.q, T, max(overlap, 0.05), wrong=True)
        result.append(pair)
    return result


def _wrong_pose(pair: TeacherPair, scans: Sequence[TaughtScan], rng: np.random.Generator) -> Floats:
    """Draw wrong poses and return the one with the largest overlap."""
    q = scans[pair.q].points
    chosen = torch.randint(len(q), (1,), generator=torch.Generator().manual_seed(int(rng.integers(2**31))))
    centre = q[chosen][0].double().numpy()
    tries = []
    for turns in (1, 2, 3):
        for axis in np.eye(3):
            R = Rotation.from_rotvec(turns * np.pi / 2 * axis).as_matrix()
            T = motion_about(centre, R, rng.normal(0, 0.5, 3)) @ pair.T_q_p
            tries.append((overlap_at(scans[pair.p], scans[pair.q], T, OVERLAP_DISTANCE, 500), T))
    return max(tries, key=lambda item: item[0])[1]
