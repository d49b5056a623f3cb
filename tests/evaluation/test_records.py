"""Records on disk: appended, continued, never mixed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.evaluation.records import Store

KEY = ("scene", "i")


def test_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "below" / "a.jsonl"
    store = Store.open(path, {"seed": 0, "sizes": (1, 2)}, KEY)
    record = {"scene": "a", "i": 0, "ratio": 0.1 + 0.2, "T": [[1.0, None]]}
    assert store.append(record) == record
    again = Store.open(path, {"seed": 0, "sizes": (1, 2)}, KEY)
    assert {"scene": "a", "i": 0} in again
    assert {"scene": "a", "i": 1} not in again
    assert again[{"scene": "a", "i": 0}] == record


def test_an_unfinished_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    store = Store.open(path, {}, KEY)
    store.append({"scene": "a", "i": 0})
    whole = path.read_bytes()
    for torn in (b'{"scene": "a", "i', b'{"scene": "a", "i": 1}'):  # the second lacks its end of line alone
        path.write_bytes(whole + torn)
        again = Store.open(path, {}, KEY)
        assert {"scene": "a", "i": 1} not in again
        assert path.read_bytes() == whole
        again.append({"scene": "a", "i": 1})
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line.get("i") for line in lines] == [None, 0, 1]


def test_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Store.open(path, {"seed": 0, "rotated": False}, KEY).append({"scene": "a", "i": 0})
    with pytest.raises(InputError, match=r"rotated False, now asked for is True.*--fresh"):
        Store.open(path, {"seed": 0, "rotated": True}, KEY)
    fresh = Store.open(path, {"seed": 0, "rotated": True}, KEY, fresh=True)
    assert {"scene": "a", "i": 0} not in fresh


def test_damage_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Store.open(path, {}, KEY)
    for damage in ("nonsense\n", "[1]\n"):
        path.write_text("{}\n" + damage)
        with pytest.raises(FileFormatError, match="line 2"):
            Store.open(path, {}, KEY)
    path.write_text('{}\n{"scene": "a"}\n')
    with pytest.raises(FileFormatError, match="no 'i'"):
        Store.open(path, {}, KEY)


def test_nan_is_never_written(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "a.jsonl", {}, KEY)
    with pytest.raises(ValueError, match="JSON"):
        store.append({"scene": "a", "i": 0, "ratio": float("nan")})
    assert {"scene": "a", "i": 0} not in Store.open(tmp_path / "a.jsonl", {}, KEY)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(FileFormatError, match="taken"):
        Store.open(tmp_path / "taken" / "a.jsonl", {}, KEY)
