"""Metrics of the public benchmarks: inlier ratio, feature-match recall, pose errors and registration recall.

Poses are (..., 4, 4), single or batched, as tensors or arrays. Their errors are float64 tensors (...) on the
CPU. Lengths are in the unit of the points; `unit` is the length of one metre in it.

Registration recall has two definitions, whose figures must not be mixed:

- R1 weighs the error by the points of the overlap (`r1_error`) and leaves out consecutive scans of a sequence
  (`r1_counts`), which are too easy.
- R2 limits rotation and translation errors (`r2_success`) and counts all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc.cloud.neighbours import check_points
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, transform

Matrices = Tensor | Floats
Ratios = Sequence[float] | Tensor | Floats


class RecallCurve(NamedTuple):
    """Feature-match recall at each threshold."""

    tau2: Tensor  # (S,) float64
    recall: Tensor  # (S,) float64


def inlier_ratio(
    source_keypoints: Tensor,
    target_keypoints: Tensor,
    matches: Tensor,
    T_target_source: Matrices,
    tau1: float = 0.1,
) -> float:
    """Compute the share of matches closer than `tau1` under the true pose; 0 without matches.

    Args:
        source_keypoints: (K, 3).
        target_keypoints: (L, 3), on the same device.
        matches: (M, 2) int64, indices of source and target keypoints.
        T_target_source: The true pose, (4, 4).
        tau1: Distance in the unit of the keypoints.
    """
    if matches.ndim != 2 or matches.shape[1] != 2:
        raise InputError(f"matches must be (M, 2), not {tuple(matches.shape)}")
    T = _poses(T_target_source).to(source_keypoints.device)
    if T.ndim != 2:
        raise InputError(f"T_target_source must be one pose (4, 4), not {tuple(T.shape)}")
    if len(matches) == 0:
        return 0.0
    source, target = source_keypoints[matches[:, 0]].double(), target_keypoints[matches[:, 1]].double()
    distance = torch.linalg.vector_norm(transform(source, T) - target, dim=1)  # (M,)
    return float((distance < tau1).double().mean())


def feature_match_recall(ratios: Ratios, tau2: float = 0.05) -> float:
    """Compute the share of pairs whose inlier ratio exceeds `tau2`."""
    return float((_ratios(ratios) > tau2).double().mean())


def feature_match_recall_curve(ratios: Ratios, highest: float = 0.3, steps: int = 31) -> RecallCurve:
    """Compute the feature-match recall at `steps` thresholds from 0 to `highest`; it never increases."""
    tau2 = torch.linspace(0, highest, steps, dtype=torch.float64)
    return RecallCurve(tau2, (_ratios(ratios) > tau2[:, None]).double().mean(1))


def rotation_error_deg(T: Matrices, T_true: Matrices) -> Tensor:
    """Compute the angle between two rotations, 0 … 180°."""
    T, T_true = _broadcast(T, T_true)
    between = T_true[..., :3, :3].mT @ T[..., :3, :3]
    sine: Tensor = torch.linalg.vector_norm(_quaternion(between), dim=-1)  # sine of half the angle
    return torch.rad2deg(2 * torch.asin(sine.clamp(max=1)))


def translation_error(T: Matrices, T_true: Matrices) -> Tensor:
    """Compute the distance between two translations: that of the source's origin under both poses."""
    T, T_true = _broadcast(T, T_true)
    distance: Tensor = torch.linalg.vector_norm(T[..., :3, 3] - T_true[..., :3, 3], dim=-1)
    return distance


def pose_rmse(T: Matrices, T_true: Matrices, points: Tensor) -> Tensor:
    """Compute the root mean square distance between the source's points (N, 3) under two poses."""
    T, T_true = _broadcast(T, T_true)
    points = check_points(points).detach().cpu().double()
    return (transform(points, T) - transform(points, T_true)).square().sum(-1).mean(-1).sqrt()


def information_matrix(points: Tensor) -> Tensor:
    """Compute Λ = Σ GᵀG with G = [I | −[p]×] over points p (N, 3): (6, 6) float64, as in gt.info.

    G (t, ω) = t + ω × p is the displacement of p by a small translation t and rotation vector ω. Therefore
    (t, ω)ᵀ Λ (t, ω) / Λ₁₁ is the mean squared displacement of the points, to first order.
    """
    p = check_points(points).detach().cpu().double()
    x, y, z = p.sum(0)
    zero = torch.zeros_like(x)
    lever = torch.stack([zero, z, -y, -z, zero, x, y, -x, zero]).view(3, 3)  # −[Σp]×
    eye = torch.eye(3, dtype=torch.float64)
    return torch.cat(
        [
            torch.cat([len(p) * eye, lever], dim=1),
            torch.cat([lever.T, p.square().sum() * eye - p.T @ p], dim=1),
        ]
    )


def r1_error(T_estimated: Matrices, T_true: Matrices, information: Matrices) -> Tensor:
    """Compute ξᵀ Λ ξ / Λ₁₁, a squared length: the error of the published 3DMatch evaluation.

    ξ is the translation and the vector part of the unit quaternion (real part ≥ 0) of T_true⁻¹ · T_estimated.
    Both poses map scan j into the frame of scan i, as in gt.log.

    For a translation by d the error is d². With rotation it differs from the mean squared displacement of the
    overlap in two ways, kept for figures that can be compared with published ones:

    - The vector part is half of a small rotation vector (see `information_matrix`). A pure rotation therefore
      counts a quarter of the squared displacement that it causes.
    - T_true⁻¹ · T_estimated acts in the frame of j, but the points in Λ are in the frame of i. Both agree
      only if T_true is the identity.

    `pose_rmse` is the displacement itself.

    Args:
        T_estimated: (..., 4, 4).
        T_true: (..., 4, 4).
        information: Λ (..., 6, 6).
    """
    T_estimated, T_true = _broadcast(T_estimated, T_true)
    Lambda = torch.as_tensor(information).detach().cpu().double()
    if Lambda.shape[-2:] != (6, 6) or not bool((Lambda[..., 0, 0] > 0).all()):
        raise InputError(
            "information matrices must be (..., 6, 6) with a positive number of points at [0, 0]"
        )
    R_true = T_true[..., :3, :3]
    rotation = _quaternion(R_true.mT @ T_estimated[..., :3, :3])
    shift = (R_true.mT @ (T_estimated - T_true)[..., :3, 3:]).squeeze(-1)
    xi = torch.cat([shift, rotation], dim=-1)[..., None]  # (..., 6, 1)
    return (xi.mT @ Lambda @ xi).squeeze(-1).squeeze(-1) / Lambda[..., 0, 0]


def r1_success(
    T_estimated: Matrices, T_true: Matrices, information: Matrices, unit: float = 1.0, limit: float = 0.2
) -> Tensor:
    """Decide success by R1: `r1_error` of at most (`limit` · `unit`)²; bool (...)."""
    return r1_error(T_estimated, T_true, information) <= (limit * unit) ** 2


def r1_counts(i: int, j: int) -> bool:
    """Return whether R1 counts this pair: consecutive scans of the sequence are left out."""
    return j - i > 1


def r2_success(
    T_estimated: Matrices,
    T_true: Matrices,
    unit: float = 1.0,
    degrees: float = 15.0,
    translation: float = 0.3,
) -> Tensor:
    """Decide success by R2: rotation below `degrees`, translation below `translation` · unit; bool (...)."""
    rotation_ok = rotation_error_deg(T_estimated, T_true) < degrees
    return rotation_ok & (translation_error(T_estimated, T_true) < translation * unit)


def _ratios(ratios: Ratios) -> Tensor:
    values = torch.as_tensor(ratios, dtype=torch.float64).flatten()
    if len(values) == 0:
        raise InputError("ratios must hold the inlier ratio of at least one pair")
    return values


def _poses(T: Matrices) -> Tensor:
    matrix = torch.as_tensor(T).detach().cpu().double()
    if matrix.shape[-2:] != (4, 4):
        raise InputError(f"poses must be (..., 4, 4), not {tuple(matrix.shape)}")
    if not bool(matrix.isfinite().all()):
        raise InputError("a pose holds NaN or infinity")
    return matrix


def _broadcast(T: Matrices, T_true: Matrices) -> tuple[Tensor, Tensor]:
    first, second = torch.broadcast_tensors(_poses(T), _poses(T_true))
    return first, second


def _quaternion(R: Tensor) -> Tensor:
    """Compute the vector parts (..., 3) of the unit quaternions (real part ≥ 0) of rotations (..., 3, 3)."""
    try:
        rotation = Rotation.from_matrix(R.reshape(-1, 3, 3).numpy())
    except ValueError as error:
        raise InputError(f"a pose is not rigid: {error}") from error
    quaternion = torch.from_numpy(rotation.as_quat(canonical=True))  # (B, 4): x, y, z, w
    return quaternion[:, :3].reshape(R.shape[:-1])
