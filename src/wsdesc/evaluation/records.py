"""Results of single pairs on disk, one line of JSON each, so that a run that was killed goes on.

The first line says what the results are of: another line of settings means other results, and those are
never mixed. A line that was being written when the machine stopped is thrown away on opening.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError

Record = dict[str, Any]


class Store:
    """A growing file of records; `key` are the fields that tell them apart."""

    def __init__(self, path: Path, key: tuple[str, ...], records: list[Record]) -> None:
        self.path, self.key = path, key
        self._records = {self._key_of(record): record for record in records}

    @classmethod
    def open(
        cls, path: str | Path, settings: Mapping[str, Any], key: tuple[str, ...], fresh: bool = False
    ) -> Self:
        """Go on with the results at `path`, or begin them. `fresh` throws away what is there.

        Raises InputError where they belong to other settings, FileFormatError where they are damaged by
        more than an unfinished last line.
        """
        path = Path(path)
        first = json.loads(json.dumps(dict(settings)))  # as it will read back: tuples are lists
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileFormatError(f"{path.parent}: cannot be made: {error.strerror or error}") from error
        if fresh or not path.is_file():
            with atomic_write(path) as temporary:
                temporary.write_text(_line(first), encoding="utf-8")
            return cls(path, key, [])
        whole = _whole_lines(path)
        if not whole or whole[0] != first:
            _refuse(path, whole[0] if whole else {}, first)
        return cls(path, key, whole[1:])

    def __contains__(self, record: Record) -> bool:
        return self._key_of(record) in self._records

    def __getitem__(self, record: Record) -> Record:
        return self._records[self._key_of(record)]

    def append(self, record: Record) -> Record:
        """Keep a record: once this returns it is on the disk. Returns it as it would be read back."""
        line = _line(record)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FileFormatError(f"{self.path}: cannot be written: {error.strerror or error}") from error
        kept: Record = json.loads(line)
        self._records[self._key_of(kept)] = kept
        return kept

    def _key_of(self, record: Record) -> tuple[Any, ...]:
        try:
            return tuple(record[name] for name in self.key)
        except KeyError as error:
            raise FileFormatError(f"{self.path}: a record has no {error.args[0]!r}") from error


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def _whole_lines(path: Path) -> list[Record]:
    """The records of a file; an unfinished last line is cut off, so that appending goes on behind it."""
    try:
        data = path.read_bytes()
        end = data.rfind(b"\n") + 1
        if end < len(data):
            with path.open("r+b") as file:
                file.truncate(end)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read or written: {error.strerror or error}") from error
    records = []
    for number, line in enumerate(data[:end].splitlines(), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"{path}, line {number}: not a record; --fresh begins anew") from error
        if not isinstance(record, dict):
            raise FileFormatError(f"{path}, line {number}: not a record; --fresh begins anew")
        records.append(record)
    return records


def _refuse(path: Path, there: Record, asked: Record) -> None:
    for name in dict.fromkeys([*asked, *there]):
        if there.get(name) != asked.get(name):
            raise InputError(
                f"{path}: has results of {name} {there.get(name)!r}, now asked for is {asked.get(name)!r}: "
                "name another --out, or begin anew with --fresh"
            )
