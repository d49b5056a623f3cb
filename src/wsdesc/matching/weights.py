"""The confidence of soft correspondences: similar descriptors, and agreement in space."""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.matching.soft import SoftMatches
from wsdesc.matching.spectral import spectral_weights


def correspondence_weights(
    keypoints: Tensor,
    matches: SoftMatches,
    *,
    use_w_f: bool = True,
    use_w_sm: bool = True,
    sigma_d: float = 0.1,
    iterations: int = 10,
) -> Tensor:
    """w = w_f · w_sm (K,) for keypoints (K, 3) and their matches; a term switched off counts as 1."""
    weights = torch.ones_like(matches.w_f)
    if use_w_f:
        weights = weights * matches.w_f
    if use_w_sm:
        weights = weights * spectral_weights(
            keypoints, matches.points, sigma_d=sigma_d, iterations=iterations
        )
    return weights
