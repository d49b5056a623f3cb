"""Records on disk are appended, continued and never mixed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.evaluation.records import RecordStore

KEY = ("scene", "i")


def test_reopened_store_has_its_records(tmp_path: Path) -> None:
    path = tmp_path / "below" / "a.jsonl"
    store = RecordStore.open(path, {"seed": 0, "sizes": (1, 2)}, KEY)
    record = {"scene": "a", "i": 0, "ratio": 0.1 + 0.2, "T": [[1.0, None]]}
    assert store.append(record) == record
    again = RecordStore.open(path, {"seed": 0, "sizes": (1, 2)}, KEY)
    assert {"scene": "a", "i": 0} in again
    assert {"scene": "a", "i": 1} not in again
    assert again[{"scene": "a", "i": 0}] == record


def test_unfinished_line_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    store = RecordStore.open(path, {}, KEY)
    store.append({"scene": "a", "i": 0})
    whole = path.read_bytes()
    for unfinished in (b'{"scene": "a", "i', b'{"scene": "a", "i": 1}'):  # the second lacks only its line end
        path.write_bytes(whole + unfinished)
        again = RecordStore.open(path, {}, KEY)
        assert {"scene": "a", "i": 1} not in again
        assert path.read_bytes() == whole
        again.append({"scene": "a", "i": 1})
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line.get("i") for line in lines] == [None, 0, 1]


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    RecordStore.open(path, {"seed": 0, "rotated": False}, KEY).append({"scene": "a", "i": 0})
    with pytest.raises(InputError, match=r"rotated False, this run has True.*--fresh"):
        RecordStore.open(path, {"seed": 0, "rotated": True}, KEY)
    fresh = RecordStore.open(path, {"seed": 0, "rotated": True}, KEY, fresh=True)
    assert {"scene": "a", "i": 0} not in fresh


def test_damaged_file_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    RecordStore.open(path, {}, KEY)
    for damage in ("nonsense\n", "[1]\n"):
        path.write_text("{}\n" + damage)
        with pytest.raises(FileFormatError, match="line 2"):
            RecordStore.open(path, {}, KEY)
    path.write_text('{}\n{"scene": "a"}\n')
    with pytest.raises(FileFormatError, match="no 'i'"):
        RecordStore.open(path, {}, KEY)


def test_nan_is_refused(tmp_path: Path) -> None:
    store = RecordStore.open(tmp_path / "a.jsonl", {}, KEY)
    with pytest.raises(ValueError, match="JSON"):
        store.append({"scene": "a", "i": 0, "ratio": float("nan")})
    assert {"scene": "a", "i": 0} not in RecordStore.open(tmp_path / "a.jsonl", {}, KEY)


def test_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(FileFormatError, match="taken"):
        RecordStore.open(tmp_path / "taken" / "a.jsonl", {}, KEY)
