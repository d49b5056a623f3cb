"""Measure what is gained if something about the pose is known beforehand.

    python -m benchmarks.priors [DATA] [--sets sites building kitchen train] [--pairs 40] [--seconds 300]
    python -m benchmarks.priors DATA --pairs 40 --part 0 4 -o rows0.jsonl   every fourth pair
    python -m benchmarks.priors --read rows*.jsonl                  tables of finished pairs

Registers pairs of synthetic LiDAR sites and, of the folder DATA, pairs of `tls/building`, of
`indoor/test/kitchen` with little overlap, and of `indoor/train`: without a prior, with right priors, and with
wrong ones.

- up: the direction of gravity in both scans, with an error of 1°. axis: the same without error.
- near: an initial pose that is off by up to 20 resolutions and 15°, and these as limits.
- refinement: an initial pose that is off by up to 4 resolutions and 2°, which is refined only.
- overlap: at least 10 %.
- wrong up: 90° away. wrong initial: off by 80 resolutions and 60°, with the limits of near.

Prints one row per prior: the share of right poses (R1: errors below 5° and 12 resolutions at the middle of
the source), of successes, the number of wrong successes, and the time relative to no prior. Times of one pair
are taken one after the other, so that other work on the machine changes the ratios little. Scans are
described at 300 and 1 200 keypoints: a third round would take most of the time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

import wsdesc
from benchmarks.common import (
    fragment_path,
    make_parser,
    percent,
    print_machine,
    print_rows,
    read_truth,
    run_command,
    show_progress,
)
from wsdesc.core.geometry import Floats, inverse, motion_about, transform
from wsdesc.datasets.synthetic import site_scans
from wsdesc.datasets.threedmatch import read_pose
from wsdesc.registration.result import Registration

SITES = ("street", "courtyard", "hall", "warehouse", "building", "vegetation")
SENSORS = ("lidar64", "lidar32", "terrestrial")
OVERLAPS = (0.15, 0.5)  # wanted overlap of the synthetic pairs
GRAVITY_ERROR = 1.0  # degrees
NEAR, NEAR_ANGLE = 20.0, 15.0  # resolutions, degrees
CLOSE, CLOSE_ANGLE = 4.0, 2.0  # the same of an initial pose that is only refined
WRONG, WRONG_ANGLE = 80.0, 60.0
KEYPOINTS = (300, 1200)
_NEAR = 0.05  # metres: points this close overlap
MAX_ROTATION, MAX_DISTANCE = 5.0, 12.0  # errors of a right pose: degrees, resolutions


class Pair(NamedTuple):
    """Two scans, their true pose, and up in the target."""

    source: Floats  # (N, 3)
    target: Floats  # (M, 3)
    T_target_source: Floats
    up: Floats  # (3,)


class Row(NamedTuple):
    """One registration of a pair."""

    right: bool
    success: bool
    seconds: float


def main(arguments: argparse.Namespace) -> None:
    print_machine()
    if arguments.read:
        print_tables(line for path in arguments.read for line in path.read_text().splitlines())
    else:
        print_tables(_register_all(arguments))


def _register_all(arguments: argparse.Namespace) -> Iterator[str]:
    """Register pairs, append a line of JSON for each to the output file, and yield it."""
    began = time.perf_counter()
    part, parts = arguments.part
    for name in arguments.sets:
        if name != "sites" and arguments.data is None:
            continue
        pairs = SETS[name](arguments.data, arguments.pairs, arguments.seed)
        first = True
        for number, pair in enumerate(show_progress(pairs, name, arguments.pairs)):
            if number % parts != part:
                continue
            if first:
                measure(pair, {})  # compiles kernels
                first = False
            elif time.perf_counter() - began > arguments.seconds:
                break
            rows = dict(register_with_priors(pair, np.random.default_rng([arguments.seed, number])))
            line = json.dumps({"set": name, "pair": number, "rows": rows})
            if arguments.output is not None:
                with arguments.output.open("a") as file:
                    file.write(line + "\n")
            yield line


def print_tables(lines: Iterable[str]) -> None:
    """Print one table for each set of pairs."""
    sets: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        pair = json.loads(line)
        for prior, row in pair["rows"].items():
            sets[pair["set"]][prior].append(Row(*row))
    for name, rows in sets.items():
        print(f"\n{name}, n = {len(rows['none'])}")
        print_rows(table(rows))


def synthetic_pairs(data: Path | None, count: int, seed: int) -> Iterator[Pair]:
    """Scan sites of each kind in turn."""
    for k in range(count):
        kind, sensor = SITES[k % len(SITES)], SENSORS[k // len(SITES) % len(SENSORS)]
        a, b = site_scans(kind, 7000 + seed + k, 2, sensor, OVERLAPS)
        T = inverse(b.T_world_scan) @ a.T_world_scan
        yield Pair(a.points.astype(float), b.points.astype(float), T, b.T_world_scan[2, :3])


def real_pairs(folder: Path, scene: str, evaluation: str, count: int, up: Floats) -> Iterator[Pair]:
    """Read evenly spaced pairs of an evaluation; `up` is the direction in every target."""
    truth = read_truth(folder / evaluation)
    for k in np.unique(np.linspace(0, len(truth) - 1, count).astype(int)):
        pair = truth[k]
        source, target = (wsdesc.read_points(fragment_path(folder / scene, n)) for n in (pair.j, pair.i))
        yield Pair(source, target, pair.T_i_j, up)


def train_pairs(folder: Path, count: int, seed: int) -> Iterator[Pair]:
    """Draw pairs of the training fragments with little overlap; up is that of the first camera."""
    rng = np.random.default_rng(seed)
    files = [sorted(scene.glob("cloud_bin_*.ply")) for scene in sorted(folder.iterdir()) if scene.is_dir()]
    while count:
        scene = files[rng.integers(len(files))]
        source, target = (scene[k] for k in rng.choice(len(scene), 2, replace=False))
        T_world = [read_pose(path.with_suffix(".info.txt")) for path in (source, target)]
        points = [wsdesc.read_points(path) for path in (source, target)]
        T = inverse(T_world[1]) @ T_world[0]
        tree = cKDTree(points[1])
        gaps = tree.query(transform(points[0], T), distance_upper_bound=_NEAR)[0]
        if OVERLAPS[0] <= np.isfinite(gaps).mean() <= OVERLAPS[1]:
            count -= 1
            yield Pair(*points, T, T_world[1][:3, :3].T @ np.array([0, -1.0, 0]))


SETS: dict[str, Callable[[Any, int, int], Iterator[Pair]]] = {
    "sites": synthetic_pairs,
    "building": lambda data, count, _: real_pairs(
        data / "tls", "building", "building-evaluation", count, np.array([0, 0, 1.0])
    ),
    "kitchen": lambda data, count, _: real_pairs(
        data / "indoor/test", "kitchen", "kitchen-evaluation-lo", count, np.array([0, -1.0, 0])
    ),
    "train": lambda data, count, seed: train_pairs(data / "indoor/train", count, seed),
}


def register_with_priors(pair: Pair, rng: np.random.Generator) -> Iterator[tuple[str, Row]]:
    """Register a pair without a prior, then with each one."""
    none, row = measure(pair, {})
    yield "none", row
    for name, options in priors(pair, none.resolution, rng).items():
        yield name, measure(pair, options)[1]


def priors(pair: Pair, resolution: float, rng: np.random.Generator) -> dict[str, dict[str, Any]]:
    """Draw the options of each prior."""
    T, up_source = pair.T_target_source, pair.T_target_source[:3, :3].T @ pair.up
    rough = [up + np.radians(GRAVITY_ERROR) / 2**0.5 * rng.normal(size=3) for up in (up_source, pair.up)]
    limits = {"search_radius": NEAR * resolution, "max_angle": NEAR_ANGLE}
    across = np.cross(pair.up, rng.normal(size=3))
    share = rng.random() ** (1 / 3)

    def guess(resolutions: float, degrees: float) -> Floats:
        return moved(T, pair.source, resolutions * resolution, degrees, rng)

    return {
        "up": {"up": rough},
        "axis": {"axis": (up_source, pair.up)},
        "near": {"initial": guess(share * NEAR, share * NEAR_ANGLE), **limits},
        "refinement": {
            "initial": guess(share * CLOSE, share * CLOSE_ANGLE),
            "search_radius": 0,
            "max_angle": 0,
        },
        "overlap": {"overlap_at_least": 0.1},
        "wrong up": {"up": (up_source, across)},
        "wrong initial": {"initial": guess(WRONG, WRONG_ANGLE), **limits},
    }


def moved(T: Floats, source: Floats, distance: float, degrees: float, rng: np.random.Generator) -> Floats:
    """Move a pose by a distance and an angle, in random directions, about the middle of the source."""
    shift, turn = (v / np.linalg.norm(v) for v in rng.normal(size=(2, 3)))
    R = Rotation.from_rotvec(np.radians(degrees) * turn).as_matrix()
    return T @ motion_about(source.mean(0), R, distance * shift)


def measure(
    pair: Pair, options: dict[str, Any], keypoints: int | tuple[int, ...] = KEYPOINTS
) -> tuple[Registration, Row]:
    """Register a pair, and compare the pose with the true one."""
    start = time.perf_counter()
    result = wsdesc.register(pair.source, pair.target, keypoints=keypoints, **options)
    seconds = time.perf_counter() - start
    T, middle = pair.T_target_source, pair.source.mean(0, keepdims=True)
    difference = T[:3, :3].T @ result.rotation
    degrees = np.degrees(Rotation.from_matrix(difference).magnitude())
    distance = np.linalg.norm(transform(middle, result.T_target_source) - transform(middle, T))
    right = result.evidence is not None and degrees < MAX_ROTATION
    return result, Row(bool(right and distance < MAX_DISTANCE * result.resolution), result.success, seconds)


def table(rows: dict[str, list[Row]]) -> list[list[str]]:
    """Format the figures of each prior."""
    reference = sum(row.seconds for row in rows["none"])
    lines = [["prior", "R1, %", "success, %", "wrong successes", "time"]]
    for name, measured in rows.items():
        lines.append(
            [
                name,
                percent(float(np.mean([row.right for row in measured]))),
                percent(float(np.mean([row.success for row in measured]))),
                str(sum(row.success and not row.right for row in measured)),
                f"{sum(row.seconds for row in measured) / reference:.2f}",
            ]
        )
    return lines


if __name__ == "__main__":
    parser = make_parser("priors", __doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder of real scans, with indoor/ and tls/")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="sets of pairs")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of each set")
    parser.add_argument("--seconds", type=float, default=np.inf, help="no pairs after this time")
    parser.add_argument(
        "--part", type=int, nargs=2, default=(0, 1), help="number of the part, and of all parts"
    )
    parser.add_argument("-o", "--output", type=Path, help="file (.jsonl) to which pairs are appended")
    parser.add_argument("--read", type=Path, nargs="+", help="files of finished pairs")
    parser.add_argument("--seed", type=int, default=0)
    sys.exit(run_command(parser, main))
