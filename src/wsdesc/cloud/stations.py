"""Stations: files of surveys (E57, PTX) hold several scans. `multi.e57#2` is the second one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wsdesc.cloud.formats import WITH_STATIONS, module_for
from wsdesc.core.errors import FileFormatError, one_line
from wsdesc.core.file_parts import expand_home, split_part


def count_stations(path: str | Path) -> int:
    """Return the number of scans in a file; it is 1 for formats without stations.

    Raises:
        FileFormatError: The file cannot be read.
        MissingExtraError: The file is E57, and the extra `e57` is not installed.
    """
    path = expand_home(path)
    if path.suffix.lower() not in WITH_STATIONS:
        return 1
    try:
        return int(module_for(path.suffix.lower()).count_stations(path))
    except (ValueError, OSError) as error:
        raise FileFormatError(
            f"{path}: the stations cannot be counted: {one_line(str(error), 200)}"
        ) from error


def read_station_poses(path: str | Path) -> list[np.ndarray | None]:
    """Return the pose (4, 4) of each scan of a file in the frame of the file; None where it has none.

    Formats without stations have no poses: the list is [None].

    Raises:
        FileFormatError: The file cannot be read.
        MissingExtraError: The file is E57, and the extra `e57` is not installed.
    """
    path = Path(path)
    if path.suffix.lower() not in WITH_STATIONS:
        return [None]
    try:
        return list(module_for(path.suffix.lower()).station_poses(path))
    except (ValueError, OSError) as error:
        raise FileFormatError(
            f"{path}: the poses of the stations cannot be read: {one_line(str(error), 200)}"
        ) from error


def expand_stations(path: str | Path) -> list[Path]:
    """List the stations of a file as multi.e57#1, multi.e57#2, …; other files as they are."""
    file, station = split_part(path)
    count = 1 if station is not None else count_stations(file)
    if count < 2:
        return [expand_home(path)]
    return [file.with_name(f"{file.name}#{k + 1}") for k in range(count)]
