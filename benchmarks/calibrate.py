"""Fit the confidence of `wsdesc register` to correct and wrong poses.

    python -m benchmarks.calibrate SCENE… --rooms 40 --floors 12 -o src/wsdesc/alignment/confidence.json

SCENE is a folder of cloud_bin_k.ply with poses in cloud_bin_k.info.txt. Pairs are scans of one scene with an
overlap of at least 10 %, and as many pairs without overlap, of one scene and of two. Scenes whose names are
equal up to the first "_" count as one place. Floors are laser scans of synthetic corridors with repetitive
structure. They are not used in the fit: they test the rule for ambiguous poses.

Writes the fitted model. Prints the number of pairs and correct poses, and the reliability of confidences,
where the pairs of each place are evaluated by a model fitted to all other places; the same for floors.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import make_parser, print_machine, random_rotation, run_command, show_progress
from wsdesc.alignment.confidence import CALIBRATION_FILE, Calibration, Evidence
from wsdesc.alignment.surface import Surface, make_surface
from wsdesc.cloud.files import read_points
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import rotate
from wsdesc.datasets.scans import natural_order
from wsdesc.datasets.synthetic import overlap, room_scans
from wsdesc.datasets.synthetic.floor import floor_scans
from wsdesc.datasets.threedmatch import read_pose
from wsdesc.descriptor.description import Description, describe
from wsdesc.evaluation.metrics import r2_success
from wsdesc.evaluation.reliability import reliability
from wsdesc.registration.pipeline import register_described

MIN_OVERLAP = 0.1  # of pairs that count as overlapping
MAX_OVERLAP_NONE = 0.005  # of pairs that count as not overlapping
MIN_POINTS = 1500  # of a synthetic scan
FLOOR_RESOLUTION = 0.1  # metres; the same for all floors, so that scans of two floors can be paired


@dataclass
class DescribedScan:
    """A described scan of a place."""

    place: str
    description: Description
    surface: Surface
    T_world_scan: np.ndarray  # of the description's coordinates, in the model's metres


@dataclass
class ScanPair:
    """Two scans and their true pose."""

    source: DescribedScan
    target: DescribedScan
    T_target_source: np.ndarray | None  # None without overlap


Scored = tuple[Evidence, bool]  # evidence of a pose, and whether it is correct


def describe_rotated(
    place: str,
    points: np.ndarray,
    T_world_scan: np.ndarray,
    keypoints: int,
    rng: np.random.Generator,
    resolution: float = INDOOR_RESOLUTION,
) -> DescribedScan:
    """Rotate a scan at random, so that the fit cannot use how scans stand, and describe it."""
    T_rotated_scan = random_rotation(rng)
    description = describe(rotate(points, T_rotated_scan), keypoints=keypoints, resolution=resolution)
    T = T_world_scan @ T_rotated_scan.T @ description.T_scan_local
    T[:3, 3] /= description.unit
    return DescribedScan(place, description, make_surface(description.points), T)


def read_scans(arguments: argparse.Namespace) -> dict[str, list[DescribedScan]]:
    """Read and describe all scans, by room, floor or scene."""
    rng = np.random.default_rng(arguments.seed)
    count = arguments.keypoints
    scans: dict[str, list[DescribedScan]] = {}
    for number in show_progress(range(arguments.rooms), "rooms"):
        name = f"room{number}"
        made = [s for s in room_scans(arguments.first_room + number, 3) if len(s.points) > MIN_POINTS]
        scans[name] = [describe_rotated(name, s.points, s.T_world_scan, count, rng) for s in made]
    for number in show_progress(range(arguments.floors), "floors"):
        name = f"floor{number}"
        scans[name] = [
            describe_rotated(name, s.points, s.T_world_scan, count, rng, FLOOR_RESOLUTION)
            for s in floor_scans(arguments.first_room + number, 3)
        ]
    for folder in arguments.scenes:
        place = folder.name.split("_")[0]
        files = sorted(folder.glob("cloud_bin_*.ply"), key=natural_order)
        scans[folder.name] = [
            describe_rotated(place, read_points(f), read_pose(f.with_suffix(".info.txt")), count, rng)
            for f in show_progress(files[:: arguments.every], folder.name)
        ]
    return scans


def choose_pairs(scans: dict[str, list[DescribedScan]], limit: int, seed: int) -> list[ScanPair]:
    """Choose overlapping pairs, at most `limit`, and as many without overlap."""
    overlapping, separate = [], []
    for group in scans.values():
        for a, b in itertools.combinations(group, 2):
            T = np.linalg.inv(b.T_world_scan) @ a.T_world_scan
            shared = min(
                overlap(a.description.points, b.description.points, T),
                overlap(b.description.points, a.description.points, np.linalg.inv(T)),
            )
            if shared >= MIN_OVERLAP:
                overlapping.append(ScanPair(a, b, T))
            elif shared <= MAX_OVERLAP_NONE:
                separate.append(ScanPair(a, b, None))
    all_scans = [scan for group in scans.values() for scan in group]
    of_two_places = [
        ScanPair(a, b, None)
        for a, b in itertools.combinations(all_scans, 2)
        if a.place != b.place and a.description.resolution == b.description.resolution
    ]
    rng = np.random.default_rng(seed)

    def draw(pairs: list[ScanPair], count: int) -> list[ScanPair]:
        return [pairs[k] for k in np.sort(rng.permutation(len(pairs))[:count])]

    overlapping = draw(overlapping, limit)
    separate = draw(separate, len(overlapping) // 3)
    return [*overlapping, *separate, *draw(of_two_places, len(overlapping) - len(separate))]


def score_all(pairs: list[ScanPair]) -> list[Scored | None]:
    """Score pairs in one process per core; forked processes share the pairs."""
    torch.set_num_threads(1)
    _PAIRS[:] = pairs
    with multiprocessing.get_context("fork").Pool() as pool:
        return list(show_progress(pool.imap(_score_number, range(len(pairs))), "register", len(pairs)))


_PAIRS: list[ScanPair] = []


def _score_number(number: int) -> Scored | None:
    return score(_PAIRS[number])


def score(pair: ScanPair) -> Scored | None:
    """Register a pair; return the evidence of its pose and whether it is correct."""
    p, q = pair.source.description, pair.target.description
    result = register_described(p, q, surfaces=(pair.source.surface, pair.target.surface))
    if result.evidence is None:
        return None
    if pair.T_target_source is None:
        return result.evidence, False
    T = np.linalg.inv(q.T_scan_local) @ result.T_target_source @ p.T_scan_local
    T[:3, 3] /= p.unit
    return result.evidence, bool(r2_success(T, pair.T_target_source))


def leave_one_place_out(
    features: np.ndarray, right: np.ndarray, ambiguous: np.ndarray, sides: np.ndarray, floors: np.ndarray
) -> np.ndarray:
    """Compute confidences (M,) of the pairs of each place with a model fitted to the other places."""
    confidences = np.full(len(features), np.nan)
    for place in np.unique(sides):
        inside = (sides == place).any(axis=1)
        others = ~inside & ~floors
        fitted = Calibration.fit(features[others], right[others]).probability(features[inside])
        confidences[inside] = np.where(ambiguous[inside], np.minimum(fitted, 0.5), fitted)
    return confidences


def main(arguments: argparse.Namespace) -> None:
    pairs = choose_pairs(read_scans(arguments), arguments.limit, arguments.seed)
    scored = zip(pairs, score_all(pairs), strict=True)
    kept = [(pair, *result) for pair, result in scored if result is not None]
    features = np.stack([evidence.features() for _, evidence, _ in kept])
    right = np.array([correct for *_, correct in kept])
    ambiguous = np.array([evidence.ambiguous for _, evidence, _ in kept])
    overlapping = np.array([pair.T_target_source is not None for pair, *_ in kept])
    sides = np.array([[pair.source.place, pair.target.place] for pair, *_ in kept])
    if arguments.rows:
        np.savez(arguments.rows, features=features, right=right, overlapping=overlapping, sides=sides)

    floors = np.char.startswith(sides[:, 0], "floor")
    confidences = leave_one_place_out(features, right, ambiguous, sides, floors)
    Calibration.fit(features[~floors], right[~floors]).save(arguments.out)
    print_machine()
    print(
        f"{len(kept)} pairs, {overlapping.sum()} of them overlapping: "
        f"{right.sum()} poses correct ({right[overlapping].mean():.1%} of the overlapping pairs)"
    )
    print("each place by a model of the others:", reliability(confidences[~floors], right[~floors]))
    if floors.any():
        print("floors:", reliability(confidences[floors], right[floors]))
    print(f"written: {arguments.out}")


def parser() -> argparse.ArgumentParser:
    parser = make_parser("calibrate", __doc__)
    parser.add_argument("scenes", type=Path, nargs="*", help="folders of scans with poses")
    parser.add_argument("--rooms", type=int, default=40, help="synthetic rooms (default: %(default)s)")
    parser.add_argument("--floors", type=int, default=12, help="synthetic floors (default: %(default)s)")
    parser.add_argument("--first-room", type=int, default=70_000, help="seed of the first room and floor")
    parser.add_argument("--every", type=int, default=1, help="step between scans of a scene (default: all)")
    parser.add_argument("--keypoints", type=int, default=1500, help="per scan (default: %(default)s)")
    parser.add_argument("--limit", type=int, default=400, help="largest number of overlapping pairs")
    parser.add_argument("--seed", type=int, default=0, help="seed of rotations and pairs")
    parser.add_argument(
        "-o", "--out", type=Path, default=CALIBRATION_FILE, help="fitted model (default: the package's)"
    )
    parser.add_argument("--rows", type=Path, help="npz file for features and correctness")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
