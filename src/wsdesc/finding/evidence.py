"""Evidence of a pose of an object in a scene, and the confidence computed from it.

Shares are those of the object: an object that is half visible covers a thousandth of the scene.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wsdesc.alignment.confidence import ConfidenceModel
from wsdesc.alignment.evidence import share_log_odds
from wsdesc.core.geometry import Floats

CONFIDENCE_FILE = Path(__file__).with_name("confidence.json")
MAX_VIOLATION = 0.25  # share of the visible points in free space


class Evidence(NamedTuple):
    """Measured figures of one pose."""

    contact: float  # share of the object's points that touch the scene, weighted by similar normals
    weighted_overlap: float  # share of the object's surface near the scene, each direction weighs the same
    side: float  # largest share in contact of the points that can be seen from one direction
    explained: float  # share of the scene's points near the object that touch it
    aligned_normals: float  # this and the next four as in `PoseScore`
    not_hovering: float
    curvature_similarity: float
    detail_similarity: float
    tightness: float
    conditioning: float  # conditioning of the information matrix, 0 … 1; about 0 for symmetric objects
    votes: float  # votes of pairs of points, relative to the best hypothesis
    score: float  # rank of the pose, see `QuickScore`
    lead: float  # score minus that of the eighth best place
    continued: float  # scene points that continue the object's surface, relative to those that touch it
    violation: float | None  # share of the visible points in free space; None without a viewpoint
    shown: float | None  # share of the points that face the viewpoint in contact with the scene


# Name of each feature, and whether a larger value raises (1) or lowers (−1) the confidence.
FEATURES = {
    "contact": 1,
    "weighted_overlap": 1,
    "side": 1,
    "explained": 1,
    "aligned_normals": 1,
    "not_hovering": 1,
    "curvature_similarity": 1,
    "detail_similarity": 1,
    "tightness": 1,
    "conditioning": 1,
    "votes": 1,
    "score": 1,
    "lead": 1,
    "continued": -1,
    "violation": -1,
    "shown": 1,
}


def features(poses: Sequence[Evidence]) -> Floats:
    """Return the features (K, F) of poses; NaN where a figure is unknown."""
    rows = [
        [
            *map(share_log_odds, pose[:9]),
            math.log10(max(pose.conditioning, 1e-4)),
            math.log10(max(pose.votes, 1e-3)),
            pose.score,
            pose.lead,
            math.log10(max(pose.continued, 0.01)),
            math.nan if pose.violation is None else math.log10(max(pose.violation, 1e-3)),
            math.nan if pose.shown is None else share_log_odds(pose.shown),
        ]
        for pose in poses
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, len(FEATURES))


def confidences(poses: Sequence[Evidence]) -> Floats:
    """Return the probability (K,) of each pose to be right. Several may be: a scene has many instances."""
    score = _shipped().score(features(poses))
    possible = np.array([not contradicted(pose) for pose in poses], bool)
    return np.asarray(possible / (1 + np.exp(-np.clip(score, -50, 50))))


def contradicted(pose: Evidence) -> bool:
    """Return whether free space excludes a pose."""
    return pose.violation is not None and pose.violation > MAX_VIOLATION


@lru_cache(maxsize=1)
def _shipped() -> ConfidenceModel:
    return ConfidenceModel.load(CONFIDENCE_FILE, FEATURES)
