"""Sections of the benchmarks on pairs of scans: 3DMatch, ablations, ETH and pairs of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.report import published
from benchmarks.report.ablation import ablation_table, are_ablations, order_note
from benchmarks.report.beside_published import with_published
from benchmarks.report.curves import error_distribution, mean_recall_curve, recall_over_keypoints
from benchmarks.report.merge import common_keypoints
from benchmarks.report.plots import Curve, Plot
from benchmarks.report.rows import ahead_note, rows_table, success_over_time
from benchmarks.report.section import Section
from wsdesc.evaluation.eth import SCENES as ETH_SCENES
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.evaluation.summary import most_keypoints, over_scenes, scene_figures
from wsdesc.evaluation.tables import NONE, Results, Table, keypoint_table, main_table, percent, scene_table


def pair_section(results: BenchmarkResults) -> Section:
    """Build the section of a benchmark on pairs."""
    models = [method.name for method in results.methods if method.kind == "model"]
    records, title = common_keypoints(results.records), results.title
    rotated, low_overlap = results.options["rotated"], results.options["low_overlap"]
    notes: list[str] = []
    name = results.name
    if are_ablations(records):
        main, title, name = ablation_table(records), f"Ablations, {title}", f"ablation-{name}"
        notes += [note] if (note := order_note(records)) else []
        if rotated:
            notes.append("Published figures belong to scans that are not rotated; these scans are.")
    elif results.benchmark == "eth":
        main = eth_table(records, models)
    elif results.benchmark == "3dmatch" and not low_overlap:
        main = indoor_table(records, rotated, models)
    else:
        main = main_table(f"{title} (%)", records)
        if results.benchmark == "3dmatch":
            notes.append(
                "Published figures belong to pairs with an overlap of at least 30 %; these overlap less."
            )
    if "IR" in main.header and any(method.kind == "peer" for method in results.methods):
        ahead = ahead_note(main, {"IR": 1, "FMR 0.2": 1, "RR by R1": 1}, results)
        notes += [ahead] if ahead else []
    shown = replace(results, records=records)
    tables = [main, rows_table(shown), scene_table(records), keypoint_table(results.records)]
    return Section(
        name,
        title,
        results.runs,
        results.samples,
        [*results.notes, *notes],
        [table for table in tables if table is not None],
        [*_plots(title, results.records, records), *success_over_time(title, shown)],
    )


def indoor_table(results: Results, rotated: bool, models: Sequence[str]) -> Table:
    """Build Table 1, or Table 2 for rotated scans."""
    rows = published.ROTATED if rotated else published.INDOOR
    title = f"3DMatch{', rotated' if rotated else ''} (%); Table {2 if rotated else 1} of the paper"
    heading = "IR / FMR 0.05 / FMR 0.2 / RR by R1"
    return with_published(main_table(title, results), title, heading, rows, (3, 4, 5, 6), models, dimension=2)


def eth_table(results: Results, models: Sequence[str]) -> Table:
    """Build Table 8: FMR at τ2 = 0.05, one column per scene."""
    figures = {name: most_keypoints(scene_figures(records)) for name, records in results.items()}
    present = dict.fromkeys(f.scene for group in figures.values() for f in group)
    scenes = [scene for scene in ETH_SCENES if scene in present]
    scenes += [scene for scene in present if scene not in scenes]
    rows = []
    for name, group in figures.items():
        recall = {f.scene: f.recall_005 for f in group}
        mean = over_scenes(list(recall.values()))
        cells = [percent(recall.get(scene)) for scene in scenes]
        rows.append([name, *cells, mean.percent() if mean else NONE])
    title = "ETH, FMR at τ2 = 0.05 (%); Table 8 of the paper"
    heading = f"{' / '.join(ETH_SCENES)} / mean"
    table = Table(title, ["method", *scenes, "mean"], rows)
    return with_published(table, title, heading, published.OUTDOOR, (2, 3, 4, 5, 6), models)


def _plots(title: str, results: Results, common: Results) -> list[Plot]:
    """Plot FMR over τ2, RR over keypoints by both definitions, and the distributions of both errors.

    `common` are the records with a number of keypoints that all methods have, where there is one.
    """
    largest = {name: _largest_count(records) for name, records in common.items()}
    curves: dict[str, Curve] = {}
    for name, records in largest.items():
        if (curve := mean_recall_curve(records)) is not None:
            curves[name] = curve
    plots = [Plot("fmr.png", "recall", title, curves)] if curves else []
    for protocol in ("r1", "r2"):
        recalls = {name: recall_over_keypoints(records, protocol) for name, records in results.items()}
        recalls = {name: curve for name, curve in recalls.items() if len(curve[0]) > 1}
        if recalls:
            heading = f"{title}, {protocol.upper()}"
            plots.append(Plot(f"keypoints_{protocol}.png", "keypoints", heading, recalls))
    labels = {"rotation_error": "rotation error (°)", "translation_error": "translation error (files' unit)"}
    for field, label in labels.items():
        steps = {name: error_distribution([r[field] for r in group]) for name, group in largest.items()}
        plots.append(Plot(f"{field}.png", "errors", title, steps, label))
    return plots


def _largest_count(records: Sequence[Record]) -> list[Record]:
    largest = max(record["keypoints"] for record in records)
    return [record for record in records if record["keypoints"] == largest]
