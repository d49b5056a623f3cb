"""What each measured row is: whose weights, trained on what, how many pairs, how much time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.report.plots import Curve, Plot
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.results import BenchmarkResults, EvaluatedMethod
from wsdesc.evaluation.tables import NONE, Table

_UNLABELLED = "here, without labels, for minutes on an H200: {scans}"
_TRAINED = {  # on what, where the line about the weights does not say it
    "indoor": "here, without labels: indoor scans, synthetic rooms",
    "indoor-fast": "here, without labels: indoor scans, synthetic rooms",
    "objects": "here, without labels: ModelNet40, training split",
    "spinnet": "by its authors, with poses: 3DMatch",
    "spinnet-eth": "by its authors, with poses: 3DMatch",
    "spinnet-kitti": "by its authors, with poses: KITTI",
    "lmvd": "by its authors, with poses: 3DMatch",
    "lmvd-eth": "by its authors, with poses: 3DMatch",
    "ppf-foldnet": _UNLABELLED,
    "capsulenet": _UNLABELLED,
    "s2cnn-512": _UNLABELLED,
    "s2cnn-32": _UNLABELLED,
    "3dmatch": "here, with poses (oracle), for minutes on an H200: {scans}",
    "pointnetlk": "by others, with poses: ModelNet40, all 40 categories",
}


def rows_table(results: BenchmarkResults) -> Table:
    """List the measured methods with origin, number of pairs, machine and median time of a pair."""
    rows = []
    for method in results.methods:
        records = results.records[method.name]
        seconds = median_seconds(records)
        keypoints = max((r["keypoints"] for r in records if r.get("dimension")), default=None)
        rows.append(
            [
                method.name,
                origin(method, results.benchmark),
                str(keypoints or NONE),
                str(len({(r.get("scene"), r.get("i"), r.get("j"), r.get("item")) for r in records})),
                method.device or NONE,
                NONE if seconds is None else f"{seconds:.3g}",
            ]
        )
    return Table("Measured rows", ["method", "trained", "keypoints", "n", "on", "s per pair"], rows)


def origin(method: EvaluatedMethod, benchmark: str = "") -> str:
    """Say who trained a method, on what, and where the weights come from."""
    name = method.name.removeprefix("register (").removesuffix(")")
    scans = "training shapes of ModelNet40" if benchmark == "modelnet40" else "our indoor training scans"
    trained = _TRAINED.get(name, "").format(scans=scans)
    _, _, source = method.weights.partition(" (")
    parts = [part for part in (trained, source.removesuffix(")")) if part]
    return "; ".join(parts) or "not trained"


def median_seconds(records: Sequence[Record]) -> float | None:
    """Return the median time of the pairs with the most keypoints; None where no time was recorded."""
    largest = max((record.get("keypoints", 0) for record in records), default=0)
    times = [r["seconds"] for r in records if r.get("seconds") and r.get("keypoints", 0) == largest]
    return float(np.median(times)) if times else None


def ahead_note(table: Table, columns: Mapping[str, int], results: BenchmarkResults) -> str | None:
    """State which peers are better than the best of our models, by columns of a table.

    Args:
        table: measured rows; the first cell is the method's name.
        columns: names of the columns to compare; 1 if larger is better, −1 if smaller is.
        results: results with the kinds of the methods.

    Returns:
        One line, or None without own rows or without peers. Our full pipeline is compared where there is no
        model; otherwise its figure is added.
    """
    names = {
        kind: {m.name for m in results.methods if m.kind == kind} for kind in ("model", "pipeline", "peer")
    }
    own = names["model"] or names["pipeline"]
    if not own or not names["peer"]:
        return None
    lines = []
    for name, sign in columns.items():
        k = table.header.index(name)
        values = {row[0]: value for row in table.rows if (value := _number(row[k])) is not None}
        ours = [sign * value for method, value in values.items() if method in own]
        full = [f", full pipeline {v:g}" for m, v in values.items() if m in names["pipeline"] - own]
        lines += [
            f"{method} in {name} ({value:g} against {sign * max(ours):g}{''.join(full)})"
            for method, value in values.items()
            if ours and method in names["peer"] and sign * value > max(ours)
        ]
    if not lines:
        return f"No peer beats the best of our rows in {', '.join(columns)}."
    return f"Peers that beat the best of our models: {', '.join(lines)}."


def success_over_time(title: str, results: BenchmarkResults) -> list[Plot]:
    """Plot the share of registered pairs, by R1 where it counts pairs, over the median time of a pair."""
    points: dict[str, Curve] = {}
    for method in results.methods:
        records = results.records[method.name]
        seconds = median_seconds(records)
        largest = max((record["keypoints"] for record in records), default=0)
        chosen = [record for record in records if record["keypoints"] == largest]
        r1 = [record["r1"] for record in chosen if record["r1"] is not None]
        success = r1 or [record["r2"] for record in chosen]
        if seconds is not None and success:
            machine = f", {method.device}" if method.device else ""
            points[f"{method.name}{machine}"] = ([seconds], [float(np.mean(success))])
    plot = Plot("success_over_time.png", "tradeoff", f"{title}: success over time", points, "s per pair")
    return [plot] if len(points) > 1 else []


def _number(cell: str) -> float | None:
    try:
        return float(cell.split(" ")[0])
    except ValueError:
        return None
