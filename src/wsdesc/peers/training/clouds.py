"""Read the scans of a training, in metres. No pose is read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from wsdesc.cloud.units import measure
from wsdesc.core.errors import InputError
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.datasets.scans import find_sequences, read_all
from wsdesc.peers.base import far_origin

logger = logging.getLogger(__name__)


class TrainingClouds(NamedTuple):
    """Scans of a training, or shapes of ModelNet40."""

    clouds: list[Tensor]  # (N, 3) float32 in metres, on the CPU; the viewpoint of a scan is its origin
    objects: bool  # separate shapes of unit size, whose points are sorted


def read_clouds(
    scans: Sequence[str | Path], unit: float | None = None, *, progress: ProgressHook = no_progress
) -> TrainingClouds:
    """Read all scans below folders. Logs the unreadable ones and the unit of length.

    Args:
        scans: Folders or files of scans.
        unit: One metre in the unit of the scans; None: measured for scans, 1 for shapes.
        progress: Hook for reading.

    Raises:
        InputError: No scan is readable.
    """
    sequences = find_sequences(scans)
    with progress("read scans", sum(len(s.scans) for s in sequences)) as advance:
        readings = [read_all(sequence, lambda scan: advance(1)) for sequence in sequences]
    problems = [problem for reading in readings for problem in reading.problems]
    arrays = [points for reading in readings for points in reading.clouds.values()]
    if not arrays:
        raise InputError(f"no scan is readable; the first: {problems[0]}")
    if problems:
        logger.warning("%d unreadable scans skipped, the first: %s", len(problems), problems[0])
    objects = all(sequence.objects for sequence in sequences)
    if unit is None and objects:
        unit = 1.0
    elif unit is None:
        scale = measure(*arrays[:: max(1, len(arrays) // 20)])
        logger.info("%s", scale)
        unit = scale.unit
    clouds = []
    for points in arrays:
        metres = points / unit
        clouds.append(torch.from_numpy(metres - far_origin(metres)).float())
    logger.info("%d %s", len(clouds), "shapes" if objects else "scans")
    return TrainingClouds(clouds, objects)
