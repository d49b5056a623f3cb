"""Register pairs of scans of many domains, and label every candidate pose as right or wrong by the true one.

    python -m benchmarks.label_poses --sites 400 --indoor DATA/indoor/train -o poses.npz

A domain is a kind of synthetic site (streets, courtyards, warehouses, …), synthetic rooms and floors, or the
folder of indoor scans with poses. For each site some scans are made, and as strangers two scans of another
site of the same kind. All pairs are registered in each round of `wsdesc.register`.

Writes one row per candidate: the pair, the round, the evidence and the error of the pose. `calibrate` fits
the confidence to them. Sites are worked off in the order of their seeds, so a run that is stopped by
`--minutes` has all domains in equal parts.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import make_parser, print_machine, run_command
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse
from wsdesc.registration.options import RegisterOptions
from wsdesc.registration.rounds import MORE_HYPOTHESES, MORE_REFINED


class Round(NamedTuple):
    """A round of `wsdesc.register`."""

    keypoints: int
    hypotheses: int
    refined: int


_OPTIONS = RegisterOptions()
LAST = len(_OPTIONS.keypoints) - 1
ROUNDS = {
    number: Round(
        keypoints,
        _OPTIONS.hypotheses * (MORE_HYPOTHESES if number == LAST else 1),
        _OPTIONS.refined * (MORE_REFINED if number == LAST else 1),
    )
    for number, keypoints in enumerate(_OPTIONS.keypoints)
}
SCANS, STRANGERS = 5, 2  # per site
MAX_SYMMETRY_ERROR = 5.0, 2.0  # degrees and metres by which a pose may differ from a symmetry of the site
MIN_POINTS = 1500  # of a scan that is used
INDOOR_WINDOW = 7  # successive fragments that are paired with each other


class Scan(NamedTuple):
    """A scan with its pose."""

    place: str  # scans of two places share nothing
    sensor: str
    points: np.ndarray  # (N, 3)
    T_world_scan: np.ndarray  # (4, 4)


@dataclass(frozen=True)
class Unit:
    """Scans that are registered with each other: a site and a stranger, or a window of indoor scans."""

    domain: str
    seed: int
    folder: Path | None = None


class Row(NamedTuple):
    """A labelled pose."""

    domain: str
    unit: int
    source: int  # number of the scan in its unit
    target: int
    sensors: str
    round: int
    overlap: float  # the smaller true overlap of both scans; -1 of two places
    rank: int  # among the candidates of its round
    rotation_error: float  # degrees; NaN of two places
    translation_error: float  # model metres
    degenerate: bool
    scale: float
    scale_deviation: float
    information: list[float]  # eigenvalues (6,) of the information matrix, and its number of pairs
    evidence: list[float]
    symmetric: bool  # the error of the pose is a symmetry of the site, within 5° and 2 m


def make_scans(unit: Unit) -> list[Scan]:
    """Make or read the scans of a unit."""
    from wsdesc.datasets.synthetic import room_scans, site_scans
    from wsdesc.datasets.synthetic.floor import floor_scans

    if unit.folder is not None:
        return _indoor_scans(unit.folder, unit.seed)
    makers: dict[str, Any] = {"room": room_scans, "floor": floor_scans}
    scans = []
    for place, count in enumerate((SCANS, STRANGERS)):
        seed = 2 * unit.seed + place
        maker = makers.get(unit.domain)
        made = maker(seed, count) if maker else site_scans(unit.domain, seed, count)
        scans += [
            Scan(f"{unit.domain} {seed}", getattr(s, "sensor", unit.domain), s.points, s.T_world_scan)
            for s in made
            if len(s.points) >= MIN_POINTS
        ]
    return scans


def _indoor_scans(folder: Path, start: int) -> list[Scan]:
    from wsdesc.cloud.files import read_points
    from wsdesc.datasets.scans import natural_order
    from wsdesc.datasets.threedmatch import read_pose

    files = sorted(folder.glob("cloud_bin_*.ply"), key=natural_order)[start : start + INDOOR_WINDOW]
    place = folder.name.split("_")[0]  # all scans of one sensor may show the same room
    return [Scan(place, "fused", read_points(f), read_pose(f.with_suffix(".info.txt"))) for f in files]


class Settings(NamedTuple):
    """How all units are labelled."""

    device: str
    network: str  # device of the descriptors
    rounds: Mapping[int, Round]  # by number
    viewpoints: bool  # are detected; otherwise no free space is known

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Settings:
        network = arguments.network or arguments.device
        rounds = {number: ROUNDS[number] for number in arguments.rounds}
        if arguments.refined and LAST in rounds:
            rounds[LAST] = ROUNDS[LAST]._replace(refined=arguments.refined)
        return cls(arguments.device, network, rounds, arguments.viewpoints == "detected")


def label_unit(unit: Unit, settings: Settings) -> list[Row]:
    """Register all pairs of a unit, and label their candidates."""
    import torch

    from wsdesc.alignment.surface import make_surface

    scans = make_scans(unit)
    if len(scans) < 2:
        return []
    device, network, rounds, viewpoints = settings
    described = describe_scans(scans, device, network, keypoints=rounds[max(rounds)].keypoints)
    if not viewpoints:
        described = [replace(description, range_image=None) for description in described]
    surfaces = [make_surface(d.points) for d in described]
    rows = []
    for a, b in itertools.combinations(range(len(scans)), 2):
        if scans[a].place != scans[b].place and (a + b) % 2:  # as many strangers as pairs of one place
            continue
        rows += label_pair(unit, scans, described, surfaces, a, b, rounds=rounds)
    if "cuda" in (device, network):
        torch.cuda.empty_cache()
    return rows


def describe_scans(
    scans: Sequence[Any],
    device: str,
    network: str,
    viewpoint: tuple[float, float, float] | None = None,
    keypoints: int = ROUNDS[LAST].keypoints,
) -> list[Any]:
    """Describe scans for all rounds; the viewpoints are detected if none is given."""
    from wsdesc.cloud.units import working_resolution
    from wsdesc.descriptor.describe import describe

    resolution = working_resolution(*(scan.points for scan in scans))
    options: dict[str, Any] = {"keypoints": keypoints, "resolution": resolution, "viewpoint": viewpoint}
    return [describe(scan.points, device=network, **options).to(device) for scan in scans]


def label_pair(
    unit: Unit,
    scans: list[Scan],
    described: list[Any],
    surfaces: list[Any],
    a: int,
    b: int,
    overlaps: tuple[float, float] = (-1.0, 2.0),
    rounds: Mapping[int, Round] = ROUNDS,
) -> Iterator[Row]:
    """Register scans a and b in some rounds and label the candidates, if their true overlap is in a range."""
    from wsdesc.datasets.synthetic import overlap
    from wsdesc.evaluation.metrics import rotation_error_deg, translation_error
    from wsdesc.registration.candidates import find_candidates, structural_poses

    p, q = described[a], described[b]
    same = scans[a].place == scans[b].place
    T_true = np.eye(4)
    shared = -1.0
    if same:
        T = inverse(scans[b].T_world_scan) @ scans[a].T_world_scan
        T_true = inverse(q.T_scan_local) @ T @ p.T_scan_local
        T_true[:3, 3] /= p.unit
        points = [d.points.cpu().numpy() for d in (p, q)]
        shared = min(overlap(*points, T_true), overlap(*points[::-1], inverse(T_true)))
    if not overlaps[0] <= shared < overlaps[1]:
        return
    structural = cache(partial(structural_poses, p, q, (surfaces[a], surfaces[b])))
    symmetries = _symmetries(scans[a].place) if same and unit.folder is None else []
    for number, schedule in rounds.items():
        candidates = find_candidates(
            first_keypoints(p, schedule.keypoints),
            first_keypoints(q, schedule.keypoints),
            (surfaces[a], surfaces[b]),
            hypotheses=schedule.hypotheses,
            refined=schedule.refined,
            structural=structural,
        )
        for rank, candidate in enumerate(candidates.ranked):
            T = candidate.refined.T_target_source
            scale = candidate.scale if rank < 2 else None
            information = candidate.refined.information
            yield Row(
                domain=unit.domain,
                unit=unit.seed,
                source=a,
                target=b,
                sensors=f"{scans[a].sensor} {scans[b].sensor}",
                round=number,
                overlap=shared,
                rank=rank,
                rotation_error=float(rotation_error_deg(T, T_true)) if same else float("nan"),
                translation_error=float(translation_error(T, T_true)) if same else float("nan"),
                degenerate=bool(candidate.degeneracy.kind),
                scale=scale.factor if scale else 1.0,
                scale_deviation=scale.deviation if scale else float("inf"),
                information=[*np.linalg.eigvalsh(information.matrix), float(information.pairs)],
                evidence=[math.nan if figure is None else float(figure) for figure in candidate.evidence],
                symmetric=same and _is_symmetry(_world_error(T, p, q, scans[a], scans[b]), symmetries),
            )


@lru_cache(maxsize=2)
def _symmetries(place: str) -> list[np.ndarray]:
    """Return the motions that bring equal parts of a site together; none of rooms and floors."""
    from wsdesc.datasets.synthetic.sites import SITES, build_site

    kind, seed = place.split()
    return build_site(kind, int(seed)).symmetries if kind in SITES else []


def _world_error(T: np.ndarray, p: Any, q: Any, source: Scan, target: Scan) -> np.ndarray:
    """Return the motion in the world by which a pose between two local frames is wrong."""
    T = T.copy()
    T[:3, 3] *= p.unit
    T_target_source = q.T_scan_local @ T @ inverse(p.T_scan_local)
    return np.asarray(target.T_world_scan @ T_target_source @ inverse(source.T_world_scan))


def _is_symmetry(motion: np.ndarray, symmetries: list[np.ndarray]) -> bool:
    from wsdesc.evaluation.metrics import rotation_error_deg, translation_error

    return any(
        rotation_error_deg(motion, S) < MAX_SYMMETRY_ERROR[0]
        and translation_error(motion, S) < MAX_SYMMETRY_ERROR[1]
        for S in symmetries
    )


def first_keypoints(description: Any, keypoints: int) -> Any:
    """Return a description with the first of its keypoints only."""
    return replace(
        description,
        descriptors=description.descriptors[:keypoints],
        frames=description.frames[:keypoints],
    )


def _work(job: tuple[Unit, Settings, float]) -> list[Row] | str:
    unit, settings, deadline = job
    if time.time() > deadline:
        return []
    import torch

    torch.set_num_threads(1)
    try:
        return label_unit(unit, settings)
    except Exception as error:  # one bad site must not end a run of many minutes
        return f"{unit.domain} {unit.seed}: {type(error).__name__}: {error}"


def list_units(arguments: argparse.Namespace) -> list[Unit]:
    """List all units, the domains in turn."""
    from wsdesc.datasets.synthetic import SITES

    domains = arguments.domains or [*SITES, "room", "floor"]
    units = []
    indoor = [
        Unit("indoor", start, folder)
        for folder in (sorted(arguments.indoor.iterdir()) if arguments.indoor else [])
        for start in range(0, len(list(folder.glob("cloud_bin_*.ply"))) - 3, INDOOR_WINDOW - 2)
    ]
    for number in range(-(-arguments.sites // len(domains))):
        units += [Unit(domain, arguments.first + number) for domain in domains]
        units += [indoor.pop(0)] if indoor else []
    return units + indoor


def save_rows(rows: list[Row], path: Path) -> None:
    """Write the columns of all rows as arrays."""
    columns = zip(*rows, strict=True)
    np.savez_compressed(path, **dict(zip(Row._fields, map(np.array, columns), strict=True)))


def main(arguments: argparse.Namespace) -> None:
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    deadline = time.time() + 60 * arguments.minutes
    jobs = [(unit, Settings.of(arguments), deadline) for unit in list_units(arguments)]
    rows: list[Row] = []
    failed: list[str] = []
    done = 0
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        for result in pool.imap_unordered(_work, jobs):
            if isinstance(result, str):
                failed.append(result)
                print(result, file=sys.stderr, flush=True)
            elif result:
                rows += result
                done += 1
                if done % 5 == 0:
                    save_rows(rows, arguments.out)
                    print(f"{done} of {len(jobs)} units, {len(rows)} poses", file=sys.stderr, flush=True)
    if not rows:
        raise InputError("no pose was labelled: allow more --minutes")
    save_rows(rows, arguments.out)
    print_machine()
    print(f"{done} of {len(jobs)} units, {len(rows)} poses, {len(failed)} units failed: {arguments.out}")


def parser() -> argparse.ArgumentParser:
    parser = make_parser("label_poses", __doc__)
    parser.add_argument("--sites", type=int, default=400, help="number of sites (default: %(default)s)")
    parser.add_argument("--first", type=int, default=50_000, help="seed of the first site of each domain")
    parser.add_argument("--domains", nargs="*", help="kinds of sites (default: all)")
    parser.add_argument(
        "--rounds",
        type=int,
        nargs="*",
        choices=list(ROUNDS),
        default=list(ROUNDS),
        help="numbers of rounds (default: all)",
    )
    parser.add_argument(
        "--refined", type=int, help=f"refined hypotheses of the last round (default: {ROUNDS[LAST].refined})"
    )
    parser.add_argument(
        "--viewpoints", choices=("detected", "none"), default="detected", help="none: without free space"
    )
    parser.add_argument("--indoor", type=Path, help="folder with scenes of scans and poses")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--network", help="device of the descriptors (default: that of --device)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one per core)")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no new site after this time")
    parser.add_argument("-o", "--out", type=Path, default=Path("poses.npz"), help="default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
