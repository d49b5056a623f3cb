"""What a benchmark leaves behind for people: tables as Markdown and CSV, plots, and what they are of."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError
from wsdesc.evaluation.plots import Plot, can_draw
from wsdesc.evaluation.provenance import Run
from wsdesc.evaluation.records import Record

REPORT = "report.json"


@dataclass(frozen=True)
class Table:
    """A table and what stands above it; cells are text."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def without_paper(self) -> Table:
        """The rows that were measured here."""
        return replace(self, rows=[row for row in self.rows if ", paper" not in row[0]])

    def markdown(self) -> str:
        """With columns that line up, for those who read the file itself."""
        lines = [self.header, *self.rows]
        widths = [max(len(row[k]) for row in lines) for k in range(len(self.header))]
        texts = [
            "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
            for row in lines
        ]
        rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
        return "\n".join([f"**{self.title}**", "", texts[0], rule, *texts[1:], ""])


@dataclass(frozen=True)
class Report:
    """One benchmark: its tables and plots, and what they are of."""

    name: str
    title: str
    runs: list[Run]  # that the results are from
    samples: str  # what was judged, and how many of it
    remarks: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)

    def markdown(self, images: str = "") -> str:
        """A section of a page; `images` is where the plots are, as seen from it."""
        parts = [
            f"## {self.title}\n",
            *(run.markdown() for run in self.runs),
            f"Judged: {self.samples}.\n",
        ]
        parts += ["\n".join(f"- {remark}" for remark in self.remarks) + "\n"] if self.remarks else []
        parts += [table.markdown() for table in self.tables]
        parts += [f"![{plot.title}]({images}{plot.file})\n" for plot in self.plots]
        return "\n".join(parts)

    def save(self, folder: Path) -> None:
        """Write report.json, report.md for people, and the plots if they can be drawn here."""
        shown = self if can_draw() else replace(self, plots=[])
        write_text(folder / REPORT, json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")
        write_text(folder / "report.md", shown.markdown())
        shown.draw(folder)

    def draw(self, folder: Path, prefix: str = "") -> None:
        """The plots as PNG; this needs matplotlib."""
        folder.mkdir(parents=True, exist_ok=True)
        for plot in self.plots:
            plot.draw(folder / f"{prefix}{plot.file}")

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read a report.json."""
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            runs = [Run(**run) for run in values.pop("runs")]
            tables = [Table(**table) for table in values.pop("tables")]
            plots = [Plot.of(plot) for plot in values.pop("plots")]
            return cls(**values, runs=runs, tables=tables, plots=plots)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise FileFormatError(f"{path}: not the report of a benchmark ({error})") from error


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(path: Path, rows: Sequence[Record]) -> None:
    """Records of the same fields as CSV; lists become JSON, nothing becomes an empty cell."""
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for row in rows:
            writer.writerow({n: json.dumps(v) if isinstance(v, list) else v for n, v in row.items()})
