"""The report of a benchmark on pairs of fragments: tables, curves, CSV, and what is to be said about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from wsdesc.evaluation import published, tables
from wsdesc.evaluation.methods import UNTRAINED, Method
from wsdesc.evaluation.pairwise import PairwiseOptions
from wsdesc.evaluation.plots import Curve, Plot
from wsdesc.evaluation.provenance import Run
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.report import Report, Table, write_csv
from wsdesc.evaluation.scenes import TestScene
from wsdesc.evaluation.summary import error_distribution, mean_curve, over_scenes, scene_figures


def write_pair_report(
    name: str,
    title: str,
    main: Table | None,
    scenes: Sequence[TestScene],
    results: dict[str, list[Record]],
    options: PairwiseOptions,
    out: Path,
    *,
    runs: Sequence[Run],
    remarks: Sequence[str] = (),
) -> Report:
    """Write what stands beside the records in `out`: report.json and .md, scenes.csv, pairs.csv, plots.

    `main` is the table in the shape of the paper's, if it has one; the tables by scene and over the number
    of keypoints follow.
    """
    parts = [main, tables.scene_table(results), tables.keypoint_table(results)]
    figures = [
        {"method": method} | asdict(some)
        for method, records in results.items()
        for some in scene_figures(records)
    ]
    write_csv(out / "scenes.csv", figures)
    write_csv(out / "pairs.csv", [{"method": m} | record for m, some in results.items() for record in some])
    report = Report(
        name,
        title,
        list(runs),
        _samples(scenes, options),
        [*remarks, *_remarks(scenes, results)],
        [table for table in parts if table is not None],
        _plots(title, results),
    )
    report.save(out)
    return report


def model_names(methods: Sequence[Method]) -> list[str]:
    """Those that are trained models of ours: they stand beside the paper's own figures."""
    return [m.name for m in methods if m.describer and m.fingerprint and m.fingerprint not in UNTRAINED]


def _samples(scenes: Sequence[TestScene], options: PairwiseOptions) -> str:
    pairs = sum(len(scene.pairs) for scene in scenes)
    count = ", ".join(map(str, sorted(options.keypoints, reverse=True)))
    official = all(scene.keypoints.keys() >= scene.fragments.keys() for scene in scenes)
    kind = "official" if official else "random"
    plural = "s" if len(scenes) > 1 else ""
    return f"{len(scenes)} scene{plural}, n = {pairs} pairs, {count} {kind} keypoints, {options.solver}"


def _remarks(scenes: Sequence[TestScene], results: dict[str, list[Record]]) -> list[str]:
    remarks = [remark for scene in scenes if (remark := scene.remark())]
    if len(scenes) == 1:
        remarks.append(f"One scene alone, {scenes[0].name}: there is no spread over scenes to give.")
    for method, records in results.items():
        failed = [record["failure"] for record in records if record["failure"]]
        if failed:
            remarks.append(f"{method}: {len(failed)} results count as failed; the first: {failed[0]}")
    return remarks


def _plots(title: str, results: dict[str, list[Record]]) -> list[Plot]:
    """FMR over τ2, RR over keypoints by either definition, and the distributions of both errors."""
    most = {name: _most(records) for name, records in results.items()}
    curves: dict[str, Curve] = {}
    for name, records in most.items():
        if (curve := mean_curve(records)) is not None:
            curves[name] = (curve.tau2.tolist(), curve.recall.tolist())
    plots = [Plot("fmr.png", "recall", title, curves)] if curves else []
    for protocol in ("r1", "r2"):
        over = {name: _over_keypoints(records, protocol) for name, records in results.items()}
        over = {name: curve for name, curve in over.items() if len(curve[0]) > 1}
        if over:
            heading = f"{title}, {protocol.upper()}"
            plots.append(Plot(f"keypoints_{protocol}.png", "keypoints", heading, over))
    errors = {"rotation_error": "rotation error (°)", "translation_error": "translation error (files' unit)"}
    for field, label in errors.items():
        steps = {name: error_distribution([r[field] for r in some]) for name, some in most.items()}
        plots.append(Plot(f"{field}.png", "errors", title, steps, label))
    return plots


def _most(records: list[Record]) -> list[Record]:
    most = max(record["keypoints"] for record in records)
    return [record for record in records if record["keypoints"] == most]


def _over_keypoints(records: list[Record], protocol: str) -> tuple[list[float], list[float]]:
    figures = scene_figures(records)
    counts, recalls = [], []
    for count in sorted({f.keypoints for f in figures}):
        spread = over_scenes([getattr(f, protocol) for f in figures if f.keypoints == count])
        if spread is not None:
            counts.append(float(count))
            recalls.append(spread.mean)
    return counts, recalls


def indoor_table(results: dict[str, list[Record]], rotated: bool, models: Sequence[str]) -> Table:
    """Table 1, or Table 2 for rotated fragments."""
    rows = published.ROTATED if rotated else published.INDOOR
    title = f"3DMatch{', rotated' if rotated else ''} (%); Table {2 if rotated else 1} of the paper"
    return tables.main_table(title, results, rows, models)
