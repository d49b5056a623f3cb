"""Results of one benchmark: tables of measured figures, saved as JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError
from wsdesc.core.folders import make_folder
from wsdesc.evaluation.methods import PEER_PREFIX, Kind, Method
from wsdesc.evaluation.provenance import Run
from wsdesc.evaluation.records import Record, read_records
from wsdesc.evaluation.tables import Table

RESULTS = "results.json"


@dataclass(frozen=True)
class EvaluatedMethod:
    """A method whose records are in the folder of the results."""

    name: str
    kind: Kind
    file: str  # name of the file of records
    weights: str = ""  # file names, content hashes and origin of the weights of a learned peer
    device: str = ""  # cpu or cuda; empty in results of older versions

    @classmethod
    def of(cls, method: Method) -> Self:
        """Describe a method."""
        weights = ""
        if method.source:
            weights = f"{method.fingerprint.removeprefix(PEER_PREFIX)} ({method.source})"
        return cls(method.name, method.kind, f"{method.file_stem}.jsonl", weights, method.device)


@dataclass(frozen=True)
class BenchmarkResults:
    """Measured results of one benchmark."""

    benchmark: str  # protocol: 3dmatch, eth, pairs, modelnet40 or timing
    name: str  # name of the folder, for example 3dmatch-rotated
    title: str
    samples: str  # numbers of scenes, pairs and keypoints
    notes: list[str]
    options: dict[str, Any]
    methods: list[EvaluatedMethod]
    runs: list[Run]
    tables: list[Table]
    selection: dict[str, list[Any]]  # values of record fields that belong to these results
    records: dict[str, list[Record]]  # by method name

    def markdown(self) -> str:
        """Format title, samples, notes and tables as Markdown."""
        parts = [f"{self.title}: {self.samples}\n"]
        parts += ["\n".join(f"- {note}" for note in self.notes) + "\n"] if self.notes else []
        return "\n".join([*parts, *(table.markdown() for table in self.tables)])

    def save(self, folder: Path, csv_files: Mapping[str, Sequence[Record]]) -> None:
        """Write results.json, results.md and CSV files; the records are in the folder already."""
        make_folder(folder)
        values = asdict(self)
        del values["records"]
        write_text(folder / RESULTS, json.dumps(values, indent=1, ensure_ascii=False) + "\n")
        write_text(folder / "results.md", self.markdown())
        for name, rows in csv_files.items():
            write_csv(folder / name, rows)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read results.json and the records beside it."""
        path = folder / RESULTS
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if Path(values["name"]).name != values["name"]:  # becomes part of file names
                raise ValueError(f"{values['name']!r} is not the name of a folder")
            methods = [EvaluatedMethod(**method) for method in values.pop("methods")]
            runs = [Run(**run) for run in values.pop("runs")]
            tables = [Table(**table) for table in values.pop("tables")]
            selection = values["selection"]
            files = {method.name: folder / Path(method.file).name for method in methods}
            records = {
                name: [r for r in read_records(file)[1] if all(r[k] in selection[k] for k in selection)]
                for name, file in files.items()
            }
            return cls(**values, methods=methods, runs=runs, tables=tables, records=records)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise FileFormatError(f"{path}: not the results of a benchmark ({error})") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(path: Path, rows: Sequence[Record]) -> None:
    """Write records as CSV; lists become JSON, None becomes an empty cell."""
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for row in rows:
            writer.writerow({n: json.dumps(v) if isinstance(v, list) else v for n, v in row.items()})
