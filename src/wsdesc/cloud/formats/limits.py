"""How much a compressed file may unpack to: few bytes can stand for more than a machine has memory.

Scans shrink to a third, meshes of zeros to a hundredth. Whatever claims more than a hundred times its size
is a mistake or an attack, unless the result is small anyway.
"""

from __future__ import annotations

_MOST = 100  # times the size of the file
_SMALL = 2**27  # bytes that any file may unpack to
MOST_COLUMNS = 10_000  # of a table; each is an array of its own


def check_unpacked(needed: int, size: int) -> None:
    """Refuse to unpack a file of `size` bytes to `needed` bytes of memory if that is out of proportion."""
    if needed > max(_MOST * size, _SMALL):
        raise ValueError(f"it would unpack to {needed} bytes, {needed // max(size, 1)} times its size")


def check_columns(count: int) -> None:
    """Refuse tables whose columns are too many to be attributes of points."""
    if count > MOST_COLUMNS:
        raise ValueError(f"it has {count} columns, more than the {MOST_COLUMNS} that are read")
