"""Stations of E57 and PTX files as separate scans."""

from pathlib import Path

import numpy as np
import pytest

from wsdesc.cloud.files import read_cloud, write_points
from wsdesc.cloud.scan_files import find_scan_files
from wsdesc.cloud.stations import count_stations, expand_stations
from wsdesc.core.errors import FileFormatError
from wsdesc.core.file_parts import split_part
from wsdesc.core.journal import file_key
from wsdesc.reconstruction.inputs import as_files, find_scans

POINTS = [np.arange(12.0).reshape(4, 3) + 1, np.arange(15.0).reshape(5, 3) - 20]
SHIFTS = [np.array([10.0, 0, 0]), np.array([0.0, 20, 0])]


def write_stations(path: Path) -> None:
    """Write two stations that differ in points and position."""
    if path.suffix == ".e57":
        pye57 = pytest.importorskip("pye57")
        with pye57.E57(str(path), mode="w") as file:
            for points, shift in zip(POINTS, SHIFTS, strict=True):
                data = {f"cartesian{axis}": points[:, i].copy() for i, axis in enumerate("XYZ")}
                file.write_scan_raw(data, rotation=np.array([1.0, 0, 0, 0]), translation=shift)
        return
    text = ""
    for points, shift in zip(POINTS, SHIFTS, strict=True):
        text += f"{len(points)}\n1\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n1 0 0 0\n0 1 0 0\n0 0 1 0\n"
        text += " ".join(map(str, shift)) + " 1\n" + "".join(f"{x} {y} {z} 0.5\n" for x, y, z in points)
    path.write_text(text)


@pytest.fixture(params=["e57", "ptx"])
def survey(request, tmp_path) -> Path:
    path = tmp_path / f"multi.{request.param}"
    write_stations(path)
    return path


def test_a_number_selects_a_station(survey):
    assert count_stations(survey) == 2
    for k in range(2):
        cloud = read_cloud(f"{survey}#{k + 1}")
        np.testing.assert_allclose(cloud.points, POINTS[k] + SHIFTS[k], atol=1e-5)
    assert len(read_cloud(survey)) == 9


def test_numbers_start_at_one_and_end_with_the_last(survey):
    for number in (0, 3, 999):
        with pytest.raises(FileFormatError, match=f"has 2 stations, there is no station {number}"):
            read_cloud(f"{survey}#{number}")


def test_a_reconstruction_takes_every_station_as_a_scan(survey, tmp_path):
    write_points(tmp_path / "single.ply", POINTS[0])
    names = [f"{survey.name}#1", f"{survey.name}#2", "single.ply"]
    assert [path.name for path in find_scans([tmp_path])] == names
    paths, failed = as_files([survey, tmp_path / "single.ply"], tmp_path, None)
    assert list(paths) == names
    assert not failed
    again, _ = as_files(find_scans([tmp_path]), tmp_path, None)
    assert again == paths


def test_stations_have_different_content(survey):
    keys = {file_key(path) for path in [survey, *expand_stations(survey)]}
    assert len(keys) == 3
    assert not any(key.startswith("unreadable") for key in keys)


def test_other_files_have_no_stations(tmp_path):
    path = tmp_path / "a.ply"
    write_points(path, POINTS[0])
    assert expand_stations(path) == [path]
    with pytest.raises(FileFormatError, match="ply files have no stations; omit #1"):
        read_cloud(f"{path}#1")
    with pytest.raises(FileFormatError, match="no such file"):
        find_scan_files(tmp_path / "missing.e57#1")


def test_a_file_whose_name_has_a_number_sign(tmp_path):
    path = tmp_path / "scan.e57#1"
    path.touch()
    assert split_part(path) == (path, None)
    write_points(tmp_path / "run#2.ply", POINTS[0])
    assert len(read_cloud(tmp_path / "run#2.ply")) == 4


def test_a_damaged_file_is_reported_when_it_is_read(tmp_path):
    (tmp_path / "bad.ptx").write_text("nothing")
    with pytest.raises(FileFormatError, match="stations cannot be counted"):
        count_stations(tmp_path / "bad.ptx")
    paths, _ = as_files([tmp_path / "bad.ptx"], tmp_path, None)
    assert list(paths) == ["bad.ptx"]
