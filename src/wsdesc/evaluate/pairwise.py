"""Judge methods on pairs of fragments with known poses: describe, match, solve, compare with the truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor

from wsdesc.align import ransac
from wsdesc.cloud.files import read_points
from wsdesc.cloud.units import INDOOR_RESOLUTION, measure
from wsdesc.errors import InputError
from wsdesc.evaluate.fragments import Described, describe_fragment, load_fragment
from wsdesc.evaluate.methods import Method, as_motion
from wsdesc.evaluate.metrics import (
    inlier_ratio,
    r1_counts,
    r1_error,
    r1_success,
    r2_success,
    rotation_error_deg,
    translation_error,
)
from wsdesc.evaluate.runs import Runs
from wsdesc.evaluate.scenes import PairTruth, TestScene
from wsdesc.evaluate.store import Record, Store
from wsdesc.match import mutual
from wsdesc.options import Options

Solver = Literal["ransac", "consensus"]
KEY = ("scene", "i", "j", "keypoints")


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


class Progress(Protocol):
    """What a run tells of itself: the kinds of work ahead, then each piece that is done."""

    def expect(self, what: str, **pieces: int) -> None: ...

    def done(self, kind: str) -> None: ...


class Silent:
    """For those who do not watch."""

    def expect(self, what: str, **pieces: int) -> None:
        pass

    def done(self, kind: str) -> None:
        pass


def run_pairwise(
    benchmark: str,
    scenes: Sequence[TestScene],
    methods: Sequence[Method],
    options: PairwiseOptions,
    out: Path,
    *,
    runs: Runs | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> dict[str, list[Record]]:
    """Judge every pair for every method: {method: records}, in the order of scenes, pairs and counts.

    Each record is in `out`/METHOD.jsonl as soon as it is known; pairs that stand there already are not
    judged again, and `runs` hears of the first that is new. What a record holds:

    - scene, i, j, keypoints (asked for) and unit;
    - matches, dimension and inlier_ratio, None for methods that estimate poses;
    - found, T_i_j, rotation_error in degrees and translation_error in the files' unit, None if not found;
    - r1_error in squared units and r1, None where R1 does not count the pair; r2;
    - failure: why a method had no say, else None.
    """
    if not options.keypoints or min(options.keypoints) < 1:
        raise InputError("--keypoints must be one number above 0, or several")
    progress = progress or Silent()
    units = {scene.name: options.unit or _measured_unit(scene) for scene in scenes}
    truth = {scene.name: scene.digest for scene in scenes}
    results = {}
    for method in methods:
        settings = {
            "benchmark": benchmark,
            "method": method.name,
            "weights": method.fingerprint,
            "truth": truth,
            **options.model_dump(mode="json"),
            "keypoints": sorted(set(options.keypoints), reverse=True),  # in whatever order they were named
        }
        store = Store.open(out / f"{method.file_stem}.jsonl", settings, KEY, fresh)
        records: list[Record] = []
        for scene in scenes:
            records += _run_scene(scene, units[scene.name], method, options, store, runs, progress)
        results[method.name] = records
    return results


def _run_scene(
    scene: TestScene,
    unit: float,
    method: Method,
    options: PairwiseOptions,
    store: Store,
    runs: Runs | None,
    progress: Progress,
) -> list[Record]:
    counts = sorted(set(options.keypoints), reverse=True)
    counts = counts if method.describer else counts[:1]  # a pose needs no keypoints
    wanted: list[tuple[Record, PairTruth]] = [
        ({"scene": scene.name, "i": pair.i, "j": pair.j, "keypoints": count}, pair)
        for pair in scene.pairs
        for count in counts
    ]
    missing = [(key, pair) for key, pair in wanted if key not in store]
    numbers = {number for _, pair in missing for number in (pair.i, pair.j)}
    progress.expect(f"{method.name}: {scene.name}", fragments=len(numbers), pairs=len(missing))
    if missing and runs is not None:
        runs.note()
    described: dict[int, Described] = {}
    for key, pair in missing:
        for number in (pair.i, pair.j):
            if number not in described:
                where = f"{scene.name}/{scene.fragments[number].stem}"
                fragment = load_fragment(
                    scene,
                    number,
                    keypoints=max(counts),
                    voxel=options.voxel * unit if method.describer else 0.0,
                    rotated=options.rotated,
                    seed=options.seed,
                )
                described[number] = describe_fragment(method, fragment, unit, where)
                progress.done("fragments")
        found = judge(method, pair, described[pair.j], described[pair.i], key["keypoints"], unit, options)
        store.append(key | found)
        progress.done("pairs")
    return [store[key] for key, _ in wanted]


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
            matches = mutual(source.features[:count], target.features[:count]).cpu()  # (M, 2)
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
        from wsdesc.align.consensus import consensus

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


def _measured_unit(scene: TestScene) -> float:
    numbers = sorted({number for pair in scene.pairs for number in (pair.i, pair.j)})
    return measure(*(read_points(scene.fragments[number], nonfinite="drop") for number in numbers)).unit
