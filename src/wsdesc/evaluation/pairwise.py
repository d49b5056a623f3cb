"""Run methods on pairs of scans with ground truth, continue interrupted runs, and summarise the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from wsdesc.cloud.files import read_points
from wsdesc.cloud.units import measure
from wsdesc.core.errors import InputError
from wsdesc.core.executors import Executor, Serial
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.pair_jobs import SceneSetup, score_pairs
from wsdesc.evaluation.provenance import Run, RunLog
from wsdesc.evaluation.records import Record, RecordStore
from wsdesc.evaluation.results import BenchmarkResults, EvaluatedMethod
from wsdesc.evaluation.scenes import EvaluationScene, PairTruth
from wsdesc.evaluation.summary import failure_notes, scene_figures
from wsdesc.evaluation.tables import pairwise_tables

KEY = ("scene", "i", "j", "keypoints")


class RunArguments(TypedDict, total=False):
    """Keyword arguments of every benchmark on pairs."""

    executor: Executor | None  # runs the jobs (default: this process)
    command: str  # command line, recorded with the results
    fresh: bool  # discard existing results
    progress: ProgressHook | None  # hook for progress bars


@dataclass(frozen=True)
class PairBenchmark:
    """A benchmark on pairs of scans with ground truth."""

    protocol: str  # "3dmatch", "eth" or "pairs"; part of the settings of the records
    name: str  # of the folder of results
    title: str
    scenes: Sequence[EvaluationScene]
    notes: Callable[[dict[str, list[Record]]], list[str]]  # records by method -> remarks below the tables


def run_benchmark(
    benchmark: PairBenchmark,
    methods: Sequence[Method],
    options: PairwiseOptions,
    out: Path,
    *,
    executor: Executor | None = None,
    command: str = "",
    fresh: bool = False,
    progress: ProgressHook | None = None,
) -> BenchmarkResults:
    """Evaluate methods on a benchmark, and write the results to `out`/NAME; see `RunArguments`."""
    folder = out / benchmark.name
    run_log = RunLog(folder, command, fresh)
    records = evaluate_pairs(
        benchmark.protocol, benchmark.scenes, methods, options, folder,
        executor=executor, run_log=run_log, fresh=fresh, progress=progress,
    )  # fmt: skip
    results = _summarise(benchmark, methods, options, records, run_log.runs)
    _save(results, folder)
    return results


def evaluate_pairs(
    protocol: str,
    scenes: Sequence[EvaluationScene],
    methods: Sequence[Method],
    options: PairwiseOptions,
    out: Path,
    *,
    executor: Executor | None = None,
    run_log: RunLog | None = None,
    fresh: bool = False,
    progress: ProgressHook | None = None,
) -> dict[str, list[Record]]:
    """Score every pair for every method: {method: records}, in the order of scenes, pairs and counts.

    Each record is written to `out`/METHOD.jsonl at once. Pairs with a record are not scored again. A record
    holds:

    - scene, i, j, keypoints (the requested number) and unit;
    - matches, dimension and inlier_ratio, None for methods that estimate poses;
    - found, T_i_j, rotation_error in degrees and translation_error in the files' unit, None if not found;
    - r1_error in squared units and r1, None where R1 does not count the pair; r2;
    - failure: why the method gave no usable result, else None;
    - seconds: time of the method on this pair.

    Args:
        protocol: "3dmatch", "eth" or "pairs"; part of the settings of the records.
        scenes: Scans and ground truth.
        methods: Methods to score.
        options: Options of the protocol.
        out: Folder of the records.
        executor: Executor of the jobs (default: this process).
        run_log: Log that the present run is added to with its first new record.
        fresh: Discard existing records.
        progress: Hook for progress bars.
    """
    if not options.keypoints or min(options.keypoints) < 1:
        raise InputError("keypoints: expected one or more numbers above 0")
    executor, progress = executor or Serial(), progress or no_progress
    units = {scene.name: options.unit or _measure_unit(scene) for scene in scenes}
    truth = {scene.name: scene.digest for scene in scenes}
    results = {}
    for method in methods:
        settings = {
            "benchmark": protocol,
            "method": method.name,
            "weights": method.fingerprint,
            "truth": truth,
            **options.model_dump(mode="json"),
            "keypoints": _counts(options),
        }
        store = RecordStore.open(out / f"{method.file_stem}.jsonl", settings, KEY, fresh)
        records: list[Record] = []
        for scene in scenes:
            setup = SceneSetup(scene, units[scene.name], method, options)
            records += _evaluate_scene(setup, store, executor, run_log, progress)
        results[method.name] = records
    return results


def _evaluate_scene(
    setup: SceneSetup, store: RecordStore, executor: Executor, run_log: RunLog | None, progress: ProgressHook
) -> list[Record]:
    scene, method = setup.scene, setup.method
    counts = _counts(setup.options)
    counts = counts if method.describer else counts[:1]  # pose estimators use no keypoints
    requested: list[tuple[Record, PairTruth]] = [
        ({"scene": scene.name, "i": pair.i, "j": pair.j, "keypoints": count}, pair)
        for pair in scene.pairs
        for count in counts
    ]
    missing = [(key, pair) for key, pair in requested if key not in store]
    numbers = {number for _, pair in missing for number in (pair.i, pair.j)}
    if missing and run_log is not None:
        run_log.add_present()
    requests = [(pair, key["keypoints"]) for key, pair in missing]
    with ExitStack() as bars:
        label = f"{method.name}, {scene.name}"
        scan_done = bars.enter_context(progress(f"{label}: scans", len(numbers)))
        pair_done = bars.enter_context(progress(f"{label}: pairs", len(missing)))
        for number, record in score_pairs(setup, requests, executor, store.path.parent, lambda: scan_done(1)):
            store.append(missing[number][0] | record)
            pair_done(1)
    return [store[key] for key, _ in requested]


def _counts(options: PairwiseOptions) -> list[int]:
    """The keypoint counts, descending, so that their order in the options does not matter."""
    return sorted(set(options.keypoints), reverse=True)


def _measure_unit(scene: EvaluationScene) -> float:
    numbers = sorted({number for pair in scene.pairs for number in (pair.i, pair.j)})
    return measure(*(read_points(scene.scans[number], nonfinite="drop") for number in numbers)).unit


def _summarise(
    benchmark: PairBenchmark,
    methods: Sequence[Method],
    options: PairwiseOptions,
    records: dict[str, list[Record]],
    runs: Sequence[Run],
) -> BenchmarkResults:
    scenes = benchmark.scenes
    return BenchmarkResults(
        benchmark=benchmark.protocol,
        name=benchmark.name,
        title=benchmark.title,
        samples=_samples(scenes, options),
        notes=[*benchmark.notes(records), *_notes(scenes), *failure_notes(records)],
        options=options.model_dump(mode="json"),
        methods=[EvaluatedMethod.of(method) for method in methods],
        runs=list(runs),
        tables=pairwise_tables(f"{benchmark.title} (%)", records),
        selection={"scene": [scene.name for scene in scenes], "keypoints": _counts(options)},
        records=records,
    )


def _save(results: BenchmarkResults, folder: Path) -> None:
    """Write results.json, results.md, scenes.csv and pairs.csv."""
    figures = [
        {"method": method} | asdict(figure)
        for method, group in results.records.items()
        for figure in scene_figures(group)
    ]
    pairs = [{"method": method} | record for method, group in results.records.items() for record in group]
    results.save(folder, {"scenes.csv": figures, "pairs.csv": pairs})


def _samples(scenes: Sequence[EvaluationScene], options: PairwiseOptions) -> str:
    pairs = sum(len(scene.pairs) for scene in scenes)
    count = ", ".join(map(str, _counts(options)))
    official = all(scene.keypoints.keys() >= scene.scans.keys() for scene in scenes)
    kind = "official" if official else "random"
    plural = "s" if len(scenes) > 1 else ""
    return f"{len(scenes)} scene{plural}, n = {pairs} pairs, {count} {kind} keypoints, {options.solver}"


def _notes(scenes: Sequence[EvaluationScene]) -> list[str]:
    notes = [note for scene in scenes if (note := scene.note())]
    if len(scenes) == 1:
        notes.append(f"A single scene, {scenes[0].name}: no spread over scenes.")
    return notes
