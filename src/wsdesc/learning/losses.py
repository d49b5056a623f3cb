"""What a descriptor is trained with: rigidity of the motion its matches ask for, or true matches.

`RigidityLoss` needs no ground truth. If two overlapping clouds are matched rightly, the affine map fitted
to the matches is a rigid motion; how far it is from one is the loss. `BatchHardLoss` is the supervised
counterpart, for comparison.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from wsdesc.alignment.affine import fit_affine
from wsdesc.core.errors import InputError
from wsdesc.matching.soft import descriptor_distances, soft_nearest_by
from wsdesc.matching.weights import correspondence_weights

Reduction = Literal["mean", "sum"]
Direction = Literal["published", "paper"]


class RigidityTerms(NamedTuple):
    """The loss and what it was made of; losses in the descriptors' precision, maps in float64."""

    loss: Tensor  # λ_o · orthogonality + λ_c · cycle
    orthogonality: Tensor
    cycle: Tensor
    A_qp: Tensor  # (3, 3) the paper's R: Q ≈ A_qp P + t_qp
    t_qp: Tensor  # (3,)
    A_pq: Tensor  # (3, 3) the paper's R': P ≈ A_pq Q + t_pq
    t_pq: Tensor  # (3,)
    weights_p: Tensor  # (K,) of the matches of P's keypoints in Q
    weights_q: Tensor  # (L,) of the matches of Q's keypoints in P
    well_posed: Tensor  # bool: both fits were determined; else the loss is finite and says little


class RigidityLoss(nn.Module):
    """Deviation from rigidity of the affine maps between two clouds, both ways.

    Every keypoint of P has a match in Q, and every keypoint of Q one in P. Each of the two sets of
    matches gives one map:

    - direction "paper": keypoints onto their matches. P's set gives P→Q, Q's set gives Q→P.
    - direction "published": matches onto their keypoints, so that the side that carries the gradient is the
      regressor. P's set, matches in Q onto P, gives Q→P; Q's set gives P→Q.

    Either way `qp` is the map P→Q and the terms are those of the paper:

    - orthogonality = ½ (‖A_qpᵀ A_qp − I‖₁ + ‖A_pqᵀ A_pq − I‖₁),
    - cycle = ‖T_qp T_pq − I‖₁ = ‖A_qp A_pq − I‖₁ + ‖A_qp t_pq + t_qp‖₁, from Q to P and back.

    The norms sum absolute entries. They vanish for rigid motions in any frame; else their size depends on
    the frames' axes, and the translation of the cycle on the origin of Q as well.

    Args:
        reduction: "mean" divides orthogonality by its 9 entries and cycle by the 16 of the 4×4 product, as
            in the published experiments; "sum" is the paper's formula.
        direction: see above.
        use_w_f, use_w_sm: the two terms of the matches' weights, similarity and spatial agreement.
        lambda_o, lambda_c: factors of the two terms.
        sigma_d: difference of lengths that makes two matches incompatible, in the unit of the points.
        unit: length that counts as 1 in the cycle's translation, in the unit of the points.
        temperature: of the soft matches.
        power_iterations: for the spatial agreement.
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
            raise InputError(f'reduction must be "mean" or "sum", not {reduction!r}')
        if direction not in get_args(Direction):
            raise InputError(f'direction must be "published" or "paper", not {direction!r}')
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
        self, keypoints_p: Tensor, features_p: Tensor, keypoints_q: Tensor, features_q: Tensor
    ) -> RigidityTerms:
        """Keypoints (K, 3) and (L, 3) with their descriptors (K, C) and (L, C)."""
        with torch.autocast(features_p.device.type, enabled=False):  # coordinates need their digits
            return self._terms(keypoints_p, features_p, keypoints_q, features_q)

    def _terms(
        self, keypoints_p: Tensor, features_p: Tensor, keypoints_q: Tensor, features_q: Tensor
    ) -> RigidityTerms:
        distances = descriptor_distances(features_p, features_q)  # (K, L)
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

        orthogonality = (_off_identity(A_qp.T @ A_qp) + _off_identity(A_pq.T @ A_pq)) / 2
        drift = (A_qp @ t_pq + t_qp).abs().sum() / self.unit
        cycle = _off_identity(A_qp @ A_pq) + drift
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
        """Where the keypoints lie in the other cloud, and how far to trust it."""
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
    """Pull true matches together, push each anchor's most similar wrong match away.

    With d₊ the distance of an anchor to its match and d₋ that to the nearest descriptor among the matches
    of other anchors, the loss is the mean of softplus((d₊ − d₋) / temperature) for the margin "soft", else
    that of [d₊ − d₋ + margin]₊.

    Distances of unit vectors never exceed 2. A soft margin at temperature 1 is therefore nearly flat, and
    stays for long at log 2, where all descriptors are alike; a low temperature or a margin leads out.

    Args:
        exclusion_radius: anchors up to this far from each other, in the unit of their positions, look alike
            with good reason and are not each other's negatives.
        margin: a distance between descriptors, or "soft".
        temperature: of the soft margin.
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
            raise InputError(f'margin must be a number or "soft", not {margin!r}')
        if temperature <= 0 or exclusion_radius < 0:
            raise InputError("temperature must be positive, exclusion_radius not negative")
        self.exclusion_radius = exclusion_radius
        self.margin = margin
        self.temperature = temperature

    def forward(self, anchor: Tensor, positive: Tensor, positions: Tensor) -> Tensor:
        """Unit descriptors (K, C) of both sides, and where the anchors are (K, 3): the loss, a scalar.

        Anchors without a negative are left out; if none has one, the loss is zero.
        """
        if anchor.shape != positive.shape or positions.shape != (len(anchor), 3):
            raise InputError(
                "anchor and positive must be (K, C) and positions (K, 3), not "
                f"{tuple(anchor.shape)}, {tuple(positive.shape)} and {tuple(positions.shape)}"
            )
        distances = descriptor_distances(anchor, positive)  # (K, K)
        apart = torch.cdist(positions, positions, compute_mode="donot_use_mm_for_euclid_dist")
        itself = torch.eye(len(anchor), dtype=torch.bool, device=anchor.device)
        excluded = itself | (apart <= self.exclusion_radius)
        counted = ~excluded.all(dim=1)
        if not bool(counted.any()):
            return distances.sum() * 0
        gap = (distances.diagonal() - distances.masked_fill(excluded, torch.inf).amin(dim=1))[counted]
        if isinstance(self.margin, str):
            return nn.functional.softplus(gap / self.temperature).mean()
        return torch.relu(gap + self.margin).mean()


def _off_identity(matrix: Tensor) -> Tensor:
    """Sum of absolute entries of matrix − I."""
    return (matrix - torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)).abs().sum()
