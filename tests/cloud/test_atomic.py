"""A file is there whole, or it is as it was."""

import pytest

from wsdesc.cloud.atomic import atomic_write
from wsdesc.errors import FileFormatError


def test_a_writer_that_fails_midway_leaves_the_old_file(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_text("old")

    def fail_halfway() -> None:
        with atomic_write(path) as temporary:
            temporary.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_replacing_keeps_links_and_permissions(tmp_path):
    real, link = tmp_path / "real.bin", tmp_path / "link.bin"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    with atomic_write(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_block_that_writes_nothing_is_an_error(tmp_path):
    path = tmp_path / "weights.bin"

    def write_nothing() -> None:
        with atomic_write(path):
            pass

    with pytest.raises(FileFormatError, match=r"weights\.bin"):
        write_nothing()
    assert list(tmp_path.iterdir()) == []


def test_the_temporary_file_has_the_extension_and_ordinary_permissions(tmp_path):
    (tmp_path / "ordinary").write_text("")
    with atomic_write(tmp_path / "picture.png") as temporary:
        assert temporary.suffix == ".png"
        temporary.write_bytes(b"1")
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1
