"""Candidates: hypotheses that fit the scene best, refined, with their evidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from wsdesc.alignment.information import find_degeneracy
from wsdesc.alignment.refine import OVERLAP_DISTANCE, RefinedPose, evaluate
from wsdesc.alignment.surface import make_surface
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats, transform
from wsdesc.finding.evidence import Evidence, confidences
from wsdesc.finding.hypotheses import SAME_ANGLE, SAME_DISTANCE, propose, suppress
from wsdesc.finding.improve import improve
from wsdesc.finding.pair_features import Votes
from wsdesc.finding.prepare import SearchObject, SearchScene
from wsdesc.finding.surfels import Surfels
from wsdesc.finding.verify import (
    QuickScore,
    Surroundings,
    contact_shares,
    measure,
    quick_features,
    surroundings,
)
from wsdesc.finding.view import View

_QUICK_POINTS, _POINTS = 64, 500  # object points of the first and of the last comparison of hypotheses
_IMPROVED_PER_REFINED = 16  # hypotheses that are improved for each one that is refined
_ROUGH_DISTANCES = (5.0, 4.0, 3.0)  # resolutions: largest distance of a contact in each rough step
_JOINED_PER_VERIFIED = 8  # hypotheses that are joined for each one that is verified
_GROUP_DISTANCE = 0.3  # object radii between poses that are refined with the same part of the scene
_MARGIN = 10.0  # resolutions around the object that belong to its part of the scene
_COVER_DISTANCE = 3.0  # resolutions between points of an object in two poses that cover each other
_SAME_SHARE = 0.35  # instances that share a larger part of their points are one
_PLACES, _PLACE_DISTANCE = 8, 0.5  # compared places, and object diameters between them
_FINE_DISTANCES = (4.0, 3.0, 2.0, *[1.5] * 8)  # resolutions: largest distance of a contact in each fine step
_MIN_PART_POINTS = 20


@dataclass(frozen=True, eq=False)
class Candidate:
    """A refined pose and its probability."""

    refined: RefinedPose  # T_target_source is T_scene_object, in metres of the model
    evidence: Evidence
    visible: float  # share of the object's points in contact with the scene
    probability: float


def find_candidates(
    obj: SearchObject, scene: SearchScene, view: View | None, *, hypotheses: int, refined: int
) -> list[Candidate]:
    """Propose poses, compare fewer and fewer of them more thoroughly, and refine the best.

    Returns:
        Candidates, most probable first. Several may be of one place.
    """
    proposed = propose(obj, scene)
    if len(proposed.votes) == 0:
        return []
    poses, votes = _join_improved(obj, scene, proposed, _JOINED_PER_VERIFIED * hypotheses)
    improved = _IMPROVED_PER_REFINED * refined
    poses, votes = _compare_quickly(obj, scene, view, poses, votes, hypotheses, improved)
    poses = improve(obj, scene.surfels, poses, _sample(obj, 4 * _QUICK_POINTS))
    scores = _scores(obj, scene, scene.surfels, view, poses, votes, _sample(obj, _POINTS)).rank(improved=True)
    kept = suppress(scores, agreeing_pairs(obj, poses), refined)
    leads = scores[kept] - _background(obj, poses, scores)
    part = _part(obj, scene, poses[kept])
    results = _refine(obj, scene, part, poses[kept])
    return _with_evidence(obj, scene, part, view, results, votes[kept], leads)


def _join_improved(
    obj: SearchObject, scene: SearchScene, proposed: Votes, count: int
) -> tuple[Floats, Floats]:
    """Improve poses roughly, keep `count` by their contacts, and join those that agree."""
    sample = _sample(obj, _QUICK_POINTS)
    poses = improve(obj, scene.surfels, proposed.poses, sample, _ROUGH_DISTANCES)
    best = _best(contact_shares(obj, scene.surfels, poses, sample), count)
    return _join(obj, poses[best], proposed.votes[best])


def _compare_quickly(
    obj: SearchObject,
    scene: SearchScene,
    view: View | None,
    poses: Floats,
    votes: Floats,
    checked: int,
    kept: int,
) -> tuple[Floats, Floats]:
    """Rank poses without free space, and the best `checked` also by free space; return the best `kept`."""
    around = _surroundings(obj, scene, poses)
    sample = _sample(obj, 2 * _QUICK_POINTS)
    contact = contact_shares(obj, scene.surfels, poses, sample)
    best = _best(QuickScore(contact, np.zeros(len(poses)), *around, votes).rank(improved=False), checked)
    poses, votes, around = poses[best], votes[best], Surroundings(*(x[best] for x in around))
    measured = quick_features(obj, scene.surfels, view, poses, sample)
    best = _best(QuickScore(*measured, *around, votes).rank(improved=False), kept)
    return poses[best], votes[best]


def _background(obj: SearchObject, poses: Floats, scores: Floats) -> float:
    """Return the score of a place that is not the best: wrong poses of most places fit about as well."""
    centres = transform(obj.centre[None], poses)[:, 0]
    pairs = cKDTree(centres).query_pairs(_PLACE_DISTANCE * obj.diameter, output_type="ndarray")
    places = suppress(scores, pairs, _PLACES)
    return float(scores[places[-1]] if len(places) == _PLACES else scores.min())


def _surroundings(obj: SearchObject, scene: SearchScene, poses: Floats) -> Surroundings:
    """Compare the scene's coarse points around an object in poses (H, 4, 4) with it."""
    return surroundings(obj, scene.surfels.points[scene.coarse], scene.surfels.normals[scene.coarse], poses)


def _best(scores: Floats, count: int) -> NDArray[np.intp]:
    return np.argsort(-scores, kind="stable")[:count]


def _join(obj: SearchObject, poses: Floats, votes: Floats) -> tuple[Floats, Floats]:
    """Join poses that agree: return the first of each group, and its votes relative to the best."""
    pairs = agreeing_pairs(obj, poses)
    total = votes.copy()
    np.add.at(total, pairs[:, 0], votes[pairs[:, 1]])
    np.add.at(total, pairs[:, 1], votes[pairs[:, 0]])
    kept = suppress(-np.arange(len(poses), dtype=np.float64), pairs, len(poses))
    return poses[kept], total[kept] / total.max()


def _scores(
    obj: SearchObject,
    scene: SearchScene,
    surfels: Surfels,
    view: View | None,
    poses: Floats,
    votes: Floats,
    sample: NDArray[np.int64],
) -> QuickScore:
    """Measure poses (H, 4, 4) on a sample of the object's points."""
    measured = quick_features(obj, surfels, view, poses, sample)
    return QuickScore(*measured, *_surroundings(obj, scene, poses), votes)


def _part(obj: SearchObject, scene: SearchScene, poses: Floats) -> Surfels:
    """Return the scene around an object in these poses."""
    centres = transform(obj.centre[None], poses)[:, 0]
    return scene.around(centres, obj.radius + _MARGIN * INDOOR_RESOLUTION)


def _sample(obj: SearchObject, count: int) -> NDArray[np.int64]:
    """Choose about `count` of the object's coarse points, evenly."""
    return obj.coarse[:: max(1, round(len(obj.coarse) / count))]


def agreeing_pairs(obj: SearchObject, poses: Floats) -> NDArray[np.intp]:
    """List the pairs (P, 2) of poses that are nearly the same."""
    centres = transform(obj.centre[None], poses)[:, 0]
    pairs = cKDTree(centres).query_pairs(SAME_DISTANCE * obj.diameter, output_type="ndarray")
    R = poses[:, :3, :3]
    cosine = (np.einsum("nij,nij->n", R[pairs[:, 0]], R[pairs[:, 1]]) - 1) / 2
    return np.asarray(pairs[cosine > np.cos(SAME_ANGLE)])


def _refine(obj: SearchObject, scene: SearchScene, part: Surfels, poses: Floats) -> list[RefinedPose]:
    """Refine poses, and evaluate them with the scene around each, those of one place together."""
    poses = improve(obj, part, poses, obj.fine, _FINE_DISTANCES)
    centres = transform(obj.centre[None], poses)[:, 0]
    results: list[RefinedPose | None] = [None] * len(poses)
    for k in range(len(poses)):
        if results[k] is not None:
            continue
        group = [
            j
            for j in range(k, len(poses))
            if results[j] is None and np.linalg.norm(centres[j] - centres[k]) < _GROUP_DISTANCE * obj.radius
        ]
        radius = (1 + _GROUP_DISTANCE) * obj.radius + _MARGIN * INDOOR_RESOLUTION
        near = scene.points[scene.tree.query_ball_point(centres[k], radius)]
        if len(near) < _MIN_PART_POINTS:
            near = scene.points
        evaluated = evaluate(obj.surface, make_surface(near), poses[group], INDOOR_RESOLUTION)
        for j, result in zip(group, evaluated, strict=True):
            results[j] = result
    return [result for result in results if result is not None]


def _with_evidence(
    obj: SearchObject,
    scene: SearchScene,
    part: Surfels,
    view: View | None,
    results: list[RefinedPose],
    votes: Floats,
    leads: Floats,
) -> list[Candidate]:
    """Measure refined poses and compute their probabilities, most probable first."""
    poses = np.stack([result.T_target_source for result in results])
    quick = _scores(obj, scene, part, view, poses, votes, obj.fine)
    scores = quick.rank(improved=True)
    evidence, visible = [], []
    for k, result in enumerate(results):
        measured = measure(obj, scene, part, view, result.T_target_source)
        score = result.score
        evidence.append(
            Evidence(
                contact=float(quick.contact[k]),
                continued=float(quick.continued[k]),
                weighted_overlap=score.weighted_overlap_source,
                side=measured.side,
                explained=measured.explained,
                aligned_normals=score.aligned_normals,
                not_hovering=score.not_hovering,
                curvature_similarity=score.curvature_similarity,
                detail_similarity=score.detail_similarity,
                tightness=score.tightness,
                conditioning=_conditioning(result),
                votes=float(votes[k]),
                score=float(scores[k]),
                lead=float(leads[k]),
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


def overlapping_poses(obj: SearchObject, poses: Floats) -> NDArray[np.bool_]:
    """Return (K, K): whether an object in one pose covers much of the same object in the other."""
    points = obj.points[_sample(obj, 2 * _QUICK_POINTS)]
    shares = np.zeros((len(poses), len(poses)))
    for k, T in enumerate(poses):
        moved = transform(points, T)
        local = np.einsum("hji,hnj->hni", poses[:, :3, :3], moved[None] - poses[:, None, :3, 3])
        distance, _ = obj.tree.query(local, distance_upper_bound=_COVER_DISTANCE * INDOOR_RESOLUTION)
        shares[k] = np.isfinite(distance).mean(axis=1)
    return np.asarray(np.maximum(shares, shares.T) > _SAME_SHARE)


def distinct(obj: SearchObject, candidates: list[Candidate]) -> list[Candidate]:
    """Keep the candidates that do not overlap a more probable one."""
    if not candidates:
        return []
    overlapping = overlapping_poses(obj, np.stack([c.refined.T_target_source for c in candidates]))
    kept: list[int] = []
    for k in range(len(candidates)):
        if not overlapping[k, kept].any():
            kept.append(k)
    return [candidates[k] for k in kept]
