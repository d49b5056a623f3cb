"""Join results of several folders that belong to the same benchmark, for example of different machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wsdesc.evaluation.records import Record
from wsdesc.evaluation.results import BenchmarkResults, EvaluatedMethod
from wsdesc.evaluation.timing_tables import pair_table


def merge_results(results: Sequence[BenchmarkResults]) -> BenchmarkResults:
    """Join the rows of results with the same name; of a method in several folders the first counts.

    Machines are appended to the devices of the methods: `cuda` becomes `NVIDIA H200`.
    """
    first = results[0]
    methods, records = {}, {}
    for part in results:
        for method in part.methods:
            if method.name not in methods:
                methods[method.name] = replace(method, device=_machine(method, part))
                records[method.name] = part.records[method.name]
    return replace(
        first,
        samples="; ".join(dict.fromkeys(part.samples for part in results)),
        notes=list(dict.fromkeys(note for part in results for note in part.notes)),
        methods=list(methods.values()),
        runs=list(dict.fromkeys(run for part in results for run in part.runs)),
        selection=_union([part.selection for part in results]),
        records=records,
    )


def with_measured_times(results: BenchmarkResults, timing: Sequence[BenchmarkResults]) -> BenchmarkResults:
    """Replace the seconds of pairs by times of the timing benchmark, which runs alone on a machine.

    Only pairs of the scene and keypoint count that were timed, 3DMatch, are changed.
    """
    if results.benchmark != "3dmatch":
        return results
    records = dict(results.records)
    for part in timing:
        count = part.options["keypoints"]
        rows = [record for group in part.records.values() for record in group]
        for row in pair_table(rows, count).rows:
            group = records.get(row[0], [])
            seconds = float(row[-1]) / 1e3
            records[row[0]] = [r | {"seconds": seconds} if _counts(r, count) else r for r in group]
    return replace(results, records={name: records[name] for name in results.records})


def _counts(record: Record, keypoints: int) -> bool:
    return record["keypoints"] == keypoints or record["inlier_ratio"] is None


def common_keypoints(records: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """Keep the keypoint counts that all descriptors share; if they share none, keep everything."""
    counts = [
        {record["keypoints"] for record in group}
        for group in records.values()
        if any(record["dimension"] for record in group)
    ]
    common = set.intersection(*counts) if counts else set()
    if not common:
        return records
    return {
        name: [r for r in group if r["keypoints"] in common or r["inlier_ratio"] is None]
        for name, group in records.items()
    }


def _machine(method: EvaluatedMethod, results: BenchmarkResults) -> str:
    """Shorten the machine of the last run to the GPU or to the number of cores."""
    parts = results.runs[-1].machine.split(", ") if results.runs else []
    cores = next((part for part in parts if part.endswith(" cores")), "")
    gpu = next((part for part in parts if part.startswith("NVIDIA")), "")
    # Older results have no device; networks ran on the GPU where there was one.
    on_gpu = method.device == "cuda" or (not method.device and (method.weights or method.kind == "model"))
    return gpu if gpu and on_gpu else cores


def _union(selections: Sequence[dict[str, list[object]]]) -> dict[str, list[object]]:
    names = dict.fromkeys(name for selection in selections for name in selection)
    return {
        name: list(dict.fromkeys(value for selection in selections for value in selection.get(name, [])))
        for name in names
    }
