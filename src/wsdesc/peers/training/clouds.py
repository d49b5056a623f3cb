"""Read the scans of a training, in metres. Poses are read only for peers that need them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from wsdesc.cloud.units import measure
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.datasets.scans import find_sequences, read_all
from wsdesc.datasets.threedmatch import read_pose
from wsdesc.peers.base import far_origin

logger = logging.getLogger(__name__)


class TrainingClouds(NamedTuple):
    """Scans of a training, or shapes of ModelNet40."""

    clouds: list[Tensor]  # (N, 3) float32 in metres, on the CPU; the viewpoint of a scan is its origin
    objects: bool  # separate shapes of unit size, whose points are sorted
    poses: Sequence[Floats] = ()  # T_world_scan (4, 4) in metres, if the peer needs them
    sequences: Sequence[int] = ()  # sequence of each scan; its poses have a common world frame


def read_clouds(
    scans: Sequence[str | Path],
    unit: float | None = None,
    *,
    poses: bool = False,
    progress: ProgressHook = no_progress,
) -> TrainingClouds:
    """Read all scans below folders. Logs the unreadable ones and the unit of length.

    Args:
        scans: Folders or files of scans.
        unit: One metre in the unit of the scans; None: measured for scans, 1 for shapes.
        poses: Read the pose of each scan from the `.info.txt` beside it.
        progress: Hook for reading.

    Raises:
        InputError: No scan is readable, or poses are needed and a scan has none.
    """
    sequences = find_sequences(scans)
    with progress("read scans", sum(len(s.scans) for s in sequences)) as advance:
        readings = [read_all(sequence, lambda scan: advance(1)) for sequence in sequences]
    problems = [problem for reading in readings for problem in reading.problems]
    arrays = [points for reading in readings for points in reading.clouds.values()]
    if not arrays:
        raise InputError(f"no scan is readable; the first: {problems[0]}")
    if problems:
        logger.warning("unreadable scans skipped (%d), the first: %s", len(problems), problems[0])
    objects = all(sequence.objects for sequence in sequences)
    if unit is None and objects:
        unit = 1.0
    elif unit is None:
        scale = measure(*arrays[:: max(1, len(arrays) // 20)])
        logger.info("%s", scale)
        unit = scale.unit
    clouds, origins = [], []
    for points in arrays:
        metres = points / unit
        origins.append(far_origin(metres))
        clouds.append(torch.from_numpy(metres - origins[-1]).float())
    logger.info("%d %s", len(clouds), "shapes" if objects else "scans")
    if not poses:
        return TrainingClouds(clouds, objects)
    numbers = [k for k, reading in enumerate(readings) for _ in reading.clouds]
    files = [s.scans[i].path for s, r in zip(sequences, readings, strict=True) for i in r.clouds]
    world = [_read_pose(path, unit, origin) for path, origin in zip(files, origins, strict=True)]
    return TrainingClouds(clouds, objects, world, numbers)


def _read_pose(path: Path, unit: float, origin: Floats) -> Floats:
    """Read T_world_scan (4, 4), in metres, of a scan whose origin was moved to `origin`."""
    file = path.with_name(f"{path.stem}.info.txt")
    if not file.is_file():
        raise InputError(f"{file}: no such file; this peer is trained with the pose of each scan")
    T_world_scan = read_pose(file)
    T_world_scan[:3, 3] /= unit
    T_world_scan[:3, 3] += T_world_scan[:3, :3] @ origin
    return T_world_scan
