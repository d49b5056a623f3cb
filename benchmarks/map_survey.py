"""Files of a synthetic survey: scans of sites for a map, and scans to locate in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from wsdesc.core.geometry import Floats, transform
from wsdesc.datasets.synthetic import room_scans, site_scans

KINDS = ("building", "street")
ROOM = "room"  # a kind of site: one furnished room
SENSOR = "terrestrial"
UTM = np.array([431_000.0, 5_411_000.0, 250.0])  # a corner of the map
_SPACE = 250.0  # metres between neighbouring sites
_SCANS, _QUERIES = 14, 2  # of each site
FIRST_SEED = 7000  # of the sites in the map
_ROTATION_ERROR = 0.04  # degrees for each centimetre of the error of a pose
_STRANGERS = 1000  # added to seeds of sites that are not in the map


class SiteScan(NamedTuple):
    """A scan of a site in the map's coordinates."""

    points: np.ndarray  # (N, 3) in the frame of the scanner
    T_map_scan: Floats


def site(kind: str, seed: int, number: int, count: int, sensor: str = SENSOR) -> Iterator[SiteScan]:
    """Yield scans of a site, which stands at the place of this number."""
    rng = np.random.default_rng([seed, number])
    T_map_site = np.eye(4)
    angle = rng.uniform(0, 2 * np.pi)
    T_map_site[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    T_map_site[:3, 3] = UTM + _SPACE * np.array([number % 8, number // 8, 0])
    if kind == ROOM:
        scans = room_scans(seed, count, resolution=0.05)
    else:
        scans = site_scans(kind, seed, count, sensor=sensor, overlaps=(0.4, 0.9))
    for scan in scans:
        yield SiteScan(scan.points, T_map_site @ scan.T_world_scan)


class Survey(NamedTuple):
    """Files of a synthetic survey."""

    scans: Path  # folder with the scans of the map, in its coordinates
    points: int  # of these
    queries: list[tuple[Path, Floats | None]]  # scans to locate, with their poses; None for strangers


class SiteFiles(NamedTuple):
    """Files of one site."""

    scans: list[tuple[Path, int]]  # of the map, with their numbers of points
    queries: list[tuple[Path, Floats | None]]


def make_survey(
    folder: Path,
    points: int,
    queries: int,
    kinds: Sequence[str] = KINDS,
    processes: int = 1,
    first_seed: int = FIRST_SEED,
    pose_error: float = 0.0,
    sensor: str = SENSOR,
) -> Survey:
    """Scan sites of these kinds until the map has so many points, and choose scans to locate.

    Args:
        folder: Receives the scans.
        points: Points of the scans in the map.
        queries: Scans to locate; half as many strangers are added.
        kinds: Kinds of sites, in turn.
        processes: Processes that scan.
        first_seed: Seed of the first site.
        pose_error: Standard deviation, in metres, of the errors of the mapped scans' positions.
        sensor: Of all scans.
    """
    scans, others = folder / "scans", folder / "queries"
    scans.mkdir()
    others.mkdir()
    total, number = 0, 0
    mapped: list[tuple[Path, Floats | None]] = []
    several = processes > 1
    with ProcessPoolExecutor(processes, get_context("spawn")) if several else nullcontext() as pool:
        run: Callable[..., Iterator[Any]] = map if pool is None else pool.map
        while total < points:
            numbers = range(number, number + processes)
            arguments = (
                repeat(folder),
                repeat(kinds),
                repeat(first_seed),
                repeat(pose_error),
                repeat(sensor),
            )
            for files in run(_scan_site, *arguments, numbers):
                mapped += files.queries if total < points else []
                for path, count in files.scans:
                    if total < points:
                        total += count
                    else:
                        path.unlink()
            number += processes
        numbers = range(max(1, queries // 2))
        stranger_files = run(
            _scan_stranger, repeat(others), repeat(kinds), repeat(first_seed), repeat(sensor), numbers
        )
        strangers: list[tuple[Path, Floats | None]] = [(path, None) for path in stranger_files]
    chosen = np.unique(np.linspace(0, len(mapped) - 1, min(queries, len(mapped))).astype(int))
    return Survey(scans, total, [*(mapped[k] for k in chosen), *strangers])


def _scan_site(
    folder: Path, kinds: Sequence[str], first_seed: int, pose_error: float, sensor: str, number: int
) -> SiteFiles:
    """Scan one site, and write its scans."""
    kind, files = kinds[number % len(kinds)], SiteFiles([], [])
    rng = np.random.default_rng([first_seed, number])
    for k, scan in enumerate(site(kind, first_seed + number, number, _SCANS, sensor)):
        name = f"{kind}_{number:03}_{k:02}.npy"
        if k >= _SCANS - _QUERIES:
            np.save(folder / "queries" / name, scan.points.astype(np.float32))
            files.queries.append((folder / "queries" / name, scan.T_map_scan))
        else:
            T_map_scan = scan.T_map_scan @ _small_motion(rng, pose_error)
            np.save(folder / "scans" / name, transform(scan.points.astype(np.float64), T_map_scan))
            files.scans.append((folder / "scans" / name, len(scan.points)))
    return files


def _small_motion(rng: np.random.Generator, error: float) -> Floats:
    """Draw an error of a pose."""
    T = np.eye(4)
    T[:3, 3] = rng.normal(0, error, 3)
    turn = rng.normal(0, 100 * _ROTATION_ERROR * error, 3)
    T[:3, :3] = Rotation.from_rotvec(turn, degrees=True).as_matrix()
    return T


def _scan_stranger(folder: Path, kinds: Sequence[str], first_seed: int, sensor: str, number: int) -> Path:
    """Scan a site that is not in the map once."""
    kind = kinds[number % len(kinds)]
    path = folder / f"stranger_{number:03}_{kind}.npy"
    np.save(path, next(site(kind, first_seed + _STRANGERS + number, 0, 1, sensor)).points.astype(np.float32))
    return path
