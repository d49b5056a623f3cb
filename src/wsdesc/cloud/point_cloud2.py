"""ROS `PointCloud2` messages: the columns of the points in their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

# Numbers of `sensor_msgs/PointField`.
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}


def message_columns(message: Any) -> dict[str, np.ndarray]:
    """Read the fields of a message, of ROS 1 or ROS 2.

    Organised clouds are read row by row. Bytes between fields, points and rows are skipped.

    Args:
        message: Object with the attributes of `sensor_msgs/PointCloud2`.

    Returns:
        Field name -> (N,), or (N, count) for fields of several elements.

    Raises:
        ValueError: The sizes contradict each other, or a type is unknown.
    """
    height, width = int(message.height), int(message.width)
    point_step, row_step = int(message.point_step), int(message.row_step)
    if height <= 1 or row_step == 0:  # drivers leave the step of a single row empty
        row_step = width * point_step
    data = np.frombuffer(_bytes_of(message.data), np.uint8)
    needed = max(0, height - 1) * row_step + width * point_step if height and width else 0
    if min(height, width, point_step) < 0 or row_step < width * point_step or len(data) < needed:
        raise ValueError(
            f"the message is damaged: {height} × {width} points of {point_step} bytes, rows of {row_step} "
            f"bytes, and {len(data)} bytes of data"
        )
    record = _record(message.fields, point_step, ">" if message.is_bigendian else "<")
    if needed == 0:
        return {name: np.empty((0, *record[name].shape), record[name].base) for name in record.names or ()}
    rows = np.ndarray((height, width), record, data.data, strides=(row_step, point_step))
    return {name: rows[name].reshape(height * width, *record[name].shape) for name in record.names or ()}


def _record(fields: Any, point_step: int, order: str) -> np.dtype[Any]:
    names, formats, offsets = [], [], []
    for field in fields:
        if field.name in names or field.name in ("", "_"):  # padding
            continue
        if field.datatype not in _TYPES:
            raise ValueError(f"field {field.name} has the unknown type {field.datatype}")
        kind = order + _TYPES[field.datatype]
        count = max(1, int(field.count))  # 0 in messages of some drivers
        end = int(field.offset) + count * np.dtype(kind).itemsize
        if field.offset < 0 or end > point_step:
            raise ValueError(f"field {field.name} ends at byte {end} of points with {point_step} bytes")
        names.append(str(field.name))
        formats.append((kind, (count,)) if count > 1 else kind)
        offsets.append(int(field.offset))
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": point_step})


def _bytes_of(data: Any) -> Any:
    """Return an object with a buffer; some bridges deliver a list of integers."""
    return bytes(data) if isinstance(data, list | tuple) else data
