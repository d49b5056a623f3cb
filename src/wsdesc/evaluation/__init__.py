"""Evaluate descriptors and poses against ground truth: metrics, benchmark protocols and their runners.

The metrics are imported on first use, so that the options of the protocols can be read without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("wsdesc.evaluation.metrics"), name)
    raise AttributeError(f"module 'wsdesc.evaluation' has no attribute {name!r}")
