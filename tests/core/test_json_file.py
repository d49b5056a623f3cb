"""JSON files: an object is read; everything else is one clear error."""

import pytest

from wsdesc.core.errors import FileFormatError
from wsdesc.core.json_file import read_object


def read(path, largest=1000):
    return read_object(path, largest=largest, kind="a thing", invalid="not a thing")


def test_an_object_is_read(tmp_path):
    (tmp_path / "a.json").write_text('{"name": "ä"}', encoding="utf-8")
    assert read(tmp_path / "a.json") == {"name": "ä"}


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b'{"a": }', b"\xff\xfe", b"[" * 900])
def test_other_content_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"a\.json: not a thing"):
        read(tmp_path / "a.json")


def test_large_and_missing_files_are_refused(tmp_path):
    (tmp_path / "a.json").write_text("{}" + " " * 100)
    with pytest.raises(FileFormatError, match=r"a\.json: too large for a thing"):
        read(tmp_path / "a.json", largest=50)
    with pytest.raises(FileFormatError, match=r"none\.json: cannot be read: No such file"):
        read(tmp_path / "none.json")
