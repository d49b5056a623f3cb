"""Keep the results of single pairs on disk, one JSON line each, so that an interrupted run can continue.

The first line holds the settings. Results of different settings are never mixed. An unfinished last line,
left by a crash, is removed when the file is opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, Self

from wsdesc.core.atomic import append_line, atomic_write
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.folders import make_folder

Record = dict[str, Any]


class RecordStore:
    """A growing file of records, which are identified by the fields in `key`."""

    def __init__(self, path: Path, key: tuple[str, ...], records: Iterable[Record]) -> None:
        self.path, self.key = path, key
        self._records = {self._key_of(record): record for record in records}

    @classmethod
    def open(
        cls, path: str | Path, settings: Mapping[str, Any], key: tuple[str, ...], fresh: bool = False
    ) -> Self:
        """Open the records at `path` to continue them, or create the file.

        Args:
            path: The file, JSON lines.
            settings: Settings that the results depend on.
            key: Names of the fields that identify a record.
            fresh: Discard existing records.

        Raises:
            InputError: Existing records have other settings.
            FileFormatError: The file is damaged by more than an unfinished last line.
        """
        path = Path(path)
        expected = json.loads(json.dumps(dict(settings)))  # as JSON reads it back: tuples become lists
        make_folder(path.parent)
        if fresh or not path.is_file():
            write_records(path, expected, [])
            return cls(path, key, [])
        _remove_unfinished_line(path)
        existing, records = read_records(path)
        if existing != expected:
            _refuse(path, existing, expected)
        return cls(path, key, records)

    def __contains__(self, record: Record) -> bool:
        return self._key_of(record) in self._records

    def __getitem__(self, record: Record) -> Record:
        return self._records[self._key_of(record)]

    def append(self, record: Record) -> Record:
        """Write a record to disk and return it as it will be read back."""
        line = _line(record)
        append_line(self.path, line)
        written: Record = json.loads(line)
        self._records[self._key_of(written)] = written
        return written

    def _key_of(self, record: Record) -> tuple[Any, ...]:
        try:
            return tuple(record[name] for name in self.key)
        except KeyError as error:
            raise FileFormatError(f"{self.path}: a record has no {error.args[0]!r}") from error


def write_records(path: Path, settings: Mapping[str, Any], records: Iterable[Record]) -> None:
    """Write settings and records, replacing the file."""
    with atomic_write(path) as temporary:
        temporary.write_text("".join(f"{_line(record)}\n" for record in [settings, *records]), "utf-8")


def read_records(path: Path) -> tuple[Record, list[Record]]:
    """Read the settings and the records of a file; an unfinished last line is ignored.

    Raises:
        FileFormatError: A line is no JSON object; the message names it.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    lines = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise FileFormatError(f"{path}, line {number}: not a record; start again with --fresh")
        lines.append(record)
    return (lines[0], lines[1:]) if lines else ({}, [])


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


def _remove_unfinished_line(path: Path) -> None:
    try:
        data = path.read_bytes()
        end = data.rfind(b"\n") + 1
        if end < len(data):
            with path.open("r+b") as file:
                file.truncate(end)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read or written: {error.strerror or error}") from error


def _refuse(path: Path, existing: Record, expected: Record) -> NoReturn:
    names = dict.fromkeys([*expected, *existing])
    name = next((name for name in names if existing.get(name) != expected.get(name)), "settings")
    raise InputError(
        f"{path}: existing results have {name} {existing.get(name)!r}, this run has {expected.get(name)!r}; "
        "choose another --out, or discard them with --fresh"
    )
