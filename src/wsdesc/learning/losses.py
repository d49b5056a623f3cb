"""Losses for training descriptors.

`RigidityLoss` is the paper's loss and needs no ground truth. If two overlapping scans are matched correctly,
the affine map fitted to the matches is rigid. `BatchHardLoss` and `InfoNCELoss` need given matches.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from wsdesc.alignment.affine import fit_affine
from wsdesc.core.errors import InputError
from wsdesc.learning.options import Direction, Reduction
from wsdesc.matching.soft import descriptor_distances, soft_nearest_by
from wsdesc.matching.weights import correspondence_weights


class RigidityTerms(NamedTuple):
    """The rigidity loss and its parts. Losses have the descriptors' precision, maps are float64."""

    loss: Tensor  # L = λ_o L_o + λ_c L_c
    orthogonality: Tensor  # L_o
    cycle: Tensor  # L_c
    A_qp: Tensor  # (3, 3) the paper's R: Q ≈ A_qp P + t_qp
    t_qp: Tensor  # (3,) the paper's t
    A_pq: Tensor  # (3, 3) the paper's R': P ≈ A_pq Q + t_pq
    t_pq: Tensor  # (3,) the paper's t'
    weights_p: Tensor  # (K,) of the matches of P's keypoints in Q
    weights_q: Tensor  # (L,) of the matches of Q's keypoints in P
    well_posed: Tensor  # bool: the matches determine both maps; otherwise the loss is finite but meaningless


class RigidityLoss(nn.Module):
    """Measure how far the affine maps between two scans P and Q deviate from rigid transformations.

    Each keypoint of P is matched softly to Q and vice versa. Each set of matches, weighted by w = w_f · w_sm,
    gives one affine map: (R, t) from P to Q, and (R', t') from Q to P. The losses are

    - orthogonality: L_o = ½ (‖RᵀR − I‖₁ + ‖R'ᵀR' − I‖₁),
    - cycle consistency: L_c = ‖RR' − I‖₁ + ‖Rt' + t‖₁,
    - total: L = λ_o L_o + λ_c L_c.

    ‖·‖₁ sums absolute entries. All terms vanish for rigid transformations. Otherwise their values depend on
    the axes of the scans' coordinates, and ‖Rt' + t‖₁ also on the origin of Q.

    Args:
        reduction: "mean" divides L_o by its 9 entries and L_c by the 16 entries of the 4 × 4 product. The
            published experiments used it; "sum" is the paper's formula.
        direction: Side of the matches that is the regressor. "paper": keypoints are mapped onto their soft
            matches, so the matches of P's keypoints give (R, t). "published": soft matches are mapped onto
            their keypoints, so the matches of P's keypoints give (R', t'). The side that carries the gradient
            is then the regressor.
        use_w_f: Weight matches by descriptor similarity.
        use_w_sm: Weight matches by spatial consistency (spectral matching).
        lambda_o, lambda_c: Weights λ_o and λ_c.
        sigma_d: Difference of pair distances at which two matches are incompatible, in the points' unit.
        unit: Length that counts as 1 in ‖Rt' + t‖₁, in the points' unit.
        temperature: Temperature of the soft nearest neighbour.
        power_iterations: Power iterations for w_sm.
    """

    def __init__(
        self,
        *,
        reduction: Reduction = "mean",
        direction: Direction = "published",
        use_w_f: bool = True,
        use_w_sm: bool = True,
        lambda_o: float = 1.0,
        lambda_c: float = 1.0,
        sigma_d: float = 0.1,
        unit: float = 1.0,
        temperature: float = 1.0,
        power_iterations: int = 10,
    ) -> None:
        super().__init__()
        if reduction not in get_args(Reduction):
            raise InputError(f'reduction must be "mean" or "sum", got {reduction!r}')
        if direction not in get_args(Direction):
            raise InputError(f'direction must be "published" or "paper", got {direction!r}')
        if min(sigma_d, unit, temperature) <= 0:
            raise InputError("sigma_d, unit and temperature must be positive")
        self.reduction = reduction
        self.direction = direction
        self.use_w_f = use_w_f
        self.use_w_sm = use_w_sm
        self.lambda_o = lambda_o
        self.lambda_c = lambda_c
        self.sigma_d = sigma_d
        self.unit = unit
        self.temperature = temperature
        self.power_iterations = power_iterations

    def forward(
        self, keypoints_p: Tensor, descriptors_p: Tensor, keypoints_q: Tensor, descriptors_q: Tensor
    ) -> RigidityTerms:
        """Compute the loss from keypoints (K, 3), (L, 3) and their descriptors (K, C), (L, C)."""
        with torch.autocast(descriptors_p.device.type, enabled=False):  # coordinates need full precision
            return self._terms(keypoints_p, descriptors_p, keypoints_q, descriptors_q)

    def _terms(
        self, keypoints_p: Tensor, descriptors_p: Tensor, keypoints_q: Tensor, descriptors_q: Tensor
    ) -> RigidityTerms:
        distances = descriptor_distances(descriptors_p, descriptors_q)  # (K, L)
        matched_q, weights_p = self._match(keypoints_p, keypoints_q, distances)  # (K, 3), (K,)
        matched_p, weights_q = self._match(keypoints_q, keypoints_p, distances.T)  # (L, 3), (L,)
        if self.direction == "paper":
            qp = fit_affine(keypoints_p, matched_q, weights_p)
            pq = fit_affine(keypoints_q, matched_p, weights_q)
        else:
            qp = fit_affine(matched_p, keypoints_q, weights_q)
            pq = fit_affine(matched_q, keypoints_p, weights_p)
        A_qp, t_qp = qp.A_target_source, qp.t_target_source
        A_pq, t_pq = pq.A_target_source, pq.t_target_source

        orthogonality = (_identity_error(A_qp.T @ A_qp) + _identity_error(A_pq.T @ A_pq)) / 2
        translation_error = (A_qp @ t_pq + t_qp).abs().sum() / self.unit
        cycle = _identity_error(A_qp @ A_pq) + translation_error
        if self.reduction == "mean":
            orthogonality, cycle = orthogonality / 9, cycle / 16
        loss = self.lambda_o * orthogonality + self.lambda_c * cycle
        dtype = distances.dtype
        return RigidityTerms(
            loss=loss.to(dtype),
            orthogonality=orthogonality.to(dtype),
            cycle=cycle.to(dtype),
            A_qp=A_qp,
            t_qp=t_qp,
            A_pq=A_pq,
            t_pq=t_pq,
            weights_p=weights_p,
            weights_q=weights_q,
            well_posed=qp.well_posed & pq.well_posed,
        )

    def _match(self, keypoints: Tensor, others: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
        """Return the soft matches (K, 3) of keypoints in the other scan, and their weights (K,)."""
        matches = soft_nearest_by(distances, others, self.temperature)
        weights = correspondence_weights(
            keypoints,
            matches,
            use_w_f=self.use_w_f,
            use_w_sm=self.use_w_sm,
            sigma_d=self.sigma_d,
            iterations=self.power_iterations,
        )
        return matches.points, weights


class BatchHardLoss(nn.Module):
    """Pull the descriptors of matches together, push each anchor's hardest negative away.

    d₊ is the distance of an anchor's descriptor to that of its match. d₋ is the distance to the nearest
    descriptor among the matches of other anchors. The loss is the mean of softplus((d₊ − d₋) / temperature)
    for the margin "soft", and of [d₊ − d₋ + margin]₊ for a number.

    Distances of unit vectors never exceed 2. A soft margin at temperature 1 is therefore nearly flat and
    stays near log 2, where all descriptors are equal. A low temperature or a hard margin avoids this.

    Args:
        exclusion_radius: Anchors within this distance show the same surface and are not negatives of each
            other, in the unit of their positions.
        margin: Distance between descriptors, or "soft".
        temperature: Temperature of the soft margin.
    """

    def __init__(
        self,
        *,
        exclusion_radius: float = 0.1,
        margin: float | Literal["soft"] = "soft",
        temperature: float = 0.1,
    ) -> None:
        super().__init__()
        if isinstance(margin, str) and margin != "soft":
            raise InputError(f'margin must be a number or "soft", got {margin!r}')
        _check_match_loss(temperature, exclusion_radius)
        self.exclusion_radius = exclusion_radius
        self.margin = margin
        self.temperature = temperature

    def forward(self, anchor: Tensor, positive: Tensor, positions: Tensor) -> Tensor:
        """Compute the loss, a scalar.

        Args:
            anchor, positive: Unit descriptors (K, C) of anchors and of their matches.
            positions: Positions (K, 3) of the anchors.

        Returns:
            Mean over anchors that have a negative; 0 if none has one.
        """
        if anchor.shape != positive.shape or positions.shape != (len(anchor), 3):
            raise InputError(
                "anchor and positive must be (K, C) and positions (K, 3), got "
                f"{tuple(anchor.shape)}, {tuple(positive.shape)} and {tuple(positions.shape)}"
            )
        distances = descriptor_distances(anchor, positive)  # (K, K)
        identity = torch.eye(len(anchor), dtype=torch.bool, device=anchor.device)
        excluded = identity | _are_close(positions, self.exclusion_radius)
        has_negative = ~excluded.all(dim=1)
        if not bool(has_negative.any()):
            return distances.sum() * 0
        nearest_negative = distances.masked_fill(excluded, torch.inf).amin(dim=1)
        gap = (distances.diagonal() - nearest_negative)[has_negative]
        if isinstance(self.margin, str):
            return nn.functional.softplus(gap / self.temperature).mean()
        return torch.relu(gap + self.margin).mean()


class InfoNCELoss(nn.Module):
    """Classify each anchor's match among the matches of all anchors.

    With s_kl the cosine of anchor k and match l, the loss is the mean over k of
    −log(exp(s_kk / temperature) / Σ_l exp(s_kl / temperature)).

    Args:
        exclusion_radius: See `BatchHardLoss`.
        temperature: Temperature of the softmax.
    """

    def __init__(self, *, exclusion_radius: float = 0.1, temperature: float = 0.07) -> None:
        super().__init__()
        _check_match_loss(temperature, exclusion_radius)
        self.exclusion_radius, self.temperature = exclusion_radius, temperature

    def forward(self, anchor: Tensor, positive: Tensor, positions: Tensor) -> Tensor:
        """Compute the loss, a scalar; arguments as of `BatchHardLoss.forward`."""
        identity = torch.eye(len(anchor), dtype=torch.bool, device=anchor.device)
        excluded = _are_close(positions, self.exclusion_radius) & ~identity
        logits = (anchor @ positive.T / self.temperature).masked_fill(excluded, -torch.inf)  # (K, K)
        target = torch.arange(len(anchor), device=anchor.device)
        return nn.functional.cross_entropy(logits, target)


def _check_match_loss(temperature: float, exclusion_radius: float) -> None:
    if temperature <= 0 or exclusion_radius < 0:
        raise InputError("temperature must be positive, exclusion_radius not negative")


def _are_close(positions: Tensor, radius: float) -> Tensor:
    """Return a mask (K, K) of positions (K, 3) within the radius of each other."""
    distances = torch.cdist(positions, positions, compute_mode="donot_use_mm_for_euclid_dist")
    return distances <= radius


def _identity_error(matrix: Tensor) -> Tensor:
    """Return ‖matrix − I‖₁, the sum of absolute entries."""
    return (matrix - torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)).abs().sum()
