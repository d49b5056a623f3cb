"""Tables of the timing protocol."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wsdesc.evaluation.records import Record
from wsdesc.evaluation.tables import NONE, Table

STEPS = ("sorting", "frames", "inference")


def timing_tables(results: dict[str, list[Record]], keypoints: int) -> list[Table]:
    """Build the tables of descriptors, pairs, point counts and keypoint counts; empty ones are left out."""
    records = [record for group in results.values() for record in group]
    tables = [descriptor_table(records), pair_table(records, keypoints)]
    return [*tables, *(table for table in (_points_table(records), _keypoints_table(records)) if table.rows)]


def descriptor_table(records: Sequence[Record]) -> Table:
    """Build the table of times per descriptor."""
    rows = []
    for name, device, group in timing_groups(records, "scan"):
        preparation, inference = _mean(group, "preparation"), _mean(group, "inference")
        total = _mean(group, "total")
        if preparation is not None and inference is not None:
            total = preparation + inference
        rows.append([name, device, str(group[0]["dimension"]), _ms(preparation), _ms(inference), _ms(total)])
    header = ["method", "device", "Dim.", "preparation", "inference", "total"]
    return Table("Time per descriptor (ms)", header, rows)


def pair_table(records: Sequence[Record], keypoints: int) -> Table:
    """Build the table of times per pair, in steps and as a whole."""
    rows = []
    scans = {(name, device): group for name, device, group in timing_groups(records, "scan")}
    for name, device, group in timing_groups(records, "pair"):
        query, solving, whole = (_mean(group, step) for step in ("query", "ransac", "whole"))
        if query is not None and solving is not None:
            own = scans.get((name, device), [])
            steps = [_mean(own, step) or 0.0 for step in ("preparation", "inference", "total")]
            whole = 2 * keypoints * sum(steps) + query + solving
        dimension = str(group[0].get("dimension", NONE))
        rows.append([name, device, dimension, _ms(query), _ms(solving), _ms(whole)])
    header = ["method", "device", "Dim.", "NN query", "RANSAC", "whole pair"]
    return Table("Time per pair (ms)", header, rows)


def _points_table(records: Sequence[Record]) -> Table:
    rows = [
        [r["method"], r["device"], str(r["points"]), str(r["keypoints"]), *(_ms(r[step]) for step in STEPS)]
        for r in records
        if r["what"] == "points"
    ]
    return Table(
        "Time over the number of points, added far from all keypoints (ms)",
        ["method", "device", "points", "keypoints", *STEPS],
        rows,
    )


def _keypoints_table(records: Sequence[Record]) -> Table:
    rows = [
        [r["method"], r["device"], str(r["keypoints"]), _ms(r["preparation"]), _ms(r["inference"])]
        for r in records
        if r["what"] == "keypoints"
    ]
    header = ["method", "device", "keypoints", "preparation", "inference"]
    return Table("Time over the number of keypoints (ms)", header, rows)


def timing_groups(records: Sequence[Record], what: str) -> list[tuple[str, str, list[Record]]]:
    """Group records of one kind by method and device."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record["what"] == what:
            groups.setdefault((record["method"], record["device"]), []).append(record)
    return [(name, device, group) for (name, device), group in groups.items()]


def _mean(records: Sequence[Record], field: str) -> float | None:
    values = [record[field] for record in records if field in record]
    return float(np.mean(values)) if values else None


def _ms(value: float | None) -> str:
    return NONE if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"
