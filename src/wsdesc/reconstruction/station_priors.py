"""Known poses of stations: E57 and PTX files store the pose of each scan in the frame of the file.

The coordinates of such a scan are read in the frame of the file. So its known pose is the identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from wsdesc.cloud.stations import read_station_poses
from wsdesc.core.errors import InputError, WSDescError
from wsdesc.core.file_parts import split_part
from wsdesc.core.geometry import Floats


def station_priors(paths: Mapping[str, Path]) -> dict[str, Floats]:
    """Return the position (3,) of the scanner in the frame of the file, for scans with a known pose.

    Several stations with the identity as pose were never registered: their poses are not known.

    Args:
        paths: Files of the scans, by name.

    Raises:
        InputError: No scan has a known pose.
    """
    poses_of_file: dict[Path, list[Floats | None]] = {}
    poses: dict[str, Floats] = {}
    for name, path in paths.items():
        file, station = split_part(path)
        if file not in poses_of_file:
            try:
                poses_of_file[file] = read_station_poses(file)
            except WSDescError:  # reading the scan itself will say why
                poses_of_file[file] = []
        stations = poses_of_file[file]
        number = (station or 1) - 1
        if number < len(stations) and (station is not None or len(stations) == 1):
            T = stations[number]
            if T is not None:
                poses[name] = T
    trivial = [name for name, T in poses.items() if np.array_equal(T, np.eye(4))]
    if len(trivial) > 1:
        poses = {name: T for name, T in poses.items() if name not in trivial}
    if not poses:
        raise InputError("priors: no scan has a known pose; E57 and PTX files of registered stations have")
    return {name: T[:3, 3] for name, T in poses.items()}
