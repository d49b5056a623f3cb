"""Files are written completely, or stay as they were."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from wsdesc.cloud.files import write_points
from wsdesc.cloud.formats import WRITABLE
from wsdesc.core import atomic
from wsdesc.core.atomic import atomic_write, remove_leftovers
from wsdesc.core.errors import FileFormatError


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


KILLED = """
import os, signal, sys
from pathlib import Path
from wsdesc.core.atomic import atomic_write
with atomic_write(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no locks, no signals")
def test_the_next_writer_removes_the_leftovers_of_a_killed_one(tmp_path):
    path = tmp_path / "weights.bin"
    done = subprocess.run([sys.executable, "-c", KILLED, path], timeout=60)
    assert done.returncode == -9
    assert len(list(tmp_path.iterdir())) == 1  # the temporary file of the killed process
    assert not path.exists()
    with atomic_write(tmp_path / "other.txt") as temporary:
        temporary.write_text("whole")
    assert [p.name for p in tmp_path.iterdir()] == ["other.txt"]


@pytest.mark.skipif(sys.platform == "win32", reason="no locks")
def test_files_of_running_writers_are_not_removed(tmp_path):
    with atomic_write(tmp_path / "a.txt") as first:
        first.write_text("first")
        remove_leftovers(tmp_path)
        with atomic_write(tmp_path / "b.txt") as second:
            second.write_text("second")
        assert first.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "b.txt"]


def test_an_empty_file_can_be_written(tmp_path):
    with atomic_write(tmp_path / "log.jsonl") as temporary:
        temporary.write_text("")
    assert (tmp_path / "log.jsonl").read_bytes() == b""


def write(folder, number):
    for k in range(100):
        with atomic_write(folder / f"{k % 5}.txt") as temporary:
            temporary.write_text(f"{number} {k}\n" * 200)


def test_parallel_writers_of_the_same_files_do_not_mix(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, [tmp_path] * 4, range(4)))
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{k}.txt" for k in range(5)]
    for path in tmp_path.iterdir():
        lines = path.read_text().splitlines()
        assert len(lines) == 200
        assert len(set(lines)) == 1


@pytest.mark.parametrize("extension", WRITABLE)
def test_every_format_is_written_into_the_locked_file(tmp_path, extension, monkeypatch):
    seen = []

    def record_flush(path, access):
        seen.append((path.stat().st_ino, path))
        return flush(path, access)

    flush = atomic._flush
    monkeypatch.setattr(atomic, "_flush", record_flush)
    claim = atomic._claim

    def record_claim(folder, suffix):
        temporary, descriptor = claim(folder, suffix)
        seen.append((os.fstat(descriptor).st_ino, temporary))
        return temporary, descriptor

    monkeypatch.setattr(atomic, "_claim", record_claim)
    write_points(tmp_path / f"a{extension}", np.random.default_rng(0).normal(size=(20, 3)))
    assert seen[0] == seen[1]


def test_lines_are_appended(tmp_path):
    path = tmp_path / "log.jsonl"
    atomic.append_line(path, "first")
    atomic.append_line(path, "zweite ü")
    assert path.read_text(encoding="utf-8") == "first\nzweite ü\n"
    with pytest.raises(FileFormatError, match="cannot be written"):
        atomic.append_line(tmp_path, "a folder")
