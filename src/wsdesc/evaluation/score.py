"""One pair of fragments: match, solve, and compare with the truth."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from wsdesc.alignment import ransac
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.options import Options
from wsdesc.evaluation.fragments import Described
from wsdesc.evaluation.methods import Method, as_motion
from wsdesc.evaluation.metrics import (
    inlier_ratio,
    r1_counts,
    r1_error,
    r1_success,
    r2_success,
    rotation_error_deg,
    translation_error,
)
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.scenes import PairTruth
from wsdesc.matching import mutual_matches

Solver = Literal["ransac", "consensus"]


class PairwiseOptions(Options):
    """How pairs are judged: the paper's protocol, unless told otherwise. Lengths are in units."""

    keypoints: tuple[int, ...] = (5000,)  # of a fragment; the largest set is described, the others are parts
    rotated: bool = False  # turn every fragment at random, and shift it by its own extent
    low_overlap: bool = False  # the pairs that overlap little
    unit: float | None = Field(1.0, gt=0)  # what counts as a metre in the files; None: measured, for a scene
    voxel: float = Field(INDOOR_RESOLUTION, ge=0)  # cells that clouds are thinned by; 0 keeps all points
    solver: Solver = "ransac"  # what makes a motion of matches
    tau1: float = Field(0.1, gt=0)  # distance below which a match is right
    threshold: float = Field(0.05, gt=0)  # distance up to which a match agrees with a motion
    iterations: int = Field(50_000, ge=1)  # of RANSAC, at most
    seed: int = Field(0, ge=0)


def judge(
    method: Method,
    pair: PairTruth,
    source: Described,
    target: Described,
    count: int,
    unit: float,
    options: PairwiseOptions,
) -> Record:
    """What becomes of a pair with the first `count` keypoints: a record without its key."""
    failure = source.failure or target.failure
    p, q = source.fragment, target.fragment
    record: Record = {"unit": unit, "matches": None, "dimension": None, "inlier_ratio": None}
    T_q_p: Tensor | None = None
    if method.describer is not None:
        record |= {"matches": 0, "inlier_ratio": 0.0}
        if failure is None:
            assert source.features is not None
            assert target.features is not None
            matches = mutual_matches(source.features[:count], target.features[:count]).cpu()  # (M, 2)
            true_q_p = q.T_work_file @ torch.as_tensor(pair.T_i_j) @ torch.linalg.inv(p.T_work_file)
            record["matches"] = len(matches)
            record["dimension"] = source.features.shape[1]
            record["inlier_ratio"] = inlier_ratio(p.keys, q.keys, matches, true_q_p, options.tau1 * unit)
            T_q_p = solve(p.keys[matches[:, 0]], q.keys[matches[:, 1]], unit, options)
    else:
        assert method.estimator is not None
        answer = method.estimator(p.points, q.points, unit)
        motion = as_motion(answer)
        if motion is None and answer is not None:
            failure = "its pose is not a rigid motion"
        T_q_p = None if motion is None else torch.from_numpy(motion)
    T_i_j = None if T_q_p is None else q.file_motion(T_q_p @ p.T_work_file)
    return record | compare(pair, T_i_j, unit) | {"failure": failure}


def solve(source: Tensor, target: Tensor, unit: float, options: PairwiseOptions) -> Tensor | None:
    """T_target_source (4, 4) of matched points (M, 3), by the chosen solver; None if it finds none."""
    threshold = options.threshold * unit
    if options.solver == "consensus":
        from wsdesc.alignment.consensus import consensus

        hypotheses = consensus(source, target, threshold=threshold, hypotheses=1)
        return hypotheses[0].T_target_source if hypotheses else None
    found = ransac(source, target, threshold=threshold, iterations=options.iterations, seed=options.seed)
    return found.T_target_source if found.success else None


def compare(pair: PairTruth, T_i_j: Tensor | None, unit: float) -> Record:
    """An estimate against the truth; without one the pair has failed wherever it counts."""
    judged_by_r1 = pair.information is not None and r1_counts(pair.i, pair.j)
    if T_i_j is None:
        errors: dict[str, Any] = dict.fromkeys(("T_i_j", "rotation_error", "translation_error", "r1_error"))
        return {"found": False, **errors, "r1": False if judged_by_r1 else None, "r2": False}
    record = {
        "found": True,
        "T_i_j": T_i_j.tolist(),
        "rotation_error": float(rotation_error_deg(T_i_j, pair.T_i_j)),
        "translation_error": float(translation_error(T_i_j, pair.T_i_j)),
        "r1_error": None,
        "r1": None,
        "r2": bool(r2_success(T_i_j, pair.T_i_j, unit)),
    }
    if judged_by_r1:
        assert pair.information is not None
        record["r1_error"] = float(r1_error(T_i_j, pair.T_i_j, pair.information)) / unit**2
        record["r1"] = bool(r1_success(T_i_j, pair.T_i_j, pair.information, unit))
    return record
