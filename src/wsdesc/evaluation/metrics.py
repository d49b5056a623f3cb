"""What the public benchmarks measure: inlier ratio, feature-match recall, and two protocols of success.

Transformations are (..., 4, 4), one or many at once, as tensors or arrays; what is measured on them is a
float64 tensor (...) on the CPU. Lengths are in the points' own measure; `unit` is what counts as a metre.

Registration recall has two protocols, whose figures do not belong in one column:

- R1 weighs the error by the points of the overlap (`r1_error`) and leaves out neighbours in the sequence
  (`r1_counts`), which are too easy.
- R2 bounds rotation and translation (`r2_success`), all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc.cloud.neighbours import check_points
from wsdesc.core.errors import InputError

Matrices = Tensor | NDArray[np.float64]
Ratios = Sequence[float] | Tensor | NDArray[np.float64]


class RecallCurve(NamedTuple):
    """Feature-match recall at each threshold."""

    tau2: Tensor  # (S,) float64
    recall: Tensor  # (S,) float64


def inlier_ratio(
    source_keys: Tensor,
    target_keys: Tensor,
    matches: Tensor,
    T_target_source: Matrices,
    tau1: float = 0.1,
) -> float:
    """Share of matches less than `tau1` apart under the true transformation; 0 if there is no match.

    Args:
        source_keys, target_keys: keypoints (K, 3) and (L, 3), on one device.
        matches: (M, 2) int64, a row of each.
        T_target_source: the truth, (4, 4).
        tau1: in the unit of the keypoints.
    """
    if matches.ndim != 2 or matches.shape[1] != 2:
        raise InputError(f"matches must be (M, 2), not {tuple(matches.shape)}")
    T = _transforms(T_target_source).to(source_keys.device)
    if T.ndim != 2:
        raise InputError(f"matches are judged by one transformation (4, 4), not {tuple(T.shape)}")
    if len(matches) == 0:
        return 0.0
    source, target = source_keys[matches[:, 0]].double(), target_keys[matches[:, 1]].double()
    distance = torch.linalg.vector_norm(_moved(T, source) - target, dim=1)  # (M,)
    return float((distance < tau1).double().mean())


def feature_match_recall(ratios: Ratios, tau2: float = 0.05) -> float:
    """Share of pairs whose inlier ratio exceeds `tau2`."""
    return float((_ratios(ratios) > tau2).double().mean())


def feature_match_recall_curve(ratios: Ratios, highest: float = 0.3, steps: int = 31) -> RecallCurve:
    """Feature-match recall at `steps` thresholds from 0 to `highest`; it never rises."""
    tau2 = torch.linspace(0, highest, steps, dtype=torch.float64)
    return RecallCurve(tau2, (_ratios(ratios) > tau2[:, None]).double().mean(1))


def rotation_error_deg(T: Matrices, T_true: Matrices) -> Tensor:
    """Angle between the two rotations, 0 … 180°."""
    T, T_true = _two(T, T_true)
    between = T_true[..., :3, :3].mT @ T[..., :3, :3]
    sine: Tensor = torch.linalg.vector_norm(_quaternion(between), dim=-1)  # of half the angle
    return torch.rad2deg(2 * torch.asin(sine.clamp(max=1)))


def translation_error(T: Matrices, T_true: Matrices) -> Tensor:
    """Distance of the two translations: how far apart they put the source's origin."""
    T, T_true = _two(T, T_true)
    distance: Tensor = torch.linalg.vector_norm(T[..., :3, 3] - T_true[..., :3, 3], dim=-1)
    return distance


def pose_rmse(T: Matrices, T_true: Matrices, points: Tensor) -> Tensor:
    """Root mean square of the distances between where the two put the source's points (N, 3)."""
    T, T_true = _two(T, T_true)
    points = check_points(points).detach().cpu().double()
    return (_moved(T, points) - _moved(T_true, points)).square().sum(-1).mean(-1).sqrt()


def information_matrix(points: Tensor) -> Tensor:
    """Λ = Σ GᵀG with G = [I | −[p]×] over points p (N, 3): (6, 6) float64, as in gt.info.

    G (t, ω) = t + ω × p is how a small motion, translation t and rotation vector ω, displaces p. Therefore
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
    """ξᵀ Λ ξ / Λ₁₁, a squared length: the error of the published evaluation of 3DMatch.

    ξ is the translation and the vector part of the quaternion, its real part not negative, of
    T_true⁻¹ · T_estimated. Both matrices map fragment j into the frame of i, as in gt.log.

    What it measures. For a translation by d it is d². Where rotation is involved it is not quite the mean
    squared displacement of the overlap, in two ways, which are kept for the sake of comparable figures:

    - The vector part is half of a small rotation vector (see `information_matrix`). A pure rotation counts
      a quarter of the squared displacement it causes: half the length.
    - T_true⁻¹ · T_estimated moves points of j's frame, while the points in Λ stand in the frame of i. The two
      agree if T_true is the identity; else the rotation acts on a lever that is turned and shifted, and
      what translation it should cancel remains.

    `pose_rmse` is the displacement itself.

    Args:
        T_estimated, T_true: (..., 4, 4).
        information: Λ (..., 6, 6).
    """
    T_estimated, T_true = _two(T_estimated, T_true)
    Lambda = torch.as_tensor(information).detach().cpu().double()
    if Lambda.shape[-2:] != (6, 6) or not bool((Lambda[..., 0, 0] > 0).all()):
        raise InputError("information matrices must be (..., 6, 6) and of one point or more")
    R_true = T_true[..., :3, :3]
    turn = _quaternion(R_true.mT @ T_estimated[..., :3, :3])
    shift = (R_true.mT @ (T_estimated - T_true)[..., :3, 3:]).squeeze(-1)
    xi = torch.cat([shift, turn], dim=-1)[..., None]  # (..., 6, 1)
    return (xi.mT @ Lambda @ xi).squeeze(-1).squeeze(-1) / Lambda[..., 0, 0]


def r1_success(
    T_estimated: Matrices, T_true: Matrices, information: Matrices, unit: float = 1.0, limit: float = 0.2
) -> Tensor:
    """R1: `r1_error` of at most `limit`², 0.2 m unless told otherwise; bool (...)."""
    return r1_error(T_estimated, T_true, information) <= (limit * unit) ** 2


def r1_counts(i: int, j: int) -> bool:
    """Whether R1 counts this pair: fragments that follow each other in the sequence are left out."""
    return j - i > 1


def r2_success(
    T_estimated: Matrices,
    T_true: Matrices,
    unit: float = 1.0,
    degrees: float = 15.0,
    translation: float = 0.3,
) -> Tensor:
    """R2: rotation below `degrees` and translation below `translation`, 0.3 m, off; bool (...)."""
    turned = rotation_error_deg(T_estimated, T_true) < degrees
    return turned & (translation_error(T_estimated, T_true) < translation * unit)


def _ratios(ratios: Ratios) -> Tensor:
    values = torch.as_tensor(ratios, dtype=torch.float64).flatten()
    if len(values) == 0:
        raise InputError("a recall needs the inlier ratio of one pair or more")
    return values


def _transforms(T: Matrices) -> Tensor:
    matrix = torch.as_tensor(T).detach().cpu().double()
    if matrix.shape[-2:] != (4, 4):
        raise InputError(f"transformations must be (..., 4, 4), not {tuple(matrix.shape)}")
    if not bool(matrix.isfinite().all()):
        raise InputError("a transformation holds NaN or infinity")
    return matrix


def _two(T: Matrices, T_true: Matrices) -> tuple[Tensor, Tensor]:
    first, second = torch.broadcast_tensors(_transforms(T), _transforms(T_true))
    return first, second


def _moved(T: Tensor, points: Tensor) -> Tensor:
    """Points (N, 3) by transformations (..., 4, 4): (..., N, 3)."""
    return points @ T[..., :3, :3].mT + T[..., None, :3, 3]


def _quaternion(R: Tensor) -> Tensor:
    """Vector parts (..., 3) of the unit quaternions of rotations (..., 3, 3), real part not negative."""
    try:
        rotation = Rotation.from_matrix(R.reshape(-1, 3, 3).numpy())
    except ValueError as error:
        raise InputError(f"a transformation is not a rigid motion: {error}") from error
    quaternion = torch.from_numpy(rotation.as_quat(canonical=True))  # (B, 4): x, y, z, w
    return quaternion[:, :3].reshape(R.shape[:-1])
