"""Measure `wsdesc.register(scale="estimate")` against a registration at the known scale.

    python -m benchmarks.scale DATA [--sets kitchen bunny building lidar car strangers] [--pairs 10]

DATA is the folder of real scans. Each pair is registered twice: at its known scale, and with its source
multiplied by a random factor of 0.1 to 10 (log-uniform) that is estimated. The source is rotated at random.

Sets:

- kitchen, bunny, building: pairs of them, evenly chosen.
- lidar: synthetic laser scans of streets, courtyards, halls and warehouses.
- car: the vehicle scan 401 and the scaled copy of 400, each against 400, and the copy against 401.
- strangers: pairs that do not overlap. Each of their successes is wrong.

Prints for each set

- the number of pairs,
- successes and R1 at the known and at the estimated scale,
- the median error of the factor over right poses,
- the successes at the estimated scale that fail by R1,
- the median ratio of both times.

R1 counts a pose if the overlap is displaced by at most 8
resolutions (0.2 m in a room), root mean square, with the error of the factor.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

import wsdesc
from benchmarks.common import (
    fragment_path,
    make_parser,
    print_machine,
    print_rows,
    random_rotation,
    read_truth,
    run_command,
    show_progress,
)
from wsdesc.cloud.units import working_resolution
from wsdesc.core.geometry import inverse, transform
from wsdesc.core.similarity import factor_of, inverse_similarity
from wsdesc.registration.result import Registration

LARGEST_FACTOR = 10.0
RIGHT = 8.0  # resolutions: largest displacement of R1
SITES = ("street", "courtyard", "hall", "warehouse")
MIN_OVERLAP = 0.3  # of synthetic pairs
FIRST_SEED = 70_000  # of synthetic sites


class Pair(NamedTuple):
    """Two scans and the true similarity between them; None if they do not overlap."""

    source: np.ndarray  # (N, 3)
    target: np.ndarray  # (M, 3)
    S_target_source: np.ndarray | None


class Row(NamedTuple):
    """Both registrations of a pair."""

    known: bool  # success at the known scale
    known_right: bool
    success: bool
    right: bool
    error: float  # of the factor, absolute logarithm
    slower: float  # ratio of both times


def main(arguments: argparse.Namespace) -> None:
    header = [
        "",
        "n",
        "known: success",
        "R1",
        "estimated: success",
        "R1",
        "error of factor, %",
        "wrong",
        "time",
    ]
    table = [header]
    for name in arguments.sets:
        rng = np.random.default_rng(arguments.seed)
        pairs = list(PAIRS[name](arguments.data, arguments.pairs))
        start, rows = time.monotonic(), []
        for pair in show_progress(pairs, name):
            if time.monotonic() - start > 60 * arguments.minutes:
                break
            rows.append(measure_pair(pair, rng, arguments))
            print(name, *summary(rows), file=sys.stderr, flush=True)
        table.append([name, *summary(rows)])
    print_machine()
    print_rows(table)


def measure_pair(pair: Pair, rng: np.random.Generator, arguments: argparse.Namespace) -> Row:
    """Register a pair at the known scale, and at an unknown one."""
    options = {"device": arguments.device, "keypoints": tuple(arguments.keypoints)}
    T, S = random_rotation(rng), pair.S_target_source
    factor = math.exp(rng.uniform(-1, 1) * math.log(LARGEST_FACTOR))
    known_factor = 1.0 if S is None else factor_of(S)
    source = transform(pair.source, T)
    if S is not None:
        S = S @ inverse(T)
    start = time.perf_counter()
    at_known_scale = wsdesc.register(source, pair.target, scale=known_factor, **options)
    middle = time.perf_counter()
    result = wsdesc.register(factor * source, pair.target, scale="estimate", **options)
    end = time.perf_counter()
    error = abs(math.log(result.scale * factor / known_factor))
    return Row(
        at_known_scale.success,
        is_right(at_known_scale, source, pair.target, S),
        result.success,
        is_right(
            result, factor * source, pair.target, None if S is None else S @ np.diag(3 * [1 / factor] + [1])
        ),
        error,
        (end - middle) / (middle - start),
    )


def is_right(result: Registration, source: np.ndarray, target: np.ndarray, S: np.ndarray | None) -> bool:
    """Return whether the overlap is displaced by at most 8 resolutions, root mean square."""
    if S is None:
        return False
    true = transform(source, S)
    resolution = working_resolution(true, target)
    near = cKDTree(target).query(true, distance_upper_bound=2 * resolution)[0] < np.inf
    distances = np.linalg.norm(transform(source[near], result.T_target_source) - true[near], axis=1)
    return bool(near.any() and math.sqrt(np.square(distances).mean()) <= RIGHT * resolution)


def summary(rows: list[Row]) -> list[str]:
    """Count successes and right poses."""
    errors = [row.error for row in rows if row.right]
    return [
        *map(str, (len(rows), sum(row.known for row in rows), sum(row.known_right for row in rows))),
        *map(str, (sum(row.success for row in rows), sum(row.right for row in rows))),
        f"{100 * float(np.median(errors)):.2f}" if errors else "–",
        str(sum(row.success and not row.right for row in rows)),
        f"{float(np.median([row.slower for row in rows])):.1f}",
    ]


def evaluation_pairs(scene: str) -> Callable[[Path, int], Iterator[Pair]]:
    """Return a reader of pairs of a scene in the layout of 3DMatch, evenly chosen."""

    def read(data: Path, count: int) -> Iterator[Pair]:
        folder = data / scene
        truth = read_truth(folder.with_name(f"{folder.name}-evaluation"))
        for k in np.unique(np.linspace(0, len(truth) - 1, min(count, len(truth))).astype(int)):
            pair = truth[k]
            source, target = (wsdesc.read_points(fragment_path(folder, n)) for n in (pair.j, pair.i))
            yield Pair(source, target, pair.T_i_j)

    return read


def lidar_pairs(data: Path, count: int) -> Iterator[Pair]:
    """Make pairs of synthetic laser scans, the first of each site that overlap enough."""
    from wsdesc.datasets.synthetic import overlap, site_scans

    for number in range(count):
        for seed in range(FIRST_SEED + 100 * number, FIRST_SEED + 100 * number + 20):
            first, second = site_scans(SITES[number % len(SITES)], seed, 2)[:2]
            T = inverse(second.T_world_scan) @ first.T_world_scan
            shared = overlap(first.points, second.points, T)
            if min(shared, overlap(second.points, first.points, inverse(T))) >= MIN_OVERLAP:
                yield Pair(first.points, second.points, T)
                break


def car_pairs(data: Path, count: int) -> Iterator[Pair]:
    """Read the vehicle scans. The scaled copy has the points of 400 in the same order: its truth is exact."""
    folder = data / "wild" / "car"
    first, second, copy = (
        wsdesc.read_points(folder / f"car_cloud{name}.csv") for name in ("400", "401", "400_scaled")
    )
    row = (folder / "carCloudList.csv").read_text().splitlines()[2].split(",")[1:]
    T_first_second = np.array(row, dtype=float).reshape(4, 4)
    S_first_copy = similarity_between(copy, first)
    yield Pair(second, first, T_first_second)
    yield Pair(copy, first, S_first_copy)
    yield Pair(copy, second, inverse_similarity(T_first_second) @ S_first_copy)


def stranger_pairs(data: Path, count: int) -> Iterator[Pair]:
    """Pair scans of kitchen with scans of the building and the bunny, which show other places."""
    kitchen = list(evaluation_pairs("indoor/test/kitchen")(data, count))
    others = [*evaluation_pairs("tls/building")(data, count), *evaluation_pairs("objects/bunny")(data, count)]
    for k, pair in enumerate(kitchen):
        yield Pair(pair.source, others[k * 3 % len(others)].target, None)


def similarity_between(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Fit the similarity (4, 4) of corresponding points (N, 3) by least squares."""
    p, q = (points - points.mean(axis=0) for points in (source, target))
    U, _, Vt = np.linalg.svd(q.T @ p)
    R = U @ np.diag([1, 1, np.linalg.det(U @ Vt)]) @ Vt
    S = np.eye(4)
    S[:3, :3] = math.sqrt((q**2).sum() / (p**2).sum()) * R
    S[:3, 3] = target.mean(axis=0) - S[:3, :3] @ source.mean(axis=0)
    return S


PAIRS: dict[str, Callable[[Path, int], Iterator[Pair]]] = {
    "kitchen": evaluation_pairs("indoor/test/kitchen"),
    "bunny": evaluation_pairs("objects/bunny"),
    "building": evaluation_pairs("tls/building"),
    "lidar": lidar_pairs,
    "car": car_pairs,
    "strangers": stranger_pairs,
}


if __name__ == "__main__":
    parser = make_parser("scale", __doc__)
    parser.add_argument("data", type=Path, help="folder of real scans")
    parser.add_argument("--sets", nargs="+", choices=PAIRS, default=list(PAIRS), help="sets to measure")
    parser.add_argument("--pairs", type=int, default=10, help="pairs per set (default: %(default)s)")
    parser.add_argument(
        "--keypoints", type=int, nargs="+", default=[300, 1200, 4000], help="keypoints of each round"
    )
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="start no new pair of a set after this time"
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto")
    parser.add_argument("--seed", type=int, default=0, help="seed of rotations and factors")
    sys.exit(run_command(parser, main))
