"""Weights of soft correspondences: similarity of descriptors times spatial compatibility."""

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
    """Compute the weights w = w_f · w_sm (K,) of keypoints (K, 3) and their matches.

    Args:
        keypoints: Keypoints (K, 3).
        matches: Their matches.
        use_w_f: Use the descriptor weight w_f; otherwise it is 1.
        use_w_sm: Use the spectral weight w_sm; otherwise it is 1.
        sigma_d: Tolerance of `spectral_weights`, in the unit of the points.
        iterations: Power iterations of `spectral_weights`.
    """
    weights = torch.ones_like(matches.w_f)
    if use_w_f:
        weights = weights * matches.w_f
    if use_w_sm:
        weights = weights * spectral_weights(
            keypoints, matches.points, sigma_d=sigma_d, iterations=iterations
        )
    return weights
