"""Score a method on one pair of scans: match, solve, compare with the ground truth."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from wsdesc.alignment import ransac
from wsdesc.core.geometry import Floats
from wsdesc.evaluation.methods import Method, MethodFailure, as_pose
from wsdesc.evaluation.metrics import (
    inlier_ratio,
    r1_counts,
    r1_error,
    r1_success,
    r2_success,
    rotation_error_deg,
    translation_error,
)
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.scans import DescribedScan
from wsdesc.evaluation.scenes import PairTruth
from wsdesc.evaluation.stopwatch import Stopwatch
from wsdesc.matching import mutual_matches


def score_pair(
    method: Method,
    pair: PairTruth,
    source: DescribedScan,
    target: DescribedScan,
    count: int,
    unit: float,
    options: PairwiseOptions,
) -> Record:
    """Score a pair with the first `count` keypoints of each scan: a record without its key.

    Its `seconds` are the time of both descriptions, for `count` keypoints, and of everything after them.
    """
    stopwatch = Stopwatch(method.device)
    failure = source.failure or target.failure
    p, q = source.scan, target.scan
    record: Record = {"unit": unit, "matches": None, "dimension": None, "inlier_ratio": None}
    T_q_p: Tensor | None = None
    if method.describer is not None:
        record |= {"matches": 0, "inlier_ratio": 0.0}
        if failure is None:
            assert source.descriptors is not None
            assert target.descriptors is not None
            matches = mutual_matches(source.descriptors[:count], target.descriptors[:count]).cpu()  # (M, 2)
            true_q_p = q.T_work_file @ torch.as_tensor(pair.T_i_j) @ torch.linalg.inv(p.T_work_file)
            record["matches"] = len(matches)
            record["dimension"] = source.descriptors.shape[1]
            record["inlier_ratio"] = inlier_ratio(
                p.keypoints, q.keypoints, matches, true_q_p, options.tau1 * unit
            )
            T_q_p = solve_pose(p.keypoints[matches[:, 0]], q.keypoints[matches[:, 1]], unit, options)
    else:
        T, failure = estimate_pose(method, p.points, q.points, unit, f"pair {pair.i} {pair.j}")
        T_q_p = None if T is None else torch.from_numpy(T)
    seconds = stopwatch.seconds()
    seconds += sum(end.seconds * min(1, count / max(1, len(end.scan.keypoints))) for end in (source, target))
    T_i_j = None if T_q_p is None else q.pose_in_file(T_q_p @ p.T_work_file)
    return record | compare_with_truth(pair, T_i_j, unit) | {"failure": failure, "seconds": seconds}


def estimate_pose(
    method: Method, source: Tensor, target: Tensor, unit: float, where: str
) -> tuple[Floats | None, str | None]:
    """Run a pose estimator: T_target_source (4, 4) or None, and why its result is unusable or None."""
    try:
        estimate = method.estimate(source, target, unit, where)
    except MethodFailure as error:
        return None, str(error)
    T = as_pose(estimate)
    return T, "the estimated pose is not rigid" if T is None and estimate is not None else None


def solve_pose(source: Tensor, target: Tensor, unit: float, options: PairwiseOptions) -> Tensor | None:
    """Solve T_target_source (4, 4) of matched points (M, 3); None if the solver finds no pose."""
    threshold = options.threshold * unit
    if options.solver == "consensus":
        from wsdesc.alignment.consensus import consensus

        hypotheses = consensus(source, target, threshold=threshold, hypotheses=1)
        return hypotheses[0].T_target_source if hypotheses else None
    result = ransac(source, target, threshold=threshold, iterations=options.iterations, seed=options.seed)
    return result.T_target_source if result.success else None


def compare_with_truth(pair: PairTruth, T_i_j: Tensor | None, unit: float) -> Record:
    """Compare an estimated pose with the true one; without an estimate the pair has failed.

    `r1` is None where R1 does not count the pair.
    """
    counted = pair.information is not None and r1_counts(pair.i, pair.j)
    if T_i_j is None:
        errors: dict[str, Any] = dict.fromkeys(("T_i_j", "rotation_error", "translation_error", "r1_error"))
        return {"found": False, **errors, "r1": False if counted else None, "r2": False}
    record = {
        "found": True,
        "T_i_j": T_i_j.tolist(),
        "rotation_error": float(rotation_error_deg(T_i_j, pair.T_i_j)),
        "translation_error": float(translation_error(T_i_j, pair.T_i_j)),
        "r1_error": None,
        "r1": None,
        "r2": bool(r2_success(T_i_j, pair.T_i_j, unit)),
    }
    if counted:
        assert pair.information is not None
        record["r1_error"] = float(r1_error(T_i_j, pair.T_i_j, pair.information)) / unit**2
        record["r1"] = bool(r1_success(T_i_j, pair.T_i_j, pair.information, unit))
    return record
