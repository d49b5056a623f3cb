"""Fit the confidence of `wsdesc register` to poses that are right and poses that are not.

    python -m benchmarks.calibrate SCENE… --rooms 40 --floors 12 -o src/wsdesc/align/confidence.json

SCENE is a folder of cloud_bin_k.ply with poses in cloud_bin_k.info.txt beside them. Scans of a scene are
paired where they overlap by a tenth or more, and as many pairs that do not overlap are added: of one scene,
and of two. Scenes whose names begin alike up to the first "_" are taken for one place. Each place is also
judged by a model fitted to all others, which is what the printed figures are about. Floors, laser scans of
synthetic corridors with bays that look alike, are not fitted to: they try the rule about rival poses.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from benchmarks.common import print_machine, watched
from wsdesc.alignment.confidence import FITTED, Calibration, Evidence
from wsdesc.alignment.surface import Surface
from wsdesc.cloud.files import read_points
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.datasets.synthetic import overlap, room_scans
from wsdesc.datasets.synthetic.floor import floor_scans
from wsdesc.datasets.threedmatch import read_pose
from wsdesc.descriptor.description import Description, describe
from wsdesc.evaluation.metrics import r2_success
from wsdesc.evaluation.reliability import reliability
from wsdesc.registration.pipeline import register_described

LEAST, NONE = 0.1, 0.005  # overlaps of pairs that count as overlapping, and as not
FLOOR_RESOLUTION = 0.1  # metres; one for all, so that scans of two floors can be compared


@dataclass
class Scan:
    place: str
    description: Description
    surface: Surface
    T_world_scan: np.ndarray  # of the description's coordinates, in the model's metres


@dataclass
class Pair:
    source: Scan
    target: Scan
    T_target_source: np.ndarray | None  # None where they do not overlap


def scan_of(
    place: str,
    points: np.ndarray,
    T_world: np.ndarray,
    keypoints: int,
    rng: Any,
    resolution: float = INDOOR_RESOLUTION,
) -> Scan:
    """Turned at random, so that nothing is learned from how scans stand."""
    turn = np.eye(4)
    turn[:3, :3] = Rotation.from_quat(rng.normal(size=4)).as_matrix()
    found = describe(points @ turn[:3, :3].T, keypoints=keypoints, resolution=resolution)
    local = np.eye(4)
    local[:3, 3] = found.offset
    T = T_world @ turn.T @ local
    T[:3, 3] /= found.unit
    return Scan(place, found, Surface.of(found.points.numpy()), T)


def read_scans(o: argparse.Namespace) -> dict[str, list[Scan]]:
    """By sequence: all scans of a room or of a scene."""
    rng = np.random.default_rng(o.seed)
    scans: dict[str, list[Scan]] = {}
    for number in watched(range(o.rooms), "rooms"):
        name = f"room{number}"
        made = [f for f in room_scans(o.first_room + number, 3) if len(f.points) > 1500]
        scans[name] = [scan_of(name, f.points, f.T_world_scan, o.keypoints, rng) for f in made]
    for number in watched(range(o.floors), "floors"):
        name = f"floor{number}"
        scans[name] = [
            scan_of(name, f.points, f.T_world_scan, o.keypoints, rng, FLOOR_RESOLUTION)
            for f in floor_scans(o.first_room + number, 3)
        ]
    for folder in o.scenes:
        place = folder.name.split("_")[0]
        files = sorted(folder.glob("cloud_bin_*.ply"), key=lambda f: int(f.stem.rsplit("_", 1)[1]))
        scans[folder.name] = [
            scan_of(place, read_points(f), read_pose(f.with_suffix(".info.txt")), o.keypoints, rng)
            for f in watched(files[:: o.every], folder.name)
        ]
    return scans


def choose_pairs(scans: dict[str, list[Scan]], most: int, seed: int) -> list[Pair]:
    """Overlapping ones and as many others, at most so many of each."""
    overlapping, apart = [], []
    for some in scans.values():
        for a, b in itertools.combinations(some, 2):
            T = np.linalg.inv(b.T_world_scan) @ a.T_world_scan
            shared = min(
                overlap(a.description.points, b.description.points, T),
                overlap(b.description.points, a.description.points, np.linalg.inv(T)),
            )
            if shared >= LEAST:
                overlapping.append(Pair(a, b, T))
            elif shared <= NONE:
                apart.append(Pair(a, b, None))
    every = [scan for some in scans.values() for scan in some]
    strangers = [
        Pair(a, b, None)
        for a, b in itertools.combinations(every, 2)
        if a.place != b.place and a.description.resolution == b.description.resolution
    ]
    rng = np.random.default_rng(seed)

    def some(pairs: list[Pair], count: int) -> list[Pair]:
        return [pairs[k] for k in np.sort(rng.permutation(len(pairs))[:count])]

    overlapping = some(overlapping, most)
    apart = some(apart, len(overlapping) // 3)
    return [*overlapping, *apart, *some(strangers, len(overlapping) - len(apart))]


def judge_all(pairs: list[Pair]) -> list[tuple[Evidence, bool] | None]:
    """Each pair on a core of its own; the pairs are there already when the processes are forked."""
    torch.set_num_threads(1)
    _PAIRS[:] = pairs
    with multiprocessing.get_context("fork").Pool() as pool:
        return list(watched(pool.imap(judge_number, range(len(pairs))), "register", len(pairs)))


_PAIRS: list[Pair] = []


def judge_number(number: int) -> tuple[Evidence, bool] | None:
    return judge(_PAIRS[number])


def judge(pair: Pair) -> tuple[Evidence, bool] | None:
    """What speaks for the pose found, and whether it is right."""
    p, q = pair.source.description, pair.target.description
    result = register_described(p, q, surfaces=(pair.source.surface, pair.target.surface))
    if result.evidence is None:
        return None
    if pair.T_target_source is None:
        return result.evidence, False
    local = [np.eye(4), np.eye(4)]
    for T, description in zip(local, (p, q), strict=True):
        T[:3, 3] = description.offset
    T = np.linalg.inv(local[1]) @ result.T_target_source @ local[0]
    T[:3, 3] /= p.unit
    return result.evidence, bool(r2_success(torch.from_numpy(T), torch.from_numpy(pair.T_target_source)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("scenes", type=Path, nargs="*", help="folders of scans with poses")
    parser.add_argument("--rooms", type=int, default=40, help="synthetic rooms (default: %(default)s)")
    parser.add_argument("--floors", type=int, default=12, help="synthetic floors (default: %(default)s)")
    parser.add_argument("--first-room", type=int, default=70_000, help="seed of the first room and floor")
    parser.add_argument("--every", type=int, default=1, help="take every k-th scan of a scene")
    parser.add_argument("--keypoints", type=int, default=1500, help="of a scan (default: %(default)s)")
    parser.add_argument("--most", type=int, default=400, help="overlapping pairs, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path, default=FITTED, help="default: beside the code")
    parser.add_argument("--rows", type=Path, help="keep features and answers in this npz")
    o = parser.parse_args()

    pairs = choose_pairs(read_scans(o), o.most, o.seed)
    judged = zip(pairs, judge_all(pairs), strict=True)
    kept = [(pair, *found) for pair, found in judged if found is not None]
    features = np.stack([evidence.features() for _, evidence, _ in kept])
    right = np.array([good for *_, good in kept])
    overlapping = np.array([pair.T_target_source is not None for pair, *_ in kept])
    sides = np.array([[pair.source.place, pair.target.place] for pair, *_ in kept])
    if o.rows:
        np.savez(o.rows, features=features, right=right, overlapping=overlapping, sides=sides)

    unseen = np.full(len(kept), np.nan)
    floors = np.char.startswith(sides[:, 0], "floor")
    for place in np.unique(sides):
        here = (sides == place).any(axis=1)
        others = ~here & ~floors
        fitted = Calibration.fit(features[others], right[others]).probability(features[here])
        rivalled = np.array([evidence.ambiguous for _, evidence, _ in kept])[here]
        unseen[here] = np.where(rivalled, np.minimum(fitted, 0.5), fitted)
    Calibration.fit(features[~floors], right[~floors]).save(o.out)
    print_machine()
    print(
        f"{len(kept)} pairs, {overlapping.sum()} of them overlapping: "
        f"{right.sum()} poses right ({right[overlapping].mean():.1%} of the overlapping pairs)"
    )
    print("each place judged by the others:", reliability(unseen[~floors], right[~floors]))
    print("floors:", reliability(unseen[floors], right[floors]))
    print(f"written: {o.out}")


if __name__ == "__main__":
    main()
