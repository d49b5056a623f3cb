"""Tables of the experiments on ModelNet40, for all categories and for subsets of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wsdesc.evaluation.euler import euler_errors
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.tables import NONE, Table, percent

UNSEEN_FROM = 20  # first label of the categories that PRNet's protocol does not train on
# Labels of bottle, bowl, cone, cup, flower pot, lamp, tent and vase: a rotation about the axis of such a
# shape cannot be seen. OMNet and GeoTransformer leave these categories out of their published figures.
AXIAL = frozenset({5, 6, 9, 10, 15, 19, 34, 37})
NOT_AXIAL = "without axial categories"
SAME_SURFACE = 0.03  # radii: two poses of a shape look the same up to this RMS distance of its points
TITLES = {
    "prnet-clean": "PRNet protocol, clean",
    "prnet-noisy": "PRNet protocol, noisy",
    "rpm-45": "RPM-Net protocol, up to 45° per axis",
    "rpm-180": "RPM-Net protocol, up to 180° per axis",
}
NOTES = [
    "PRNet's two views hold the same samples: exact matches exist, and an untrained network does well, too. "
    "RPM-Net's views are sampled independently.",
    "By R2: within 15° and 0.3 of the shapes' radius. A mean far above its median comes from a few poses "
    "that are completely wrong.",
    "Same surface: the shape, moved by the error of the pose, is at most "
    f"{SAME_SURFACE:g} radii (RMS) from itself, as after a rotation of a symmetric shape.",
    f"Unseen: categories with labels {UNSEEN_FROM} … 39. A model trained on shapes of all 40 categories has "
    "seen them.",
    "Without axial categories: without bottle, bowl, cone, cup, flower pot, lamp, tent and vase, whose "
    "rotation about their axis cannot be seen. GeoTransformer's published figures are without them.",
]

_SUBSETS: dict[str, Callable[[Record], bool]] = {  # title: whether a record belongs to it
    "all categories": lambda record: True,
    NOT_AXIAL: lambda record: record["label"] is not None and record["label"] not in AXIAL,
    "unseen categories": lambda record: record["label"] is not None and record["label"] >= UNSEEN_FROM,
}


def shape_tables(results: dict[str, list[Record]]) -> list[Table]:
    """Build the tables of each protocol: all categories, those that are not axial (RPM-Net), unseen ones."""
    tables = []
    for protocol in dict.fromkeys(record["protocol"] for records in results.values() for record in records):
        for subset, belongs in _SUBSETS.items():
            if subset == NOT_AXIAL and protocol.startswith("prnet"):
                continue  # PRNet's figures are of all categories
            chosen = {
                name: [r for r in records if r["protocol"] == protocol and belongs(r)]
                for name, records in results.items()
            }
            chosen = {name: records for name, records in chosen.items() if records}  # not run: no row
            count = max(map(len, chosen.values()), default=0)
            if count:
                title = f"ModelNet40, {TITLES[protocol]}, {subset} (n = {count})"
                tables.append(_shape_table(title, protocol, chosen))
    return tables


def _shape_table(title: str, protocol: str, results: dict[str, list[Record]]) -> Table:
    if protocol.startswith("prnet"):
        header = ["RMSE(R) (°)", "MAE(R) (°)", "R²(R)", "RMSE(t)", "MAE(t)", "R²(t)", "found"]
        rows = [[name, *_euler_cells(records)] for name, records in results.items()]
    else:
        header = ["RRE mean (°)", "RRE median (°)", "RTE mean", "RTE median", "RR by R2 (%)"]
        header += ["R2 or same surface (%)", "found"]
        rows = [[name, *_isotropic_cells(records)] for name, records in results.items()]
    return Table(title, ["method", *header], rows)


def _euler_cells(records: list[Record]) -> list[str]:
    errors = euler_errors(
        np.array([record["T_target_source"] for record in records]),
        np.array([record["T_true"] for record in records]),
    )
    return [NONE if math.isnan(value) else f"{value:.3f}" for value in errors] + [_found_cell(records)]


def _isotropic_cells(records: list[Record]) -> list[str]:
    rotation = [record["rotation_error"] for record in records]
    translation = [record["translation_error"] for record in records]
    cells = [f"{x:.3f}" for x in (np.mean(rotation), np.median(rotation))]
    cells += [f"{x:.4f}" for x in (np.mean(translation), np.median(translation))]
    right = [r < 15 and t < 0.3 for r, t in zip(rotation, translation, strict=True)]
    surface = [record.get("surface_error") for record in records]  # None in records of older versions
    same = [a or b < SAME_SURFACE for a, b in zip(right, surface, strict=True) if b is not None]
    looks_right = percent(float(np.mean(same))) if len(same) == len(right) else NONE
    return [*cells, percent(float(np.mean(right))), looks_right, _found_cell(records)]


def _found_cell(records: list[Record]) -> str:
    return f"{sum(record['found'] for record in records)} of {len(records)}"
