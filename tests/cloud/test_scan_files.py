"""Search for scans in folders."""

from pathlib import Path

import pytest

from wsdesc.cloud.scan_files import find_scan_files, natural_order
from wsdesc.core.errors import FileFormatError, InputError


@pytest.fixture
def folder(tmp_path):
    """Scans in two folders, with hidden files, notes and poses next to them."""
    for name in (
        "scan_10.ply",
        "scan_2.ply",
        "notes.txt",
        "scan_2.info.txt",
        ".hidden.ply",
        "b/1.xyz",
        ".c/1.ply",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def names(paths, folder):
    return [path.relative_to(folder).as_posix() for path in paths]


def test_scans_below_a_folder_are_in_natural_order(folder):
    assert names(find_scan_files(folder), folder) == ["scan_2.ply", "scan_10.ply", "b/1.xyz"]


def test_each_file_is_listed_once(folder):
    paths = [folder / "scan_10.ply", folder, folder / "b" / ".." / "scan_10.ply"]
    assert names(find_scan_files(paths), folder) == ["scan_10.ply", "scan_2.ply", "b/1.xyz"]


def test_text_files_are_scans_if_there_are_no_others(tmp_path):
    for name in ("1.txt", "2.csv", "1.info.txt"):
        (tmp_path / name).touch()
    assert names(find_scan_files(tmp_path), tmp_path) == ["1.txt", "2.csv"]


def test_bin_files_are_scans_if_there_are_no_others(tmp_path):
    for name in ("1.bin", "mesh.bin"):
        (tmp_path / name).touch()
    assert names(find_scan_files(tmp_path), tmp_path) == ["1.bin", "mesh.bin"]
    (tmp_path / "mesh.gltf").touch()
    assert names(find_scan_files(tmp_path), tmp_path) == ["mesh.gltf"]


def test_circular_links_end(folder):
    (folder / "b" / "back").symlink_to(folder, target_is_directory=True)
    assert len(find_scan_files(folder)) == 3


def test_errors_name_the_place(folder):
    with pytest.raises(FileFormatError, match="missing: no such file or folder"):
        find_scan_files(folder / "missing")
    (folder / "a.jpg").touch()
    with pytest.raises(FileFormatError, match=r"a\.jpg: not a scan; readable formats: \.ply"):
        find_scan_files(folder / "a.jpg")
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match="empty: no scans"):
        find_scan_files(folder / "empty")


def test_natural_order_compares_numbers():
    paths = [Path(name) for name in ("b1", "a10", "A2", "a02")]
    assert [path.name for path in sorted(paths, key=natural_order)] == ["A2", "a02", "a10", "b1"]
