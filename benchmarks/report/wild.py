"""Section of single pairs from other projects, measured by `python -m benchmarks.wild_peers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.report.section import Section
from wsdesc.core.errors import FileFormatError
from wsdesc.evaluation.provenance import Run
from wsdesc.evaluation.tables import Table

WILD = "wild.json"
_NOTES = [
    "Descriptors with RANSAC, each scan in its own frame. The same pose: within 15° and 0.3 units of the "
    "reference.",
    "The reference is the known pose, or the pose of `wsdesc.register` where it calls it a success. Against "
    "the latter, the table shows agreement, not correctness.",
]


def wild_section(path: Path) -> Section:
    """Build the section of a file wild.json."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        rows = [_row(record) for record in values["records"]]
        run = Run(**values["run"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path}: not a file of benchmarks.wild_peers ({error})") from error
    header = [
        "pair",
        "reference",
        "method",
        "IR (%)",
        "rotation (°)",
        "translation (units)",
        "same pose",
        "s",
    ]
    samples = f"n = {len({row[0] for row in rows})} pairs"
    table = Table("Single pairs from other projects", header, rows)
    return Section("wild", "Single pairs from other projects", [run], samples, _NOTES, [table])


def _row(record: dict[str, Any]) -> list[str]:
    return [
        record["pair"],
        record["reference"],
        record["method"],
        f"{100 * record['inlier_ratio']:.1f}",
        f"{record['rotation_error']:.2f}",
        f"{record['translation_error']:.2f}",
        "yes" if record["r2"] else "no",
        f"{record['seconds']:.2f}",
    ]
