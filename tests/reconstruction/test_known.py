"""Files of control points, known poses and up directions, and names of scans."""

import json
from pathlib import Path

import numpy as np
import pytest

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.reconstruction.control import ControlPoint, read_control, read_up
from wsdesc.reconstruction.known import read_known
from wsdesc.reconstruction.options import KnownOptions

PATHS = {"a.ply": Path("scans/a.ply"), "b.ply": Path("scans/b.ply"), "x/c.ply": Path("x/c.ply")}


def known(**given):
    return read_known(PATHS, options=KnownOptions(), **given)


@pytest.mark.parametrize(
    "text",
    [
        "scan,x,y,z,X,Y,Z,sigma,name\na.ply,1,2,3,448123.25,5411987.5,312,0.004,P1\nb,0,0,1,1,1,1,,\n",
        "a.ply,1,2,3,448123.25,5411987.5,312,0.004,P1\nb,0,0,1,1,1,1\n",
        "# from the total station\n\na.ply;1;2;3;448123.25;5411987.5;312;0.004;P1\r\nb;0;0;1;1;1;1\r\n",
        "a.ply;1,0;2;3;448123,25;5411987,5;312;0,004;P1\nb;0;0;1;1;1;1\n",
        "\ufeffscan,X,Y,Z,x,y,z,name,sigma\na.ply,448123.25,5411987.5,312,1,2,3,P1,0.004\nb,1,1,1,0,0,1\n",
    ],
)
def test_control_points_in_many_dialects(tmp_path, text):
    (tmp_path / "points.csv").write_text(text, encoding="utf-8")
    first, second = read_control(tmp_path / "points.csv")
    assert first == ControlPoint("a.ply", (1, 2, 3), (448123.25, 5411987.5, 312), 0.004, "P1")
    assert second == ControlPoint("b", (0, 0, 1), (1, 1, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no control points"),
        ("scan,x,y,z,X,Y,Z\n", "no control points"),
        ("a.ply,1,2,3,4,5\n", "line 1: 6 fields"),
        ("a.ply,1,2,3,4,5,6\na.ply,1,2,three,4,5,6\n", "line 2: z must be a number, not 'three'"),
        ("a.ply,1,2,3,4,5,nan\n", "Z must be finite"),
        ("a.ply,1,2,3,4,5,6,-1\n", "sigma must be positive"),
        ("scan,x,y,z,east,north,height\na.ply,1,2,3,4,5,6\n", "column 'X' is missing"),
        (",1,2,3,4,5,6\n", "name of the scan is missing"),
    ],
)
def test_damaged_control_points_are_refused_with_the_line(tmp_path, text, message):
    (tmp_path / "points.csv").write_text(text)
    with pytest.raises(FileFormatError, match=message):
        read_control(tmp_path / "points.csv")


def test_files_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "points.csv").write_bytes(b"\xff\xfe\x00\x81" * 100)
    with pytest.raises(FileFormatError, match="UTF-8"):
        read_control(tmp_path / "points.csv")
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_control(tmp_path / "absent.csv")


def test_scans_are_found_by_name_stem_and_path():
    points = [ControlPoint(n, (0, 0, 0), (0, 0, 0)) for n in ("a", "a.ply", "scans/b.ply", "c.ply")]
    assert [p.scan for p in known(control=points).control] == ["a.ply", "a.ply", "b.ply", "x/c.ply"]
    with pytest.raises(InputError, match=r"d: no scan has this name; names are, for example, a\.ply"):
        known(control=[ControlPoint("d", (0, 0, 0), (0, 0, 0))])


def test_up_in_all_forms(tmp_path):
    assert known(up="z").up == dict.fromkeys(PATHS, (0.0, 0.0, 1.0))
    assert known(up="0,0,-2").up["a.ply"] == (0.0, 0.0, -1.0)
    assert known(up={"a": "y"}).up == {"a.ply": (0.0, 1.0, 0.0)}
    (tmp_path / "up.csv").write_text("scan,x,y,z\na.ply,0,0,3\n")
    assert read_up(tmp_path / "up.csv") == {"a.ply": (0, 0, 3)}
    assert known(up=str(tmp_path / "up.csv")).up == {"a.ply": (0.0, 0.0, 1.0)}
    with pytest.raises(InputError, match="up"):
        known(up="upwards")
    (tmp_path / "up.csv").write_text("a.ply,0,0,0\n")
    with pytest.raises(FileFormatError, match="line 1: up must not be zero"):
        known(up=tmp_path / "up.csv")


def test_poses_from_files_and_mappings(tmp_path):
    T = np.eye(4)
    T[:3, 3] = [448123.25, 5411987.5, 312]
    (tmp_path / "poses.json").write_text(json.dumps({"scans": {"a.ply": {"T_world_scan": T.tolist()}}}))
    (tmp_path / "plain.json").write_text(json.dumps({"a": T.tolist()}))
    for given in (tmp_path / "poses.json", str(tmp_path / "plain.json"), {"a.ply": T}):
        poses = known(priors=given).poses
        np.testing.assert_array_equal(poses["a.ply"].T_world_scan, T)
    with pytest.raises(InputError, match="rigid"):
        known(priors={"a": 2 * T})
    (tmp_path / "plain.json").write_text("[1]")
    with pytest.raises(FileFormatError, match="not a file of poses"):
        known(priors=tmp_path / "plain.json")


def test_reference_makes_known_poses_relative():
    T = np.eye(4)
    T[:3, 3] = [1, 2, 3]
    result = known(priors={"a": T, "b": np.eye(4)}, reference="a")
    np.testing.assert_array_equal(result.poses["a.ply"].T_world_scan, np.eye(4))
    np.testing.assert_array_equal(result.poses["b.ply"].T_world_scan[:3, 3], [-1, -2, -3])
    with pytest.raises(InputError, match="has no known pose"):
        known(priors={"a": T}, reference="b")
    with pytest.raises(InputError, match="reference and control"):
        known(control=[ControlPoint("a", (0, 0, 0), (0, 0, 0))], reference="a")


def test_priors_need_stations():
    with pytest.raises(InputError, match="no scan has a known pose"):
        known(priors=True)


def write_ptx(path, poses):
    """Write stations of one point each."""
    text = ""
    for T in poses:
        rows = "\n".join(" ".join(map(str, row)) for row in T.T.tolist())
        text += f"1\n1\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n{rows}\n1 2 3 0.5\n"
    path.write_text(text)


def test_stations_of_a_file_are_known_poses(tmp_path):
    moved = np.eye(4)
    moved[:3, 3] = [5, 6, 7]
    write_ptx(tmp_path / "s.ptx", [np.eye(4), moved])
    paths = {f"s.ptx#{k}": tmp_path / f"s.ptx#{k}" for k in (1, 2)} | {"a.ply": tmp_path / "a.ply"}
    poses = read_known(paths, priors=True, options=KnownOptions()).poses
    assert list(poses) == ["s.ptx#1", "s.ptx#2"]
    np.testing.assert_array_equal(poses["s.ptx#2"].T_world_scan, np.eye(4))  # read in the frame of the file
    np.testing.assert_array_equal(poses["s.ptx#2"].station, [5, 6, 7])


def test_stations_that_were_never_registered_have_no_known_poses(tmp_path):
    write_ptx(tmp_path / "s.ptx", [np.eye(4), np.eye(4)])
    paths = {f"s.ptx#{k}": tmp_path / f"s.ptx#{k}" for k in (1, 2)}
    with pytest.raises(InputError, match="no scan has a known pose"):
        read_known(paths, priors=True, options=KnownOptions())
