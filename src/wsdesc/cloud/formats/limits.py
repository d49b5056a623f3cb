"""Limits on the memory that a file may take: a small compressed file can expand beyond all memory.

Compression reduces scans to a third, and meshes of zeros to a hundredth. A file that claims more than a
hundred times its size is damaged or malicious, unless the result is small.
"""

from __future__ import annotations

_MAX_RATIO = 100  # largest memory of a file, relative to its size
_SMALL = 2**27  # bytes of memory that any file may take
_MAX_COLUMNS = 10_000  # columns of a table; each becomes an array


def check_unpacked(needed: int, size: int) -> None:
    """Raise a ValueError if a file of `size` bytes would take an implausible `needed` bytes of memory."""
    if needed > max(_MAX_RATIO * size, _SMALL):
        raise ValueError(
            f"the content would take {needed} bytes, {needed // max(size, 1)} times the size of the file"
        )


def check_columns(count: int) -> None:
    """Raise a ValueError if there are too many columns to be attributes of points."""
    if count > _MAX_COLUMNS:
        raise ValueError(f"the file has {count} columns, at most {_MAX_COLUMNS} are supported")
