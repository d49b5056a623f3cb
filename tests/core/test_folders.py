"""Folders for results: creation, links, locks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.folders import (
    check_links,
    file_of_name,
    locked,
    make_folder,
    relative_name,
    without_leftovers,
)


def test_a_second_lock_is_refused_until_the_first_is_released(tmp_path):
    folder = tmp_path / "out"
    with (
        locked(folder),
        pytest.raises(InputError, match=rf"out: process {os.getpid()} uses this folder"),
        locked(folder),
    ):
        pass
    with locked(folder):
        pass


def test_the_lock_of_a_killed_process_is_released(tmp_path):
    code = (
        "import time; from pathlib import Path; from wsdesc.core.folders import locked\n"
        f"with locked(Path({str(tmp_path)!r})):\n print('locked', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"locked\n"
    with pytest.raises(InputError, match=f"process {other.pid} uses this folder"), locked(tmp_path):
        pass
    other.kill()
    other.wait()
    other.stdout.close()
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"process {os.getpid()}"


def test_a_folder_that_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileFormatError, match="cannot create the folder"), locked(tmp_path / "file" / "out"):
        pass


def test_an_existing_folder_and_its_inner_links_are_accepted(tmp_path):
    (tmp_path / "poses.json").write_text("{}")
    (tmp_path / "latest.json").symlink_to("poses.json")
    make_folder(tmp_path)
    check_links(tmp_path)


def test_a_link_that_leads_out_is_refused(tmp_path):
    folder = tmp_path / "out"
    make_folder(folder)
    (folder / "poses.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(FileFormatError, match=r"poses\.json: this link leads out of"):
        make_folder(folder)


def test_files_are_named_relative_to_a_folder(tmp_path, monkeypatch):
    (tmp_path / "scans").mkdir()
    (tmp_path / "model").mkdir()
    file = tmp_path / "scans" / "a.e57"
    file.touch()
    name = relative_name(file, tmp_path / "model")
    assert name == "../scans/a.e57"
    assert file_of_name(name, tmp_path / "model") == file
    assert file_of_name("../scans/a.e57#2", tmp_path / "model") == tmp_path / "scans" / "a.e57#2"
    monkeypatch.chdir(tmp_path)  # old results name files relative to the working folder
    assert file_of_name("scans/a.e57", tmp_path / "model") == Path("scans/a.e57")
    assert file_of_name("gone.ply", tmp_path / "model") == tmp_path / "model" / "gone.ply"
    assert file_of_name(str(file), tmp_path / "model") == file


@pytest.mark.parametrize("content", ["", "content"])
def test_a_new_folder_is_removed_if_nothing_was_written(tmp_path, content):
    folder = tmp_path / "runs" / "out"

    def run():
        with locked(folder):
            (folder / "cache").mkdir()
            (folder / "cache" / "journal").write_text(content)
            raise FileFormatError("a.ply: broken")

    with pytest.raises(FileFormatError, match="broken"):
        run()
    assert (tmp_path / "runs").exists() == bool(content)


def test_an_existing_folder_is_never_removed(tmp_path):
    with pytest.raises(FileFormatError), without_leftovers(tmp_path):
        raise FileFormatError("a.ply: broken")
    assert tmp_path.exists()
