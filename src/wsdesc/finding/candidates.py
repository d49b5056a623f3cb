"""Candidates: hypotheses that fit the scene best, refined, with their evidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wsdesc.alignment.information import find_degeneracy
from wsdesc.alignment.refine import OVERLAP_DISTANCE, RefinedPose, evaluate
from wsdesc.alignment.surface import make_surface
from wsdesc.alignment.verify import PoseScore
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, transform
from wsdesc.finding.evidence import MIN_CONDITIONING, Evidence, confidences
from wsdesc.finding.hypotheses import SAME_ANGLE, SAME_DISTANCE, propose, suppress
from wsdesc.finding.improve import improve
from wsdesc.finding.pair_features import Votes
from wsdesc.finding.prepare import SearchCloud, SearchObject
from wsdesc.finding.verify import CONTACT, contact_shares, measure, quick_features, rank
from wsdesc.finding.view import View

_PROPOSED = 5  # times as many hypotheses are proposed as verified
_FEW_POINTS, _QUICK_POINTS, _POINTS = 40, 120, 500  # of the object, for more and more certain hypotheses
_IMPROVED = 12  # times as many hypotheses are improved as refined
_ROUGH_DISTANCES = (6.0, 5.0, 4.0)  # resolutions: contacts of the steps of all hypotheses
_JOINED = 0.3  # object radii between poses that are refined in one part of the scene
_MARGIN = 10.0  # resolutions around the object that belong to its part of the scene
_SAME_SHARE = 0.35  # of an object's points in contact with those of another instance: both are one
_FINE_DISTANCES = (4.0, 3.0, 2.0, *[1.5] * 8)  # resolutions: contacts of the steps of the refinement
_MIN_PART = 20  # points of a part of the scene


@dataclass(frozen=True, eq=False)
class Candidate:
    """A refined pose and its probability."""

    refined: RefinedPose  # T_target_source is T_scene_object, in metres of the model
    evidence: Evidence
    visible: float  # share of the object's points in contact with the scene
    probability: float


def find_candidates(
    thing: SearchObject, scene: SearchCloud, view: View | None, *, hypotheses: int, refined: int
) -> list[Candidate]:
    """Propose poses, verify them, and refine the best; most probable first. Several may be of one place."""
    proposed = propose(thing, scene, _PROPOSED * hypotheses)
    if len(proposed.votes) == 0:
        return []
    proposed = _promising(thing, scene, proposed, hypotheses)
    sample = _sample(thing, _QUICK_POINTS)
    poses = improve(thing, scene, proposed.poses, sample, _ROUGH_DISTANCES)
    scores = rank(quick_features(thing, scene, view, poses, sample), improved=False)
    best = np.argsort(-scores, kind="stable")[: _IMPROVED * refined]
    poses = improve(thing, scene, poses[best], _sample(thing, 2 * _QUICK_POINTS))
    scores = rank(quick_features(thing, scene, view, poses, _sample(thing, _POINTS)))
    kept = suppress(scores, _agreeing_pairs(thing, poses), refined)
    results = _refine(thing, scene, poses[kept])
    votes = (proposed.votes[best] / proposed.votes.max())[kept]
    return _with_evidence(thing, scene, view, results, votes)


def _promising(thing: SearchObject, scene: SearchCloud, proposed: Votes, count: int) -> Votes:
    """Choose `count` hypotheses: half of them by votes, the others by contacts with the scene."""
    half = count // 2
    others = proposed.poses[half:]
    if len(others) <= count - half:
        return proposed
    shares = contact_shares(thing, scene, others, _sample(thing, _FEW_POINTS), _ROUGH_DISTANCES[0])
    by_contacts = half + np.argsort(-shares, kind="stable")[: count - half]
    chosen = np.concatenate([np.arange(half), by_contacts])
    return Votes(proposed.poses[chosen], proposed.votes[chosen])


def _sample(thing: SearchObject, count: int) -> NDArray[np.int64]:
    """Choose about `count` of the object's coarse points, evenly."""
    return thing.coarse[:: max(1, round(len(thing.coarse) / count))]


def _agreeing_pairs(thing: SearchObject, poses: Floats) -> NDArray[np.intp]:
    """List the pairs (P, 2) of poses that are nearly the same."""
    centres = transform(thing.centre[None], poses)[:, 0]
    near = np.linalg.norm(centres[:, None] - centres, axis=-1) < SAME_DISTANCE * thing.diameter / 2
    R = poses[:, :3, :3]
    near &= (np.einsum("aij,bij->ab", R, R) - 1) / 2 > np.cos(SAME_ANGLE / 2)
    return np.argwhere(np.triu(near, 1))


def _refine(thing: SearchObject, scene: SearchCloud, poses: Floats) -> list[RefinedPose]:
    """Refine poses, and evaluate them with the scene around each, those of one place together."""
    poses = improve(thing, scene, poses, thing.fine, _FINE_DISTANCES)
    centres = transform(thing.centre[None], poses)[:, 0]
    results: list[RefinedPose | None] = [None] * len(poses)
    for k in range(len(poses)):
        if results[k] is not None:
            continue
        group = [
            j
            for j in range(k, len(poses))
            if results[j] is None and np.linalg.norm(centres[j] - centres[k]) < _JOINED * thing.radius
        ]
        reach = (1 + _JOINED) * thing.radius + _MARGIN * INDOOR_RESOLUTION
        part = scene.points[scene.tree.query_ball_point(centres[k], reach)]
        if len(part) < _MIN_PART:
            part = scene.points
        evaluated = evaluate(thing.surface, make_surface(part), poses[group], INDOOR_RESOLUTION)
        for j, result in zip(group, evaluated, strict=True):
            results[j] = result
    return [result for result in results if result is not None]


def _with_evidence(
    thing: SearchObject, scene: SearchCloud, view: View | None, results: list[RefinedPose], votes: Floats
) -> list[Candidate]:
    """Measure refined poses and compute their probabilities, most probable first."""
    poses = np.stack([result.T_target_source for result in results])
    quick = quick_features(thing, scene, view, poses, thing.fine)
    scores = rank(quick)
    overlapping = overlapping_places(thing, poses)
    # No contacts determine the pose of a symmetric object. Its poses are right up to the symmetry.
    itself = evaluate(thing.surface, thing.surface, np.eye(4)[None], INDOOR_RESOLUTION)[0]
    least = MIN_CONDITIONING if _conditioning(itself) < MIN_CONDITIONING else 0.0
    evidence, visible = [], []
    for k, (result, figures) in enumerate(zip(results, quick, strict=True)):
        measured = measure(thing, scene, view, result.T_target_source)
        rivals = scores[overlapping[k] & (np.arange(len(poses)) != k)]
        score: PoseScore = result.score
        evidence.append(
            Evidence(
                contact=float(figures[0]),
                weighted_overlap=score.weighted_overlap_source,
                side=measured.side,
                explained=measured.explained,
                aligned_normals=score.aligned_normals,
                not_hovering=score.not_hovering,
                curvature_similarity=score.curvature_similarity,
                detail_similarity=score.detail_similarity,
                tightness=score.tightness,
                conditioning=max(least, _conditioning(result)),
                votes=float(votes[k]),
                advantage=float(np.clip(scores[k] - rivals.max(initial=scores[k] - 1.0), -1, 1)),
                violation=measured.violation,
                shown=measured.shown,
            )
        )
        visible.append(measured.visible)
    probabilities = confidences(evidence)
    order = np.argsort(-probabilities, kind="stable")
    return [Candidate(results[k], evidence[k], visible[k], float(probabilities[k])) for k in order]


def _conditioning(result: RefinedPose) -> float:
    return find_degeneracy(result.information, OVERLAP_DISTANCE * INDOOR_RESOLUTION).conditioning


def overlapping_places(thing: SearchObject, poses: Floats) -> NDArray[np.bool_]:
    """Return (K, K): whether an object in one pose covers much of the same object in the other."""
    points = thing.points[_sample(thing, 2 * _QUICK_POINTS)]
    shares = np.zeros((len(poses), len(poses)))
    for k, T in enumerate(poses):
        moved = transform(points, T)
        local = np.einsum("hji,hnj->hni", poses[:, :3, :3], moved[None] - poses[:, None, :3, 3])
        distance, _ = thing.tree.query(local, distance_upper_bound=CONTACT * INDOOR_RESOLUTION)
        shares[k] = np.isfinite(distance).mean(axis=1)
    return np.asarray(np.maximum(shares, shares.T) > _SAME_SHARE)


def distinct(thing: SearchObject, candidates: list[Candidate]) -> list[Candidate]:
    """Keep the candidates that do not overlap a more probable one."""
    if not candidates:
        return []
    overlapping = overlapping_places(thing, np.stack([c.refined.T_target_source for c in candidates]))
    kept: list[int] = []
    for k in range(len(candidates)):
        if not overlapping[k, kept].any():
            kept.append(k)
    return [candidates[k] for k in kept]
