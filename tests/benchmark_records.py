"""Records of pairs whose figures can be computed by hand."""

from __future__ import annotations

from typing import Any


def record(
    scene: str, ratio: float | None, r1: bool | None, r2: bool, keypoints: int = 5000
) -> dict[str, Any]:
    return {
        "scene": scene,
        "keypoints": keypoints,
        "inlier_ratio": ratio,
        "matches": None if ratio is None else 100,
        "dimension": None if ratio is None else 32,
        "r1": r1,
        "r2": r2,
        "failure": None,
    }


RECORDS = [
    record("a", 0.04, None, True),
    record("a", 0.10, True, True),
    record("a", 0.30, False, True),
    record("a", 0.40, True, False),
    record("b", 0.50, True, True),
    record("b", 0.06, True, True),
]
