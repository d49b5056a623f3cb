"""Judge methods on pairs of fragments with known poses, whoever does the work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from wsdesc.cloud.files import read_points
from wsdesc.cloud.units import measure
from wsdesc.core.errors import InputError
from wsdesc.core.executors import Executor, Serial
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.pair_jobs import Work, judge_pairs
from wsdesc.evaluation.provenance import Runs
from wsdesc.evaluation.records import Record, Store
from wsdesc.evaluation.scenes import PairTruth, TestScene
from wsdesc.evaluation.score import PairwiseOptions, compare

__all__ = ["KEY", "PairwiseOptions", "Progress", "Silent", "compare", "run_pairwise"]

KEY = ("scene", "i", "j", "keypoints")


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
    executor: Executor | None = None,
    runs: Runs | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> dict[str, list[Record]]:
    """Judge every pair for every method: {method: records}, in the order of scenes, pairs and counts.

    Each record is in `out`/METHOD.jsonl as soon as it is known; pairs that stand there already are not
    judged again, and `runs` hears of the first that is new. `executor` does the work, in this process if
    there is none. What a record holds:

    - scene, i, j, keypoints (asked for) and unit;
    - matches, dimension and inlier_ratio, None for methods that estimate poses;
    - found, T_i_j, rotation_error in degrees and translation_error in the files' unit, None if not found;
    - r1_error in squared units and r1, None where R1 does not count the pair; r2;
    - failure: why a method had no say, else None.
    """
    if not options.keypoints or min(options.keypoints) < 1:
        raise InputError("--keypoints must be one number above 0, or several")
    executor, progress = executor or Serial(), progress or Silent()
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
            records += _run_scene(scene, units[scene.name], method, options, store, executor, runs, progress)
        results[method.name] = records
    return results


def _run_scene(
    scene: TestScene,
    unit: float,
    method: Method,
    options: PairwiseOptions,
    store: Store,
    executor: Executor,
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
    work, asked = Work(scene, unit, method, options), [(pair, key["keypoints"]) for key, pair in missing]
    for number, found in judge_pairs(
        work, asked, executor, store.path.parent, lambda: progress.done("fragments")
    ):
        store.append(missing[number][0] | found)
        progress.done("pairs")
    return [store[key] for key, _ in wanted]


def _measured_unit(scene: TestScene) -> float:
    numbers = sorted({number for pair in scene.pairs for number in (pair.i, pair.j)})
    return measure(*(read_points(scene.fragments[number], nonfinite="drop") for number in numbers)).unit
