"""Section of the experiments on ModelNet40."""

from __future__ import annotations

from benchmarks.report import published
from benchmarks.report.beside_published import with_published
from benchmarks.report.curves import error_distribution
from benchmarks.report.plots import Plot
from benchmarks.report.rows import ahead_note, rows_table
from benchmarks.report.section import Section
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.evaluation.shape_tables import NOT_AXIAL, TITLES, shape_tables
from wsdesc.evaluation.tables import Table

_PUBLISHED = {"prnet-clean": (6, published.SHAPES), "prnet-noisy": (7, published.NOISY_SHAPES)}
_RPM = {"rpm-45": published.RPM_45, "rpm-180": published.RPM_180}
_NOTE = (
    "Published figures are of 2 468 test shapes of the official sampling; shapes that were sampled again "
    "from the meshes are not exactly those."
)
_ERRORS = {"rotation_error": "rotation error (°)", "translation_error": "translation error"}


def shape_section(results: BenchmarkResults) -> Section:
    """Build the section of ModelNet40."""
    models = [method.name for method in results.methods if method.kind == "model"]
    tables: list[Table] = []
    plots, ahead = [], []
    for protocol in results.selection["protocol"]:
        records = {
            name: chosen
            for name, group in results.records.items()
            if (chosen := [record for record in group if record["protocol"] == protocol])
        }
        for number, table in enumerate(shape_tables(records)):
            if number == 0:
                column = "RMSE(R) (°)" if protocol.startswith("prnet") else "RRE mean (°)"
                note = ahead_note(table, {column: -1}, results)
                ahead += [f"{TITLES[protocol]}: {note}"] if note else []
            if number == 0 and protocol in _PUBLISHED:  # published figures cover all categories
                paper_table, rows = _PUBLISHED[protocol]
                title = f"{table.title}; Table {paper_table} of the paper"
                heading = "RMSE(R) / R²(R) / RMSE(t) / R²(t)"
                table = with_published(table, title, heading, rows, (2, 3, 4, 5), models)
            if NOT_AXIAL in table.title:  # the categories of the published figures
                table = with_published(table, table.title, "RRE mean (°)", _RPM[protocol], (2,), models)
            tables.append(table)
        for field, label in _ERRORS.items():
            steps = {
                name: error_distribution([r[field] if r["found"] else None for r in group])
                for name, group in records.items()
            }
            title = f"ModelNet40, {TITLES[protocol]}"
            plots.append(Plot(f"{protocol}_{field}.png", "errors", title, steps, label))
    notes = [_NOTE, *results.notes, *ahead]
    tables.append(rows_table(results))
    return Section(results.name, results.title, results.runs, results.samples, notes, tables, plots)
