"""The report of the timing benchmark: the paper's two tables, and two plots of growth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wsdesc.evaluation import published
from wsdesc.evaluation.plots import Curve, Plot
from wsdesc.evaluation.provenance import Run
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.report import Report, Table, write_csv
from wsdesc.evaluation.tables import NONE, paper_name, published_row

_STEPS = ("sorting", "frames", "inference")


def write_timing_report(
    records: list[Record], pairs: int, fragments: int, keypoints: int, out: Path, run: Run
) -> Report:
    """Write report.json and .md, timing.csv and plots."""
    write_csv(out / "timing.csv", records)
    tables = [_descriptor_table(records), _pair_table(records, keypoints)]
    tables += [table for table in (_points_table(records), _keypoints_table(records)) if table.rows]
    report = Report(
        "timing",
        f"Timing, {' and '.join(dict.fromkeys(r['device'].upper() for r in records))}",
        [run],
        f"n = {fragments} fragments, {pairs} pairs, {keypoints} keypoints each",
        [
            "Published times are of a GTX 1080 Ti with 5 000 keypoints a fragment; times of different "
            "machines say little about the methods. Compare the rows of one run.",
            f"A pair in all: {keypoints} descriptors of each fragment, NN query, RANSAC; of methods that "
            "find poses by themselves, all they do, from the fragments as they are.",
            "Points were added far from every keypoint: only sorting them, once a cloud, should cost time.",
        ],
        tables,
        _plots(records),
    )
    report.save(out)
    return report


def _descriptor_table(records: list[Record]) -> Table:
    """Table 3."""
    rows = []
    for name, device, some in _groups(records, "fragment"):
        preparation, inference = _mean(some, "preparation"), _mean(some, "inference")
        total = _mean(some, "total")
        if preparation is not None and inference is not None:
            total = preparation + inference
        known = published_row(published.DESCRIPTOR_TIME, name, preparation is not None)
        cells = [_ms(preparation), _ms(inference), _ms(total)]
        rows.append([name, device, str(some[0]["dimension"]), *cells, _published(known)])
    rows += _paper_rows(published.DESCRIPTOR_TIME, 3, rows)
    header = ["method", "device", "Dim.", "preparation", "inference", "total"]
    header.append("published: preparation / inference")
    return Table("Time of a descriptor (ms); Table 3 of the paper", header, rows)


def _pair_table(records: list[Record], keypoints: int) -> Table:
    """Table 4, and what a pair costs in all: with its descriptors, or by a method that needs none."""
    rows = []
    describing = {(name, device): some for name, device, some in _groups(records, "fragment")}
    for name, device, some in _groups(records, "pair"):
        own = describing.get((name, device), [])
        known = published_row(published.PAIR_TIME, name, any("preparation" in r for r in own))
        query, solving, whole = (_mean(some, step) for step in ("query", "ransac", "whole"))
        if query is not None and solving is not None:
            steps = [_mean(own, step) or 0.0 for step in ("preparation", "inference", "total")]
            whole = 2 * keypoints * sum(steps) + query + solving
        dimension = str(some[0].get("dimension", NONE))
        rows.append([name, device, dimension, _ms(query), _ms(solving), _ms(whole), _published(known)])
    rows += _paper_rows(published.PAIR_TIME, 3, rows)
    header = ["method", "device", "Dim.", "NN query", "RANSAC", "pair in all", "published: NN query / RANSAC"]
    return Table("Time of a pair (ms); Table 4 of the paper", header, rows)


def _paper_rows(rows: list[published.Row], width: int, ours: list[list[str]]) -> list[list[str]]:
    """Methods that only the paper has; those whose figures stand beside ours already are left out."""
    shown = {row[-1] for row in ours}
    return [
        [paper_name(row), NONE, row[1], *[NONE] * width, _published(row)]
        for row in rows
        if _published(row) not in shown
    ]


def _points_table(records: list[Record]) -> Table:
    rows = [
        [r["method"], r["device"], str(r["points"]), str(r["keypoints"]), *(_ms(r[step]) for step in _STEPS)]
        for r in records
        if r["what"] == "points"
    ]
    header = ["method", "device", "points", "keypoints", "sorting", "frames", "inference"]
    return Table("Cost over the number of points, all added ones far away (ms)", header, rows)


def _keypoints_table(records: list[Record]) -> Table:
    rows = [
        [r["method"], r["device"], str(r["keypoints"]), _ms(r["preparation"]), _ms(r["inference"])]
        for r in records
        if r["what"] == "keypoints"
    ]
    header = ["method", "device", "keypoints", "preparation", "inference"]
    return Table("Cost over the number of keypoints (ms)", header, rows)


def _plots(records: list[Record]) -> list[Plot]:
    over_points: dict[str, Curve] = {}
    for name, device, some in _groups(records, "points"):
        for step in _STEPS:
            over_points[f"{name}, {device}: {step}"] = (
                [r["points"] for r in some],
                [r[step] for r in some],
            )
    over_keys: dict[str, Curve] = {}
    for name, device, some in _groups(records, "keypoints"):
        times = [r["preparation"] + r["inference"] for r in some]
        over_keys[f"{name}, {device}"] = ([r["keypoints"] for r in some], times)
    drawn = (("points.png", over_points, "points in the cloud"), ("keypoints.png", over_keys, "keypoints"))
    return [
        Plot(file, "cost", f"Cost over {label}", curves, label, "time (ms)")
        for file, curves, label in drawn
        if curves
    ]


def _groups(records: list[Record], what: str) -> list[tuple[str, str, list[Record]]]:
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record["what"] == what:
            groups.setdefault((record["method"], record["device"]), []).append(record)
    return [(name, device, some) for (name, device), some in groups.items()]


def _mean(records: Sequence[Record], field: str) -> float | None:
    values = [record[field] for record in records if field in record]
    return float(np.mean(values)) if values else None


def _ms(value: float | None) -> str:
    return NONE if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _published(row: published.Row | None) -> str:
    return " / ".join(row[2:]) if row else NONE
