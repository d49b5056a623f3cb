"""No input makes WSDesc read or write files outside of the folders that it was given."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from wsdesc.cloud.files import read_cloud, read_points, write_points
from wsdesc.cloud.scan_files import find_scan_files
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError
from wsdesc.core.folders import check_links, locked, make_folder
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.reconstruction.inputs import as_files


@pytest.fixture
def outside(tmp_path) -> Path:
    """Return a file beside the folder of results, which must not change."""
    (tmp_path / "results").mkdir()
    (tmp_path / "private.txt").write_text("unchanged")
    return tmp_path / "private.txt"


@pytest.mark.parametrize("name", ["journal.jsonl", "merged.ply", ".lock", "a folder"])
def test_a_link_out_of_the_results_is_rejected(outside, name):
    results = outside.parent / "results"
    (results / name).symlink_to(outside if name != "a folder" else outside.parent)
    with pytest.raises(FileFormatError, match=f"{name}: this link leads out of"):
        make_folder(results)
    with pytest.raises(FileFormatError, match="link leads out of"), locked(results):
        pass
    assert outside.read_text() == "unchanged"


def test_links_inside_the_results_are_accepted(outside):
    results = outside.parent / "results"
    (results / "last.ply").write_text("")
    (results / "newest.ply").symlink_to("last.ply")
    check_links(results)
    (outside.parent / "elsewhere").symlink_to(results)  # the folder itself may be a link
    check_links(outside.parent / "elsewhere")


@pytest.mark.parametrize("name", ["../private.txt", "/private.txt", "x/../../../private.txt"])
def test_benchmark_results_cannot_name_another_folder(outside, name):
    """The name becomes part of the file names of plots."""
    results = {"benchmark": "eth", "name": "eth", "title": "", "samples": "", "notes": [], "options": {}}
    results |= {"methods": [], "runs": [], "tables": [], "selection": {}}
    folder = outside.parent / "results"
    (folder / "results.json").write_text(json.dumps(results))
    assert BenchmarkResults.load(folder).name == "eth"
    (folder / "results.json").write_text(json.dumps({**results, "name": name}))
    with pytest.raises(FileFormatError, match=r"results\.json.*not the name of a folder"):
        BenchmarkResults.load(folder)


def test_members_of_archives_are_read_in_memory(outside):
    array = io.BytesIO()
    np.save(array, np.eye(3))
    path = outside.parent / "results" / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../private.txt", "overwritten")
        archive.writestr("../private.npy", array.getvalue())
        archive.writestr("/points.npy", array.getvalue())
        archive.writestr("points.npy", array.getvalue())
    before = sorted(outside.parent.rglob("*"))
    assert len(read_cloud(path).points) == 3
    assert sorted(outside.parent.rglob("*")) == before
    assert outside.read_text() == "unchanged"


def test_a_mesh_opens_no_other_file(outside, monkeypatch):
    path = outside.parent / "results" / "a.obj"
    path.write_text(f"mtllib {outside}\nmtllib ../private.txt\nv 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    opened = []
    original = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: opened.append(self) or original(self, *a, **k))
    assert len(read_points(path)) == 3
    assert opened == [path]


def test_temporary_files_are_in_the_folder_of_the_target(outside):
    results = outside.parent / "results"
    with atomic_write(results / "a.txt") as temporary:
        assert temporary.parent == results
        temporary.write_text("a")
    write_points(results / "a.ply", np.eye(3))
    assert sorted(path.name for path in results.iterdir()) == ["a.ply", "a.txt"]


def test_the_home_folder_is_expanded_in_python_too(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    points = np.random.default_rng(0).uniform(size=(60, 3))
    (tmp_path / "scans").mkdir()
    write_points("~/scans/a.ply", points)
    assert (tmp_path / "scans" / "a.ply").is_file()
    assert len(read_points(Path("~/scans/a.ply"))) == 60
    assert find_scan_files("~/scans") == [tmp_path / "scans" / "a.ply"]
    paths, _ = as_files(["~/scans/a.ply", "~/scans"], tmp_path, None)
    assert list(paths.values()) == 2 * [tmp_path / "scans" / "a.ply"]


def test_a_name_that_begins_with_a_tilde_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_points("~$a.ply", np.random.default_rng(0).uniform(size=(60, 3)))
    assert len(read_points("~$a.ply")) == 60
    assert (tmp_path / "~$a.ply").is_file()
