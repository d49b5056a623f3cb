"""How good descriptors and transformations are, against known poses."""

from wsdesc.evaluation.metrics import (
    feature_match_recall,
    feature_match_recall_curve,
    information_matrix,
    inlier_ratio,
    pose_rmse,
    r1_counts,
    r1_error,
    r1_success,
    r2_success,
    rotation_error_deg,
    translation_error,
)

__all__ = [
    "feature_match_recall",
    "feature_match_recall_curve",
    "information_matrix",
    "inlier_ratio",
    "pose_rmse",
    "r1_counts",
    "r1_error",
    "r1_success",
    "r2_success",
    "rotation_error_deg",
    "translation_error",
]
