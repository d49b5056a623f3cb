"""Register LiDAR scans of courtyards with 4-fold repetition that overlap little, with and without viewpoints.

    python -m benchmarks.courtyards --sites 120 -o courtyards.npz
    python -m benchmarks.courtyards --show courtyards.npz

Each synthetic courtyard is scanned from several positions by one spinning LiDAR with 16 to 128 lines. The
pairs with a true overlap of 0.1 to 0.3 are registered in the rounds of `wsdesc.register`: with given
viewpoints, with the viewpoints that were detected, and without any.

Writes the poses in the format of `label_poses`. Prints a table for the shipped confidence: the share of right
poses (off by less than 5° and 8 resolutions), and precision and recall of `success`. Two scans from equal
stations have rows of their own, such as those from the middle of two sides of the court. At a wrong pose they
fit as well as two scans from one station at the right pose.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.calibrate import answer, read_groups, summarise
from benchmarks.common import make_parser, print_machine, print_rows, run_command
from benchmarks.label_poses import Row, Scan, Unit, describe_scans, label_pair, save_rows
from wsdesc.alignment.confidence import ConfidenceModel

SENSORS = ("lidar16", "lidar32", "lidar64", "lidar128")
OVERLAPS = (0.1, 0.3)
FOLD = 4
SCANS = 6  # per site
EQUAL = 2.0  # metres between two stations, after a symmetry of the site


def label_site(seed: int, device: str) -> list[Row]:
    """Label the poses of pairs of one courtyard with little overlap; none if it does not repeat by 90°."""
    from wsdesc.alignment.surface import make_surface
    from wsdesc.datasets.synthetic import site_scans
    from wsdesc.datasets.synthetic.sites import build_site
    from wsdesc.descriptor.preparation import clean_scan

    site = build_site("courtyard", seed)
    if site.fold != FOLD:
        return []
    made = site_scans("courtyard", seed, SCANS, SENSORS[seed % len(SENSORS)], OVERLAPS)
    scans = [Scan(f"courtyard {seed}", s.sensor, s.points, s.T_world_scan) for s in made]
    given = describe_scans(scans, device, device, viewpoint=(0.0, 0.0, 0.0))
    none = [replace(description, range_image=None) for description in given]
    has_viewpoint = [clean_scan(scan.points).viewpoint is not None for scan in scans]
    detected = [a if is_detected else b for is_detected, a, b in zip(has_viewpoint, given, none, strict=True)]
    surfaces = [make_surface(description.points) for description in given]
    rows: list[Row] = []
    for a, b in itertools.combinations(range(len(scans)), 2):
        labelled = {}
        stations = "equal" if _are_equal(scans[a], scans[b], site.symmetries) else "other"
        for case, described in (("given", given), ("none", none), ("detected", detected)):
            same = {(True, True): "given", (False, False): "none"}.get((has_viewpoint[a], has_viewpoint[b]))
            if case == "detected" and same:
                labelled[case] = [row._replace(domain=f"{case}, {stations}") for row in labelled[same]]
            else:
                unit = Unit(f"{case}, {stations}", seed)
                labelled[case] = list(label_pair(unit, scans, described, surfaces, a, b, OVERLAPS))
        rows += itertools.chain.from_iterable(labelled.values())
    return rows


def _are_equal(a: Scan, b: Scan, symmetries: list[np.ndarray]) -> bool:
    """Return whether a symmetry of the site moves the station of one scan to that of the other."""
    start, end = a.T_world_scan[:, 3], b.T_world_scan[:3, 3]
    return any(np.linalg.norm((S @ start)[:3] - end) < EQUAL for S in symmetries)


def show(path: Path) -> None:
    """Print the table of labelled poses, with the shipped confidence."""
    answers = answer(read_groups(path), ConfidenceModel.load())
    rows = [["viewpoints", "stations", "R (pairs)", "successes", "precision", "recall"]]
    for case in ("given", "detected", "none"):
        for stations in ("other", "equal"):
            of_case = [a for a in answers if a.domain == f"{case}, {stations}"]
            rows += [[case, stations, *summarise(of_case)]] if of_case else []
        rows.append([case, "all", *summarise([a for a in answers if a.domain.startswith(case)])])
    print_rows(rows)


def _work(job: tuple[int, str, float]) -> list[Row]:
    seed, device, deadline = job
    if time.time() > deadline:
        return []
    import torch

    torch.set_num_threads(1)
    return label_site(seed, device)


def main(arguments: argparse.Namespace) -> None:
    """Label the poses of the pairs of all sites, or show the table of an earlier run."""
    if arguments.show:
        show(arguments.show)
        return
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    deadline = time.time() + 60 * arguments.minutes
    seeds = range(arguments.first, arguments.first + arguments.sites)
    rows: list[Row] = []
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        for of_site in pool.imap_unordered(_work, [(seed, arguments.device, deadline) for seed in seeds]):
            rows += of_site
            if of_site:
                save_rows(rows, arguments.out)
    print_machine()
    show(arguments.out)


if __name__ == "__main__":
    parser = make_parser("courtyards", __doc__)
    parser.add_argument(
        "--sites", type=int, default=120, help="courtyards; those without 4-fold repetition are skipped"
    )
    parser.add_argument("--first", type=int, default=90_000, help="first seed (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one per core)")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no new site after this time")
    out = Path("courtyards.npz")
    parser.add_argument("-o", "--out", type=Path, default=out, help="labelled poses (default: %(default)s)")
    parser.add_argument("--show", type=Path, help="labelled poses of an earlier run; registers nothing")
    sys.exit(run_command(parser, main))
