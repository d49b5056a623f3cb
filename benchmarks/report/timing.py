"""Section of the timing benchmark: the paper's two tables, and plots of growth."""

from __future__ import annotations

from benchmarks.report import published
from benchmarks.report.beside_published import paper_name, published_row
from benchmarks.report.plots import Curve, Plot
from benchmarks.report.section import Section
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.evaluation.tables import NONE, Table
from wsdesc.evaluation.timing_tables import STEPS, timing_groups, timing_tables

_NOTE = "Published times are of a GTX 1080 Ti with 5 000 keypoints per scan."


def timing_section(results: BenchmarkResults) -> Section:
    """Build the section of times."""
    ours = [method.name for method in results.methods if method.kind in ("model", "untrained")]
    descriptor, pair, *growth = timing_tables(results.records, results.options["keypoints"])
    tables = [
        _with_published(
            descriptor, f"{descriptor.title}; Table 3 of the paper", "preparation / inference",
            published.DESCRIPTOR_TIME, ours,
        ),
        _with_published(
            pair, f"{pair.title}; Table 4 of the paper", "NN query / RANSAC", published.PAIR_TIME, ours
        ),
        *growth,
    ]  # fmt: skip
    records = [record for group in results.records.values() for record in group]
    notes = [_NOTE, *results.notes]
    return Section(results.name, results.title, results.runs, results.samples, notes, tables, _plots(records))


def _with_published(
    table: Table, title: str, heading: str, rows: list[published.Row], ours: list[str]
) -> Table:
    """Append published times; rows of a method on several devices share one published row."""

    def cell(row: published.Row | None) -> str:
        return " / ".join(row[2:]) if row else NONE

    matching = [published_row(rows, row[0], row[0] in ours) for row in table.rows]
    lines = [[*row, cell(match)] for row, match in zip(table.rows, matching, strict=True)]
    used = {match[0] for match in matching if match}
    empty = [NONE] * (len(table.header) - 3)
    lines += [[paper_name(row), NONE, row[1], *empty, cell(row)] for row in rows if row[0] not in used]
    return Table(title, [*table.header, f"published: {heading}"], lines)


def _plots(records: list[Record]) -> list[Plot]:
    over_points: dict[str, Curve] = {}
    for name, device, group in timing_groups(records, "points"):
        for step in STEPS:
            label = f"{name}, {device}: {step}"
            over_points[label] = ([r["points"] for r in group], [r[step] for r in group])
    over_keypoints: dict[str, Curve] = {}
    for name, device, group in timing_groups(records, "keypoints"):
        times = [r["preparation"] + r["inference"] for r in group]
        over_keypoints[f"{name}, {device}"] = ([r["keypoints"] for r in group], times)
    plots = (
        ("points.png", over_points, "points in the cloud"),
        ("keypoints.png", over_keypoints, "keypoints"),
    )
    return [
        Plot(file, "cost", f"Time over {label}", curves, label, "time (ms)")
        for file, curves, label in plots
        if curves
    ]
