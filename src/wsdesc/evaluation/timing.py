"""The timing protocol: times of descriptors and pairs, and their growth with points and keypoints."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wsdesc.alignment import ransac
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.folders import make_folder
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.descriptor.model import WSDesc
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.options import TimingOptions
from wsdesc.evaluation.provenance import this_run
from wsdesc.evaluation.records import Record, write_records
from wsdesc.evaluation.results import BenchmarkResults, EvaluatedMethod
from wsdesc.evaluation.scans import EvaluationScan, load_scan
from wsdesc.evaluation.scenes import EvaluationScene, PairTruth, read_scenes
from wsdesc.evaluation.stopwatch import median_ms
from wsdesc.evaluation.timed_steps import descriptor_steps
from wsdesc.evaluation.timing_growth import time_growth
from wsdesc.evaluation.timing_tables import timing_tables
from wsdesc.matching import mutual_matches


def run_timing(
    root: Path,
    methods: Sequence[Method],
    options: TimingOptions,
    out: Path,
    *,
    devices: Sequence[str] = ("cpu",),
    command: str = "",
    progress: ProgressHook | None = None,
) -> BenchmarkResults:
    """Time methods on the first scene at or below `root`; results go to `out`/timing.

    Models and learned peers are timed on each device, other peers on the CPU. A run is never continued: it
    measures all times on one machine.

    Args:
        root: Folder in the layout of 3DMatch.
        methods: Methods to time.
        options: Options of the protocol.
        out: Folder of the results.
        devices: Devices of the models and learned peers.
        command: Command line to record with the results.
        progress: Hook for progress bars.
    """
    progress = progress or no_progress
    scene = read_scenes(root)[0]
    pairs = scene.pairs[: options.pairs]
    numbers = sorted({number for pair in pairs for number in (pair.i, pair.j)})
    scans = {number: _load(scene, number, options) for number in numbers}
    records: dict[str, list[Record]] = {method.name: [] for method in methods}
    variants = [variant for method in methods for variant in _on_devices(method, devices)]
    for method in variants:
        records[method.name] += _time_pairs(method, scene, pairs, scans, options, progress)
    for method in variants:
        if isinstance(method.describer, WSDesc):
            records[method.name] += time_growth(method, scans[numbers[0]], options, progress)
    folder = out / "timing"
    results = _summarise(records, methods, len(pairs), len(numbers), options, command)
    settings: dict[str, Any] = {"benchmark": "timing", **options.model_dump(mode="json")}
    make_folder(folder)
    for evaluated in results.methods:
        write_records(folder / evaluated.file, settings, records[evaluated.name])
    results.save(folder, {"timing.csv": [record for group in records.values() for record in group]})
    return results


def _time_pairs(
    method: Method,
    scene: EvaluationScene,
    pairs: Sequence[PairTruth],
    scans: dict[int, EvaluationScan],
    options: TimingOptions,
    progress: ProgressHook,
) -> list[Record]:
    """Measure the times of a method on scans, if it describes them, and on pairs."""
    described = scans if method.describer else {}
    descriptors: dict[int, Tensor] = {}
    records = []
    with ExitStack() as bars:
        label = f"{method.name} on {method.device}"
        scan_done = bars.enter_context(progress(f"{label}: scans", len(described)))
        pair_done = bars.enter_context(progress(f"{label}: pairs", len(pairs)))
        for number, scan in described.items():
            if method.full_cloud:
                scan = replace(scan, points=_all_points(scene, number, options))
            record, descriptors[number] = _time_scan(method, scan, options, number)
            records.append(record)
            scan_done(1)
        for pair in pairs:
            ends = (pair.j, pair.i)
            if method.describer:
                times = _time_matches([(scans[n].keypoints, descriptors[n]) for n in ends], options)
            else:
                times = _time_pose(method, [_all_points(scene, n, options) for n in ends], options)
            key = {"what": "pair", "method": method.name, "device": method.device}
            records.append(key | {"i": pair.i, "j": pair.j} | times)
            pair_done(1)
    return records


def _summarise(
    records: dict[str, list[Record]],
    methods: Sequence[Method],
    pairs: int,
    scans: int,
    options: TimingOptions,
    command: str,
) -> BenchmarkResults:
    devices = dict.fromkeys(record["device"].upper() for group in records.values() for record in group)
    return BenchmarkResults(
        benchmark="timing",
        name="timing",
        title=f"Timing, {' and '.join(devices)}",
        samples=f"n = {scans} scans, {pairs} pairs, {options.keypoints} keypoints per scan",
        notes=[
            "Compare only rows of one run: times of different machines differ for other reasons.",
            f"A whole pair: {options.keypoints} descriptors per scan, NN query, RANSAC; for methods that "
            "estimate poses, everything from the full scans on.",
            "Points were added far from every keypoint: only sorting them, once per cloud, should take time.",
        ],
        options=options.model_dump(mode="json"),
        methods=[EvaluatedMethod.of(method) for method in methods],
        runs=[this_run(command)],
        tables=timing_tables(records, options.keypoints),
        selection={},
        records=records,
    )


def _on_devices(method: Method, devices: Sequence[str]) -> list[Method]:
    """Copy a model or a learned peer to each device; other methods stay on the CPU."""
    if not isinstance(method.describer, WSDesc) and not method.source:
        return [method]
    return [replace(method, device=device) for device in devices]


def _load(scene: EvaluationScene, number: int, options: TimingOptions) -> EvaluationScan:
    largest = max(options.keypoints, *options.counts)
    voxel = INDOOR_RESOLUTION * options.unit
    return load_scan(scene, number, keypoints=largest, voxel=voxel, rotated=False, seed=options.seed)


def _all_points(scene: EvaluationScene, number: int, options: TimingOptions) -> Tensor:
    """Load all points, the input of pose estimators."""
    return load_scan(scene, number, keypoints=1, voxel=0, rotated=False, seed=options.seed).points


@torch.inference_mode()
def _time_scan(
    method: Method, scan: EvaluationScan, options: TimingOptions, number: int
) -> tuple[Record, Tensor]:
    """Measure the time per descriptor of one scan, in ms; return it with the descriptors."""
    keypoints = scan.keypoints[: options.keypoints]
    record: Record = {"what": "scan", "method": method.name, "device": method.device, "scan": number}
    record |= {"points": len(scan.points), "keypoints": len(keypoints)}
    steps = descriptor_steps(method, scan.points, keypoints, options.unit)
    for name, step in steps.items():
        record[name] = median_ms(step, options.repeats) / len(keypoints)
    descriptors = method.describe(scan.points, keypoints, options.unit, f"scan {number}")
    return record | {"dimension": descriptors.shape[1]}, descriptors


def _time_matches(sides: list[tuple[Tensor, Tensor]], options: TimingOptions) -> Record:
    """Measure NN query and RANSAC of (keypoints, descriptors) of source and target, in ms."""
    (keypoints_p, descriptors_p), (keypoints_q, descriptors_q) = sides
    matches = mutual_matches(descriptors_p, descriptors_q).cpu()
    source, target = keypoints_p[matches[:, 0]], keypoints_q[matches[:, 1]]
    threshold = 0.05 * options.unit
    return {
        "dimension": descriptors_p.shape[1],
        "query": median_ms(lambda: mutual_matches(descriptors_p, descriptors_q), options.repeats),
        "ransac": median_ms(lambda: ransac(source, target, threshold=threshold), options.repeats),
    }


def _time_pose(method: Method, clouds: list[Tensor], options: TimingOptions) -> Record:
    """Measure a pose estimator on one pair, in ms."""
    source, target = clouds
    return {
        "whole": median_ms(lambda: method.estimate(source, target, options.unit, "timing"), options.repeats)
    }
