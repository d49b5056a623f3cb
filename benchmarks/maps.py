"""Measure maps: the time, memory and size of building one, and how many scans are located in it.

    python -m benchmarks.maps [--points 40000000] [--queries 60]
    python -m benchmarks.maps --kinds street --resolution 0.2
    python -m benchmarks.maps --kinds building --resolution 0.08
    python -m benchmarks.maps --processes 8 --cores 2     scan with 8 processes, build and locate on two cores
    python -m benchmarks.maps --processes 8 --cores 2 --searchers 3     locate on three times two cores
    python -m benchmarks.maps --first-seed 21000 --candidates candidates.jsonl     for `map_fit`

Synthetic streets and floors are scanned and put side by side, in geographic coordinates. The map is built of
all scans but the last ones of each site, in a new process. These last scans, from other positions and with
other noise, are located in it, and so are scans of sites that are not in the map.

A location is right if the points of the scan are within 10 resolutions of their true positions, on average.
Recall is the share of scans of mapped sites that are located rightly with success. Only scans with at least
half of their surface in the map count: sites have rooms that no scan of the map shows. Precision is the share
of all successes that are right, also of scans with less surface in the map.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree

from benchmarks.common import make_parser, print_machine, print_table, run_command
from benchmarks.map_survey import FIRST_SEED, KINDS, ROOM, SENSOR, make_survey
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.errors import WSDescError
from wsdesc.core.geometry import Floats, transform
from wsdesc.core.progress import StepTimer
from wsdesc.datasets.synthetic import SENSORS, SITES
from wsdesc.mapping.locate import search
from wsdesc.mapping.options import LocateOptions
from wsdesc.mapping.site_map import Map

RESOLUTION = 0.12  # metres; between those that suit a floor and a street
RIGHT = 10  # resolutions between the true and the located points of a scan, on average
COVERED = 0.5  # share of a scan that must be in the map to count for the recall


class Query(NamedTuple):
    """Result of locating one scan."""

    site: str
    success: bool
    right: bool
    covered: float | None  # share of the scan's points that are in the map; None for strangers
    seconds: float
    timings: dict[str, float]  # seconds of each step
    rounds: list[list[dict[str, Any]]]  # candidates of each round, if they were asked for


def locate(opened: Map, path: Path, T_map_scan: Floats | None, *, candidates: bool = False) -> Query:
    """Locate a scan, and compare its pose with the true one; `candidates` lists those of all rounds."""
    start = time.perf_counter()
    result = opened.locate(path)
    seconds = time.perf_counter() - start
    rounds = _rounds(opened, path, T_map_scan) if candidates else []
    site = path.stem.rpartition("_")[0]
    if T_map_scan is None:
        return Query(site, result.success, False, None, seconds, result.timings, rounds)
    points = np.load(path)[::50].astype(np.float64)
    right = _error(points, result.T_map_scan, T_map_scan) < RIGHT * opened.resolution
    covered = _covered(opened, transform(points, T_map_scan))
    return Query(site, result.success, right, covered, seconds, result.timings, rounds)


def _rounds(opened: Map, path: Path, T_map_scan: Floats | None) -> list[list[dict[str, Any]]]:
    """List the candidates of all rounds: their evidence, and whether they are right and valid."""
    rounds = []
    for searched in search(opened, path, LocateOptions(), StepTimer()):
        p, candidates = searched.description, []
        points = p.points[::50].double().numpy()
        for candidate, evidence in searched.evidence.items():
            right = False
            if T_map_scan is not None:
                true = T_map_scan @ p.T_scan_local
                true[:3, 3] = (true[:3, 3] - opened.origin) / opened.unit
                error = _error(points, candidate.refined.T_target_source, true)
                right = error < RIGHT * INDOOR_RESOLUTION
            valid = candidate.degeneracy.kind is None and not candidate.scale.differs
            figures = evidence._asdict() | {"pair": evidence.pair._asdict()}
            candidates.append({"evidence": figures, "right": right, "valid": valid})
        rounds.append(candidates)
    return rounds


def _error(points: Floats, T: Floats, T_true: Floats) -> float:
    """Return the mean distance of points (N, 3) at two poses."""
    return float(np.linalg.norm(transform(points, T) - transform(points, T_true), axis=1).mean())


def _covered(opened: Map, points: Floats) -> float:
    """Return the share of points, in map coordinates, that have a point of the map within 3 resolutions."""
    local = (points - opened.origin) / opened.unit
    distance = 3 * INDOOR_RESOLUTION
    near = opened.points_within(local.min(axis=0) - distance, local.max(axis=0) + distance)
    if len(near) == 0:
        return 0.0
    return float(np.isfinite(cKDTree(near).query(local, distance_upper_bound=distance)[0]).mean())


def main(arguments: argparse.Namespace) -> None:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        processes = arguments.processes
        survey = make_survey(
            folder,
            arguments.points,
            arguments.queries,
            arguments.kinds,
            processes,
            arguments.first_seed,
            arguments.pose_error,
            arguments.sensor,
        )
        _report("scanning", began)
        everywhere = sorted(os.sched_getaffinity(0))
        _use_cores(everywhere, arguments.build_cores or arguments.cores)
        used = _cpu_seconds()
        command = [sys.executable, "-m", "wsdesc", "map", str(survey.scans), "-o", str(folder / "site.map")]
        start = time.perf_counter()
        options = ["--resolution", str(arguments.resolution), "--json"]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        build_seconds, cpu_seconds = time.perf_counter() - start, _cpu_seconds() - used
        if done.returncode:
            raise WSDescError(f"wsdesc map failed: {done.stderr.strip()}")
        _report("building", start)
        built = json.loads(done.stdout)
        gigabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        start = time.perf_counter()
        Map.open(folder / "site.map")
        open_seconds = time.perf_counter() - start
        print_machine()
        print_table(
            [
                ("points of the scans", f"{survey.points / 1e6:.1f} million"),
                (
                    "points and keypoints of the map",
                    f"{built['points'] / 1e6:.2f} and {built['keypoints'] / 1e6:.3f} million",
                ),
                ("build", f"{build_seconds:.0f} s ({cpu_seconds:.0f} CPU s), {gigabytes:.2f} GiB"),
                ("size", f"{built['bytes'] / 1e6:.0f} MB"),
                ("open", f"{open_seconds:.2f} s"),
            ]
        )
        _use_cores(everywhere, arguments.cores)
        # Queries of both kinds are mixed, so that a time limit leaves out some of each.
        queries = [survey.queries[k] for k in np.random.default_rng(0).permutation(len(survey.queries))]
        end = time.time() + arguments.seconds - (time.perf_counter() - began)
        results = _locate_all(folder / "site.map", queries, everywhere, arguments, end)
    print_queries(results)
    if arguments.candidates is not None:
        lines = [json.dumps({"site": r.site, "covered": r.covered, "rounds": r.rounds}) for r in results]
        arguments.candidates.write_text("\n".join(lines) + "\n")


def _use_cores(cores: list[int], count: int | None) -> None:
    """Run this process and its children on the first `count` cores."""
    if count is not None:
        os.sched_setaffinity(0, cores[:count])
        torch.set_num_threads(count)


def _cpu_seconds() -> float:
    """Return the CPU time of finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _locate_all(
    path: Path,
    queries: list[tuple[Path, Floats | None]],
    cores: list[int],
    arguments: argparse.Namespace,
    end: float,
) -> list[Query]:
    """Locate scans with several processes, each on its own cores, until a time (of `time.time`)."""
    count, candidates = arguments.searchers, arguments.candidates is not None
    if count == 1:
        return _locate_some(path, queries, None, end, candidates)
    each = arguments.cores or max(1, len(cores) // count)
    parts = [queries[k::count] for k in range(count)]
    own = [[cores[(k * each + i) % len(cores)] for i in range(each)] for k in range(count)]
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        done = pool.map(_locate_some, repeat(path), parts, own, repeat(end), repeat(candidates))
        return [query for part in done for query in part]


def _locate_some(
    path: Path,
    queries: list[tuple[Path, Floats | None]],
    cores: list[int] | None,
    end: float,
    candidates: bool,
) -> list[Query]:
    """Locate scans one after the other, on these cores."""
    if cores is not None:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(len(cores))
    opened = Map.open(path)
    opened.locate(queries[0][0])  # compiles kernels
    results = []
    for query in queries:
        if time.time() > end:
            break
        results.append(locate(opened, *query, candidates=candidates))
    return results


def _report(step: str, start: float) -> None:
    print(f"{step}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


def print_queries(results: Sequence[Query]) -> None:
    """Print recall, precision and times."""
    mapped = [r for r in results if r.covered is not None and r.covered >= COVERED]
    strangers = [r for r in results if r.covered is None]
    successes = [r for r in results if r.success]
    right = sum(r.right for r in successes)
    recalled = sum(r.success and r.right for r in mapped)
    seconds = sorted(r.seconds for r in results)
    rows = [
        ("locate", f"{statistics.median(seconds):.2f} s (median), {seconds[-1]:.2f} s (slowest)"),
        ("success", _steps([r for r in results if r.success])),
        ("no success", _steps([r for r in results if not r.success])),
        ("recall", f"{recalled / max(1, len(mapped)):.1%} of {len(mapped)} scans of mapped sites"),
        (
            "precision",
            f"{right / len(successes):.1%} of {len(successes)} successes" if successes else "no success",
        ),
        ("strangers located", f"{sum(r.success for r in strangers)} of {len(strangers)}"),
    ]
    print_table(rows)


def _steps(results: Sequence[Query]) -> str:
    """Return the medians of all steps."""
    steps = {name for r in results for name in r.timings}
    medians = {name: statistics.median(r.timings.get(name, 0.0) for r in results) for name in steps}
    ordered = sorted(medians.items(), key=lambda item: -item[1])
    total = statistics.median(r.seconds for r in results) if results else 0.0
    return f"{total:.2f} s (median of {len(results)}); " + ", ".join(f"{n} {s:.2f}" for n, s in ordered)


def _parser() -> argparse.ArgumentParser:
    parser = make_parser("maps", __doc__)
    parser.add_argument("--points", type=int, default=40_000_000, help="points of the mapped scans")
    parser.add_argument("--queries", type=int, default=60, help="scans to locate; half as many strangers")
    parser.add_argument("--kinds", nargs="+", choices=(*SITES, ROOM), default=KINDS, help="sites of the map")
    parser.add_argument("--resolution", type=float, default=RESOLUTION, help="of the map, in metres")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of the sites")
    parser.add_argument("--pose-error", type=float, default=0.0, help="of the mapped scans, in metres")
    parser.add_argument("--sensor", choices=SENSORS, default=SENSOR, help="of all scans but those of rooms")
    parser.add_argument("--candidates", type=Path, help="file that receives the candidates of all scans")
    parser.add_argument("--processes", type=int, default=1, help="processes that scan the sites")
    parser.add_argument("--cores", type=int, help="cores for building and locating (default: all)")
    parser.add_argument("--build-cores", type=int, help="cores for building (default: `cores`)")
    parser.add_argument("--searchers", type=int, default=1, help="processes that locate, on `cores` each")
    parser.add_argument("--seconds", type=float, default=np.inf, help="no queries after this time")
    parser.add_argument("--folder", type=Path, help="folder for temporary files; 1 GB for 40 million points")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(_parser(), main))
