"""Search around a guess: candidates that need no descriptors."""

from __future__ import annotations

import math

import numpy as np

from wsdesc.alignment.prior import REACH, PosePrior
from wsdesc.alignment.surface import Surface
from wsdesc.core.geometry import Floats
from wsdesc.core.progress import StepTimer
from wsdesc.core.rotations import rotation_matrix
from wsdesc.descriptor.description import Description
from wsdesc.registration.candidate import Candidate
from wsdesc.registration.options import RegisterOptions
from wsdesc.registration.verification import unmatched, verify_hypotheses

_SAMPLES = 32  # poses around the guess; with 16, fewer right poses are found


def search_near(
    prior: PosePrior | None,
    p: Description,
    q: Description,
    surfaces: tuple[Surface, Surface],
    o: RegisterOptions,
    timer: StepTimer,
) -> list[Candidate]:
    """Verify and refine the guess of a prior and poses around it; none without a guess."""
    if prior is None or prior.near is None:
        return []
    with timer("search near"):
        poses = poses_around(prior)
        proposed = [unmatched(T) for T in poses]
        images = (p.range_image, q.range_image)
        return verify_hypotheses(
            proposed, surfaces, images, 0, refined=o.refined, refine=o.refine, prior=prior
        )


def poses_around(prior: PosePrior) -> Floats:
    """Return the guess, and poses that cover its surroundings evenly: (H, 4, 4), those that the prior allows.

    Without a limit, the guess is not varied: samples in a large space hit nothing.
    """
    near = prior.near
    assert near is not None
    radius = near.radius if math.isfinite(near.radius) else 0.0
    angle = near.angle if near.angle < math.pi else 0.0
    poses = [near.guess]
    if radius + angle * near.size > REACH:  # farther than refinement would move the points
        for shift, turn in _even_samples(_SAMPLES):
            if prior.upright is not None:
                turn = prior.upright.target * turn[0]
            T = near.guess.copy()
            T[:3, :3] = rotation_matrix(angle * turn) @ T[:3, :3]
            T[:3, 3] += radius * shift
            poses.append(T)
    stacked = np.stack(poses)
    return stacked[prior.allows(stacked)]


def _even_samples(count: int) -> list[tuple[Floats, Floats]]:
    """Return points that fill the product of two unit balls evenly, as pairs of vectors (3,)."""
    ratio = 2.0
    for _ in range(50):  # the root of x⁷ = x + 1, whose powers make an even sequence in six dimensions
        ratio = (1 + ratio) ** (1 / 7)
    steps = ratio ** -np.arange(1.0, 7.0)
    samples: list[tuple[Floats, Floats]] = []
    number = 0
    while len(samples) < count:
        number += 1
        shift, turn = np.split(2 * ((0.5 + number * steps) % 1) - 1, 2)
        if max(shift @ shift, turn @ turn) <= 1:
            samples.append((shift, turn))
    return samples
