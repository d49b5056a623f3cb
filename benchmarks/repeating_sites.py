"""Reconstruct many synthetic sites with repetitive structure; count placed scans and wrong edges by kind.

    python -m benchmarks.repeating_sites --work DIR [--device cuda] [--processes 16] [--kinds building …]

23 buildings, 20 courtyards, 4 floors, 3 stairwells, 2 warehouses and 2 streets, of 9 to 24 scans each, by
LiDAR with 16 to 128 lines and by terrestrial scanners. A quarter of the scans are from counterparts of
earlier positions: equal rooms, or equal sides of a court. Scans are shuffled and rotated at random, and of
three buildings also shifted, so that viewpoints must be searched. Settings were chosen on seeds whose
remainder by 3 is 0 or 1; the others are held out.

Each finished site is a line of DIR/records.jsonl, and the same command continues a stopped run. Prints, for
each kind and both parts of the seeds: scans, placed and right ones, accepted and wrong edges.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import make_parser, print_machine, print_rows, run_command
from benchmarks.known_scans import count_right, count_wrong, rotated, write_shuffled
from wsdesc import reconstruct
from wsdesc.core.gpu_sharing import share_gpu
from wsdesc.datasets.synthetic import site_scans
from wsdesc.datasets.synthetic.floor import floor_scans
from wsdesc.evaluation.provenance import machine

_POINTS = 50_000  # per scan, chosen at random
_LIDARS = ("lidar64", "lidar32", "lidar16", "lidar128", "terrestrial")
COLUMNS = ("scans", "placed", "right", "accepted", "wrong")


class Site(NamedTuple):
    """A synthetic site and its scans."""

    kind: str
    seed: int
    scans: int
    sensor: str | None
    overlaps: tuple[float, float] = (0.2, 0.9)
    moved: bool = False  # shifted, too

    @property
    def name(self) -> str:
        return f"{self.kind} {self.seed}"

    @property
    def held_out(self) -> bool:
        """True if no setting was chosen on this site."""
        return self.seed % 3 == 2


def _of(kind: str, first: int, count: int, scans: int, lidars: int, **options: Any) -> list[Site]:
    return [Site(kind, first + k, scans, _LIDARS[k % lidars], **options) for k in range(count)]


SITES = [
    *_of("building", 9300, 14, 16, 5),
    *_of("courtyard", 9400, 14, 16, 4),
    *(Site("floor", 9500 + k, 9, None) for k in range(4)),
    *_of("building", 9320, 3, 16, 5, moved=True),
    *_of("stairwell", 9600, 3, 14, 5),
    *_of("warehouse", 9700, 2, 14, 5),
    *_of("street", 9800, 2, 12, 4),
    *_of("building", 9340, 6, 24, 5, overlaps=(0.3, 0.8)),
    *_of("courtyard", 9440, 6, 16, 4),
]


def run_site(site: Site, device: str, deadline: float) -> dict[str, Any] | None:
    """Reconstruct a site, and return its record; None after the deadline."""
    if time.time() > deadline:
        return None
    import torch

    torch.set_num_threads(1)
    start = time.perf_counter()
    if site.kind == "floor":
        made = floor_scans(site.seed, site.scans)
    else:
        made = site_scans(site.kind, site.seed, site.scans, site.sensor, site.overlaps)
    rng = np.random.default_rng(0)
    clouds = [np.asarray(scan.points, np.float64) for scan in made]
    clouds = [p[rng.permutation(len(p))[:_POINTS]] if len(p) > _POINTS else p for p in clouds]
    scans = [(site.kind, scan.T_world_scan, p) for scan, p in zip(made, clouds, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        kept = scans if site.moved else rotated(scans, site.seed)
        truth = write_shuffled(Path(folder), kept, site.seed, moved=site.moved)
        result = reconstruct(folder, device=device)
    accepted = [edge for edge in result.edges if edge.accepted]
    figures = (
        len(truth),
        len(result.T_world_scan),
        count_right(truth, result.components, result.T_world_scan),
        len(accepted),
        count_wrong(truth, accepted),
    )
    record = {"site": site.name, **dict(zip(COLUMNS, figures, strict=True))}
    record |= {"frames": [len(names) for names in result.components]}
    return record | {"seconds": round(time.perf_counter() - start, 1), "machine": machine()}


def main(arguments: argparse.Namespace) -> None:
    """Reconstruct all sites that have no record, and print the totals."""
    print_machine()
    arguments.work.mkdir(parents=True, exist_ok=True)
    file = arguments.work / "records.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    sites = [site for site in SITES if not arguments.kinds or site.kind in arguments.kinds]
    finished = {record["site"] for record in records}
    for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    with ExitStack() as stack:
        if arguments.device.startswith("cuda") and (sharing := share_gpu()):
            stack.callback(sharing.close)
            os.environ.update(sharing.environment)
        pool = stack.enter_context(ProcessPoolExecutor(arguments.processes, get_context("spawn")))
        deadline = time.time() + 60 * arguments.minutes
        left = [site for site in sites if site.name not in finished]
        for future in [pool.submit(run_site, site, arguments.device, deadline) for site in left]:
            if record := future.result():
                records.append(record)
                with file.open("a") as lines:
                    lines.write(json.dumps(record) + "\n")
                print(json.dumps(record), flush=True)
    print_rows(table(sites, {record["site"]: record for record in records}))


def table(sites: list[Site], records: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Return a row for each kind and part of the seeds."""
    totals: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * (1 + len(COLUMNS)))
    for site in sites:
        if record := records.get(site.name):
            part = "held out" if site.held_out else "chosen on"
            for row in ((part, site.kind), (part, "all")):
                own = [1, *(record[column] for column in COLUMNS)]
                totals[row] = [a + b for a, b in zip(totals[row], own, strict=True)]
    rows = [["seeds", "kind", "sites", *COLUMNS]]
    return rows + [[*key, *map(str, values)] for key, values in sorted(totals.items())]


if __name__ == "__main__":
    parser = make_parser("repeating_sites", __doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder of the records")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="sites at a time (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no new site after this time")
    parser.add_argument("--kinds", nargs="+", help="kinds of sites (default: all)")
    sys.exit(run_command(parser, main))
