"""Synthetic scenes for training: rooms, and sites of all kinds that all sensors see.

Scans are prepared as `register` prepares them: at their working resolution, in metres of the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.clean import clean
from wsdesc.cloud.units import INDOOR_RESOLUTION, working_resolution
from wsdesc.core.errors import WSDescError
from wsdesc.core.geometry import Floats
from wsdesc.core.rng import generator_of
from wsdesc.datasets.synthetic import SITES, room_scans, site_scans
from wsdesc.descriptor.preparation import prepare_scan
from wsdesc.learning.sources import COVERAGE_RADIUS, drop_sparse, make_room

_SCANS = 3  # scans per scene
_MIN_POINTS = 1500
_OVERLAPS = (0.3, 0.9)  # limits of the overlap of a scan with an earlier one of its site


class SceneScan(NamedTuple):
    """A synthetic scan at its working resolution, in metres of the model."""

    points: Tensor  # (N, 3)
    T_world_local: Floats  # (4, 4) for evaluation only, never for training


def make_scene(seed: int, index: int) -> list[SceneScan]:
    """Make two or three scans of a place: even indices are rooms, odd ones sites, kind by kind."""
    for attempt in range(50):
        number = (seed * 1_000_003 + index) * 50 + attempt
        if index % 2 == 0:
            made = room_scans(number, _SCANS)
        else:
            made = site_scans(SITES[index // 2 % len(SITES)], number, _SCANS, overlaps=_OVERLAPS)
        large = [scan for scan in made if len(scan.points) >= _MIN_POINTS]
        if len(large) < 2:
            continue
        unit = working_resolution(*(scan.points for scan in large)) / INDOOR_RESOLUTION
        try:
            return [_prepare(scan.points, scan.T_world_scan, unit) for scan in large]
        except WSDescError:  # too few points at this resolution
            continue
    raise RuntimeError(f"no synthetic scene could be made from seed {seed}, index {index}")


def make_room_or_site(seed: int, index: int, min_coverage: float, *, sites: float) -> list[Tensor]:
    """Make the scans (N, 3) of a room or, with the probability `sites`, of a site; see `make_room`."""
    if float(torch.rand(1, generator=generator_of(seed, 26, index))) >= sites:
        return make_room(seed, index, min_coverage)
    scans = make_scene(seed, 2 * index + 1)
    return [drop_sparse(scan.points, COVERAGE_RADIUS, min_coverage) for scan in scans]


def _prepare(points: np.ndarray, T_world_scan: Floats, unit: float) -> SceneScan:
    prepared = prepare_scan(clean(points), unit * INDOOR_RESOLUTION, "", 0, 3)
    T = T_world_scan @ prepared.T_scan_local
    T[:3, 3] /= unit
    return SceneScan(prepared.points, T)
