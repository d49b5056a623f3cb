"""ROS PointCloud2 messages: field layouts, byte orders, padding, organised clouds, damaged messages."""

from array import array
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsdesc import as_cloud
from wsdesc.core.errors import InputError

NUMBERS = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 8}


def field(name, offset, kind, count=1):
    """A `sensor_msgs/PointField`."""
    return SimpleNamespace(name=name, offset=offset, datatype=NUMBERS[kind], count=count)


def message(columns, *, height=1, order="<", gap=0, row_gap=0, container=bytes):
    """A `sensor_msgs/PointCloud2` with `gap` bytes after each field, and `row_gap` bytes after each row."""
    fields, offset = [], 0
    for name, column in columns.items():
        kind = column.dtype.str[1:]
        fields.append(field(name, offset, kind))
        offset += column.dtype.itemsize + gap
    count = len(next(iter(columns.values())))
    width, point_step = count // height, offset
    rows = np.zeros((height, width * point_step + row_gap), np.uint8)
    points = rows[:, : width * point_step].reshape(height * width, point_step)
    for entry, column in zip(fields, columns.values(), strict=True):
        raw = np.ascontiguousarray(column.astype(column.dtype.newbyteorder(order)))
        points[:, entry.offset : entry.offset + column.dtype.itemsize] = raw.view(np.uint8).reshape(count, -1)
    rows[:, : width * point_step] = points.reshape(height, -1)
    return SimpleNamespace(
        height=height,
        width=width,
        fields=fields,
        is_bigendian=order == ">",
        point_step=point_step,
        row_step=rows.shape[1],
        data=container(rows.tobytes()),
        is_dense=False,
    )


@given(
    st.sampled_from(["f4", "f8"]),
    st.sampled_from("<>"),
    st.sampled_from([1, 2, 4]),
    st.integers(0, 5),
    st.integers(0, 9),
    st.sampled_from([bytes, bytearray, lambda data: array("B", data), list,
                     lambda data: np.frombuffer(data, np.uint8)]),
)  # fmt: skip
def test_messages_of_every_layout(kind, order, height, gap, row_gap, container):
    points = np.random.default_rng(0).normal(size=(12, 3)).astype(kind)
    points[5, 1] = np.nan
    columns = {"ring": np.arange(12, dtype="u2"), **dict(zip("xyz", points.T, strict=True))}
    columns["intensity"] = np.arange(12).astype("f4")
    scan = message(columns, height=height, order=order, gap=gap, row_gap=row_gap, container=container)
    cloud = as_cloud(scan)
    kept = np.delete(np.arange(12), 5)
    np.testing.assert_array_equal(cloud.points, points[kept].astype(np.float64))
    assert cloud.dropped == 1
    np.testing.assert_array_equal(cloud.attributes["ring"], kept)
    np.testing.assert_array_equal(cloud.attributes["intensity"], kept)


def plain(**changes):
    points = np.random.default_rng(0).normal(size=(12, 3)).astype("f4")
    scan = message(dict(zip("xyz", points.T, strict=True)))
    vars(scan).update(changes)
    return scan


def test_a_single_row_may_lack_its_step():
    np.testing.assert_array_equal(as_cloud(plain(row_step=0)).points, as_cloud(plain()).points)


def test_fields_with_several_elements_and_padding():
    rows = np.zeros(6, np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("_", "<f4"), ("f", "<f4", 5)]))
    rows["x"], rows["f"] = np.arange(6), np.arange(30).reshape(6, 5)
    offsets = [rows.dtype.fields[name][1] for name in rows.dtype.names]
    fields = [field(n, o, "f4", 5 if n == "f" else 0) for n, o in zip(rows.dtype.names, offsets, strict=True)]
    scan = plain(fields=fields, point_step=rows.itemsize, row_step=rows.nbytes, width=6, data=rows.tobytes())
    cloud = as_cloud(scan)
    np.testing.assert_array_equal(cloud.points[:, 0], np.arange(6))
    np.testing.assert_array_equal(cloud.attributes["f"], np.arange(30).reshape(6, 5))
    assert "_" not in cloud.attributes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": b""}, "damaged"),
        ({"width": 13}, "damaged"),
        ({"height": 2}, "damaged"),
        ({"height": 2, "width": 6, "row_step": 12}, "damaged"),
        ({"point_step": 4}, "ends at byte 8"),
        ({"point_step": 0}, "ends at byte"),
        ({"point_step": -12}, "damaged"),
        ({"width": -1}, "damaged"),
        ({"width": 0}, "no points"),
        ({"fields": []}, "x"),
        ({"fields": [field("x", 0, "f4"), field("y", 4, "f4")]}, "z"),
        ({"fields": [SimpleNamespace(name="x", offset=0, datatype=99, count=1)]}, "unknown type 99"),
        ({"fields": [field("x", -4, "f4")]}, "byte"),
    ],
)
def test_damaged_messages_are_refused(changes, reason):
    with pytest.raises(InputError, match=reason):
        as_cloud(plain(**changes))
