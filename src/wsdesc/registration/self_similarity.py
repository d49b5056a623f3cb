"""Self-similarity: motions, other than none, under which a scan fits onto itself.

Such a scan shows repetitive structure. A pose of a pair of scans that fits no better than a scan fits onto
itself is weak evidence, and the pose combined with such a motion may be right instead.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.hypotheses import Hypothesis
from wsdesc.alignment.surface import Surface
from wsdesc.core.geometry import Floats, inverse
from wsdesc.descriptor.description import Description
from wsdesc.matching.mutual import one_sided_matches
from wsdesc.registration.candidates import Candidate, verify_hypotheses
from wsdesc.registration.propose import ONE_SIDED_WEIGHT, THRESHOLD

HYPOTHESES, REFINED = 12, 2
MIN_DISTANCE = 0.25  # metres of the model, 10 resolutions: between matched keypoints, and of a translation
MIN_ANGLE = np.radians(20)  # of a rotation


def find_self_motions(
    description: Description,
    surface: Surface,
    *,
    hypotheses: int = HYPOTHESES,
    refined: int = REFINED,
) -> list[Candidate]:
    """Find motions under which a described scan fits onto itself, best first; none near the identity.

    Of a motion and its inverse only one is returned.
    """
    points, descriptors = description.keypoints, description.descriptors
    apart = torch.cdist(points, points) > MIN_DISTANCE
    pairs, mutual = one_sided_matches(descriptors, descriptors, allowed=apart)
    centre = description.points.double().mean(dim=0).cpu().numpy()

    def moves(poses: Floats) -> NDArray[np.bool_]:
        return _differ(poses, np.eye(4), centre)

    proposed = consensus(
        points[pairs[:, 0]],
        points[pairs[:, 1]],
        weights=torch.where(mutual, 1.0, ONE_SIDED_WEIGHT),
        threshold=THRESHOLD["consensus"],
        hypotheses=2 * hypotheses,
        allow=moves,
    )
    images = (description.range_image, description.range_image)
    one_way = _without_inverses(proposed, centre)[:hypotheses]
    found = verify_hypotheses(one_way, (surface, surface), images, len(pairs), refined=refined)
    return [candidate for candidate in found if moves(candidate.refined.T_target_source[None])[0]]


def _differ(poses: Floats, T: Floats, centre: Floats) -> NDArray[np.bool_]:
    """Return which poses (H, 4, 4) differ from T by more than the least motion, at the centre (3,)."""
    steps = poses @ inverse(T)
    cosine = (np.trace(steps[:, :3, :3], axis1=1, axis2=2) - 1) / 2
    shift = np.linalg.norm(steps[:, :3, :3] @ centre + steps[:, :3, 3] - centre, axis=1)
    return np.asarray((cosine < np.cos(MIN_ANGLE)) | (shift > MIN_DISTANCE))


def _without_inverses(proposed: list[Hypothesis], centre: Floats) -> list[Hypothesis]:
    kept: list[Hypothesis] = []
    for hypothesis in proposed:
        T = inverse(hypothesis.T_target_source.numpy())
        if all(_differ(other.T_target_source.numpy()[None], T, centre)[0] for other in kept):
            kept.append(hypothesis)
    return kept
