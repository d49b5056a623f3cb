"""Texts with any separator, decimal mark and column names."""

import numpy as np
import pytest

from wsdesc.cloud.files import read_cloud
from wsdesc.core.errors import FileFormatError

POINTS = [[1.5, 2.25, 3.5], [-4.0, 5.1, 6.2], [7.5, 8.5, 9.5]]
ROWS = ["1.5 2.25 3.5", "-4 5.1 6.2", "7.5 8.5 9.5"]


def with_mark(separator: str, comma: bool) -> str:
    rows = [row.replace(".", ",") if comma else row for row in ROWS]
    return "\n".join(row.replace(" ", separator) for row in rows) + "\n"


@pytest.mark.parametrize("extension", ["xyz", "txt", "csv", "asc"])
@pytest.mark.parametrize(
    ("separator", "comma"),
    [
        *((mark, False) for mark in (",", ";", "\t", "  ", " , ", "|")),
        *((mark, True) for mark in (";", "\t", " ", "; ")),
    ],
)
def test_separators_and_decimal_marks(tmp_path, extension, separator, comma):
    (tmp_path / f"a.{extension}").write_text(with_mark(separator, comma))
    np.testing.assert_array_equal(read_cloud(tmp_path / f"a.{extension}").points, POINTS)


@pytest.mark.parametrize(
    "head",
    [
        "x{0}y{0}z",
        '"X"{0}"Y"{0}"Z"',
        "Easting (m){0}NORTHING{0}Elevation [m]",
        "E{0}N{0}H",
        "Points:0{0}Points:1{0}Points:2",
        "POINT_X{0}POINT_Y{0}POINT_Z",
        "Rechtswert{0}Hochwert{0}Höhe",
    ],
)
@pytest.mark.parametrize(("separator", "comma"), [(",", False), (";", True)])
def test_names_of_coordinates(tmp_path, head, separator, comma):
    names = separator.join(["id", head.format(separator), "label"])
    rows = with_mark(separator, comma).splitlines()
    lines = [separator.join([str(10 - k), row, "wall"]) for k, row in enumerate(rows)]
    (tmp_path / "a.csv").write_text("\n".join(["% a survey", names, *lines]))
    cloud = read_cloud(tmp_path / "a.csv")
    np.testing.assert_array_equal(cloud.points, POINTS)
    assert {name: values.tolist() for name, values in cloud.attributes.items()} == {"id": [10, 9, 8]}


def test_order_of_named_columns(tmp_path):
    (tmp_path / "a.csv").write_text("Northing,Easting,Elevation\n2,1,3\n5,4,6\n")
    assert read_cloud(tmp_path / "a.csv").points.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "head", ["x,y,Easting,Northing,Elevation", "row,column,X,Y,Height", "lat,lon,x,y,z", "i,j,E,N,Height"]
)
def test_names_of_one_set_belong_together(tmp_path, head):
    (tmp_path / "a.csv").write_text(f"{head}\n8,9,1,2,3\n8,9,4,5,6\n")
    assert read_cloud(tmp_path / "a.csv").points.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_counter_without_a_name_is_not_x(tmp_path):
    for first in (0, 1):
        lines = [f"{first + k} {row} 0.5" for k, row in enumerate(ROWS)]
        (tmp_path / "a.xyz").write_text("\n".join(lines))
        cloud = read_cloud(tmp_path / "a.xyz")
        np.testing.assert_array_equal(cloud.points, POINTS)
        assert list(cloud.attributes) == ["id", "column_4"]
    (tmp_path / "a.xyz").write_text("1 1 5 9\n2 2 5 9\n3 4 5 9\n")  # whole numbers: a grid
    assert read_cloud(tmp_path / "a.xyz").points.tolist() == [[1, 1, 5], [2, 2, 5], [3, 4, 5]]


def test_words_and_empty_columns_are_ignored(tmp_path):
    for text in ("P1;1;2;3\nP2;4;5;6\n", "1,2,3,\n4,5,6,\n", '"a b",1,2,3\n"c, d",4,5,6\n'):
        (tmp_path / "a.csv").write_text(text)
        assert read_cloud(tmp_path / "a.csv").points.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_first_point_of_whole_numbers_does_not_show_the_decimal_mark(tmp_path):
    for text in ("1 2 3\n1,5 2,5 3,5\n", "x;y;z\n1;2;3\n1,5;2,5;3,5\n"):
        (tmp_path / "a.txt").write_text(text)
        assert read_cloud(tmp_path / "a.txt").points.tolist() == [[1, 2, 3], [1.5, 2.5, 3.5]]
    (tmp_path / "a.txt").write_text("1 2 3\n1 2 three\n")
    with pytest.raises(FileFormatError, match="three"):
        read_cloud(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("x,y,z,i\n1.5,2,3,4\n,,,\n4,5,6,\n", 4),
        ("x;y;z;i\r\n1,5;2;3;4\r\n;;;\r\n4;5;6;\r\n", 4),
        ("x;y;z;i\n1;2;3;4\n;;;\n1,5;5;6;\n", 4),
        ('"x","y","z","i"\n"1.5","2","3","4"\n"","","",""\n"4","5","6",""\n', 4),
    ],
)
def test_empty_cells_have_no_value(tmp_path, text, label):
    (tmp_path / "a.csv").write_text(text)
    cloud = read_cloud(tmp_path / "a.csv", nonfinite="drop")
    assert (len(cloud), cloud.dropped) == (2, 1)
    assert cloud.attributes["i"][0] == label
    assert np.isnan(cloud.attributes["i"][1])
    (tmp_path / "a.csv").write_text("x,y,z\n1,2,3\n4,,x\n")
    with pytest.raises(FileFormatError, match="cannot be read as csv"):
        read_cloud(tmp_path / "a.csv")


def test_quoted_decimal_commas(tmp_path):
    (tmp_path / "a.csv").write_text('"x","y","z"\n"1,5","2,5","3,5"\n"4","5,1","6,2"\n')
    assert read_cloud(tmp_path / "a.csv").points.tolist() == [[1.5, 2.5, 3.5], [4, 5.1, 6.2]]


def test_text_of_excel(tmp_path):
    (tmp_path / "a.csv").write_bytes("x;y;z\r\n1,5;2;3\r\n".encode("utf-16"))
    assert read_cloud(tmp_path / "a.csv").points.tolist() == [[1.5, 2, 3]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Latitude,Longitude,Altitude\n48.1,11.5,500\n", "angles; project them first"),
        ("id,lat,lon,h\n1,48.1,11.5,500\n", "angles; project them first"),
        ("ncols 3\nnrows 3\ncellsize 1\n1 2 3\n", "raster"),
        ("id,a,b,c\n1,2,3,4\n", "column x is missing"),
        ("1.234,5 2,5 3,5\n", "no points"),
        ("1,5;2,5\n", "at least three"),
    ],
)
def test_texts_that_are_no_scans(tmp_path, text, reason):
    (tmp_path / "a.asc").write_text(text)
    with pytest.raises(FileFormatError, match=reason):
        read_cloud(tmp_path / "a.asc")


def test_scans_of_a_car(data_folder):
    for name, count in {"car_cloud400.csv": 24989, "car_cloud401.csv": 25193}.items():
        cloud = read_cloud(data_folder / "wild" / "car" / name)
        assert len(cloud) == count
        assert 100 < np.ptp(cloud.points[:, 0]) < 300


@pytest.mark.parametrize("extension", [".xyzn", ".xyzrgb"])
def test_files_of_open3d(tmp_path, extension):
    (tmp_path / f"a{extension}").write_text("0.5 1.5 2.5 1.0 0.0 0.0\n3.5 4.5 5.5 0.0 1.0 0.0\n")
    np.testing.assert_array_equal(
        read_cloud(tmp_path / f"a{extension}").points, [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]
    )
