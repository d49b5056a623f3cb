"""The report of the experiments on ModelNet40."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wsdesc.evaluation import published
from wsdesc.evaluation.euler import euler_errors
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.pair_report import model_names
from wsdesc.evaluation.plots import Plot
from wsdesc.evaluation.provenance import Run
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.report import Report, Table, write_csv
from wsdesc.evaluation.summary import error_distribution
from wsdesc.evaluation.tables import NONE, percent, with_published

UNSEEN_FROM = 20  # labels from here on are categories that the protocol of PRNet does not train on
Results = dict[str, list[Record]]
TITLES = {
    "prnet-clean": "PRNet protocol, clean",
    "prnet-noisy": "PRNet protocol, noisy",
    "rpm-45": "RPM-Net protocol, up to 45° an axis",
    "rpm-180": "RPM-Net protocol, up to 180° an axis",
}
_TABLES = {"prnet-clean": 6, "prnet-noisy": 7}
_PUBLISHED = {"prnet-clean": published.SHAPES, "prnet-noisy": published.NOISY_SHAPES}
_REMARKS = [
    "Published figures are of 2 468 test shapes of the official sampling; shapes that were sampled again "
    "from the meshes are not exactly those.",
    "PRNet's two views hold the same samples: exact matches exist, an untrained network does well, too. "
    "RPM-Net's views are sampled independently.",
    "By R2: within 15° and 0.3 of the shapes' radius. A mean that is far above its median comes from few "
    "poses that are entirely wrong.",
    f"Unseen: categories with labels {UNSEEN_FROM} … 39. A model that learned from shapes of all 40 "
    "categories has seen them.",
]


def write_shape_report(
    results: Results, methods: Sequence[Method], samples: str, out: Path, runs: Sequence[Run]
) -> Report:
    """Write report.json and .md, pairs.csv and plots beside the records; `samples` says what they are of."""
    tables, plots = [], []
    for protocol in dict.fromkeys(record["protocol"] for records in results.values() for record in records):
        some = {name: [r for r in rs if r["protocol"] == protocol] for name, rs in results.items()}
        tables += _tables(protocol, some, model_names(methods))
        for field, label in (("rotation_error", "rotation error (°)"), ("translation_error", "t error")):
            file = f"{protocol}_{field}.png"
            steps = {
                name: error_distribution([r[field] if r["found"] else None for r in records])
                for name, records in some.items()
            }
            plots.append(Plot(file, "errors", f"ModelNet40, {TITLES[protocol]}", steps, label))
    write_csv(out / "pairs.csv", [{"method": m} | record for m, rs in results.items() for record in rs])
    remarks = [*_REMARKS, *_failures(results)]
    report = Report("modelnet40", "ModelNet40", list(runs), samples, remarks, tables, plots)
    report.save(out)
    return report


def _tables(protocol: str, results: Results, models: Sequence[str]) -> list[Table]:
    tables = []
    for title, keep in (("all categories", _all), ("unseen categories", _unseen)):
        chosen = {name: [r for r in records if keep(r)] for name, records in results.items()}
        count = max(map(len, chosen.values()), default=0)
        if count:
            heading = f"ModelNet40, {TITLES[protocol]}, {title} (n = {count})"
            if keep is _all and protocol in _TABLES:
                heading += f"; Table {_TABLES[protocol]} of the paper"
            # The published figures are of all categories.
            rows = _PUBLISHED.get(protocol, []) if keep is _all else []
            tables.append(_table(protocol, heading, chosen, models, rows))
    return tables


def _table(
    protocol: str, heading: str, results: Results, models: Sequence[str], rows: Sequence[published.Row]
) -> Table:
    if protocol not in _PUBLISHED:
        cells = [[name, *_isotropic(records)] for name, records in results.items()]
        header = [
            "method",
            "RRE mean (°)",
            "RRE median (°)",
            "RTE mean",
            "RTE median",
            "RR by R2 (%)",
            "found",
        ]
        return Table(heading, header, cells)
    header = ["method", "RMSE(R) (°)", "MAE(R) (°)", "R²(R)", "RMSE(t)", "MAE(t)", "R²(t)", "found"]
    header.append("published: RMSE(R) / R²(R) / RMSE(t) / R²(t)")
    ours = {name: _euler(records) for name, records in results.items()}
    return with_published(heading, header, ours, rows, (2, 3, 4, 5), models)


def _euler(records: list[Record]) -> list[str]:
    errors = euler_errors(
        np.array([record["T_target_source"] for record in records]),
        np.array([record["T_true"] for record in records]),
    )
    return [NONE if math.isnan(value) else f"{value:.3f}" for value in errors] + [_found(records)]


def _isotropic(records: list[Record]) -> list[str]:
    rotation = [record["rotation_error"] for record in records]
    translation = [record["translation_error"] for record in records]
    cells = [f"{x:.3f}" for x in (np.mean(rotation), np.median(rotation))]
    cells += [f"{x:.4f}" for x in (np.mean(translation), np.median(translation))]
    right = np.mean([turn < 15 and shift < 0.3 for turn, shift in zip(rotation, translation, strict=True)])
    return [*cells, percent(float(right)), _found(records)]


def _found(records: list[Record]) -> str:
    return f"{sum(record['found'] for record in records)} of {len(records)}"


def _all(record: Record) -> bool:
    return True


def _unseen(record: Record) -> bool:
    return record["label"] is not None and record["label"] >= UNSEEN_FROM


def _failures(results: Results) -> list[str]:
    failed = {name: [r["failure"] for r in rs if r["failure"]] for name, rs in results.items()}
    return [
        f"{name}: {len(some)} results count as failed; the first: {some[0]}"
        for name, some in failed.items()
        if some
    ]
