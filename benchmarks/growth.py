"""Measure time and memory of each phase of large reconstructions.

    python -m benchmarks.growth scans 60 --work DIR [--jobs 2] [--sites 6]
    python -m benchmarks.growth simulate 10000 [--keypoints 2000] [--only places|graph]

`scans` makes synthetic sites (rooms, floors, streets and courtyards in turn), scales each so that all have
the same working resolution, moves and shuffles the scans, and reconstructs them in one run. Prints the time
of each phase and per scan or pair, the memory of all processes together, placed scans, frames that join
sites, and wrong edges, also for each kind of site; the same is in DIR/record.json. Sites stay in DIR/sites.
The same command continues a stopped run; its times then lack the finished part, and the record says so.

`simulate` measures what does not grow linearly: signatures of simulated descriptors, selection of pairs, and
the pose graph with simulated edges, a tenth of them wrong. Sites have 50 scans.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import make_parser, print_machine, print_rows, print_table, run_command
from benchmarks.known_scans import (
    TRUTH,
    KnownScan,
    PlacedScan,
    count_wrong,
    load_truth,
    make_site,
    save_truth,
    write_shuffled,
)
from benchmarks.memory import MemoryMonitor
from benchmarks.places import KINDS
from benchmarks.posegraph import RADIUS, simulate
from wsdesc.cloud.units import INDOOR_RESOLUTION, measure
from wsdesc.core.atomic import atomic_write
from wsdesc.core.executors import choose_executor
from wsdesc.core.progress import Advance
from wsdesc.evaluation.provenance import machine
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.options import JOURNAL, ReconstructOptions
from wsdesc.reconstruction.pair_selection import first_pairs
from wsdesc.reconstruction.pipeline import reconstruct
from wsdesc.reconstruction.placement import place_scans
from wsdesc.reconstruction.places import KEYPOINTS, Places
from wsdesc.reconstruction.pose_graph import Edge
from wsdesc.reconstruction.result import Reconstruction
from wsdesc.reconstruction.signature import aggregate, codebook

SCANS_PER_SITE = 10
SIMULATED_PER_SITE = 50
RESOLUTION = INDOOR_RESOLUTION
NEIGHBOURS = ReconstructOptions().neighbours


_HEADER = f"{'phase':<36}{'items':>8}{'s':>9}{'core s':>9}{'ms per item':>13}{'peak GiB so far':>17}"


class Phases:
    """Progress hook that prints seconds, core seconds and memory of each phase when it ends."""

    def __init__(self) -> None:
        self.seconds: dict[str, tuple[int, float]] = {}  # items and seconds, by phase
        print(_HEADER, flush=True)

    @contextmanager
    def __call__(self, name: str, total: int) -> Iterator[Advance]:
        wall, core = time.perf_counter(), _core_seconds()
        yield lambda items: None
        wall, core = time.perf_counter() - wall, _core_seconds() - core
        items, before = self.seconds.get(name, (0, 0.0))
        self.seconds[name] = (items + total, before + wall)
        each = f"{1000 * wall / total:.1f}" if total else ""
        row = f"{name:<36}{total or '':>8}{wall:>9.1f}{core:>9.1f}{each:>13}{_peak():>17.2f}"
        print(row, flush=True)


def _core_seconds() -> float:
    """Return the core time of this process; that of workers is only known when they end."""
    return time.process_time()


def _peak() -> float:
    """Return the peak memory of this process in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def scaled_site(number: int, count: int, seed: int) -> list[PlacedScan]:
    """Scan a site, and scale it so that its working resolution is `RESOLUTION`."""
    kind = KINDS[number % len(KINDS)]
    scans = make_site(kind, seed + number, count)
    clouds = [np.asarray(scan.points, np.float64) for scan in scans]
    factor = RESOLUTION / measure(*clouds).resolution
    placed: list[PlacedScan] = []
    for scan, cloud in zip(scans, clouds, strict=True):
        T = scan.T_world_scan.copy()
        T[:3, 3] *= factor
        placed.append((f"{kind} {number}", T, factor * cloud))
    return placed


def make_sites(work: Path, count: int, sites: int, seed: int, jobs: int) -> None:
    """Scan the sites that are not in the folder yet, and write all scans, moved and shuffled."""
    share, left = divmod(count, sites)
    folder = work / "sites"
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [(folder / f"{k}-{share + (k < left)}.npz", k, share + (k < left), seed) for k in range(sites)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        list(pool.map(_make_site, [task for task in tasks if not task[0].exists()]))
    scans: list[PlacedScan] = []
    for path, *_ in tasks:
        with np.load(path) as arrays:
            points = np.split(arrays["points"], np.cumsum(arrays["lengths"])[:-1])
            scans += zip([str(arrays["place"])] * len(points), arrays["T"], points, strict=True)
    (work / "scans").mkdir(exist_ok=True)
    truth = write_shuffled(work / "scans", scans, seed)
    save_truth(work / TRUTH, truth)


def _make_site(task: tuple[Path, int, int, int]) -> None:
    path, number, count, seed = task
    scans = scaled_site(number, count, seed)
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            place=scans[0][0],
            T=np.stack([T for _, T, _ in scans]),
            lengths=[len(points) for *_, points in scans],
            points=np.concatenate([points for *_, points in scans]),
        )


def run_scans(arguments: argparse.Namespace) -> None:
    """Reconstruct many sites in one run."""
    work, count, jobs = arguments.work, arguments.count, arguments.jobs
    sites = arguments.sites or max(1, count // SCANS_PER_SITE)
    print(f"{count} scans of {sites} sites, {jobs} processes")
    phases, model = Phases(), work / "model"
    continued = (model / JOURNAL).exists()
    with phases("make synthetic scans", count):
        if not (work / TRUTH).exists():
            maker = get_context("spawn").Process(
                target=make_sites, args=(work, count, sites, arguments.seed, jobs)
            )  # so that its memory does not count
            maker.start()
            maker.join()
    truth = load_truth(work / TRUTH)
    start = time.perf_counter()
    with MemoryMonitor() as memory, closing(choose_executor(jobs)) as executor:
        result = reconstruct(work / "scans", model, resolution=RESOLUTION, executor=executor, progress=phases)
        seconds = time.perf_counter() - start
    result.save(model, progress=phases, merged=None)
    accepted = [edge for edge in result.edges if edge.accepted]
    joined = sum(len({truth[name].place for name in frame}) > 1 for frame in result.components)
    record = {"scans": count, "sites": sites, "jobs": jobs, "machine": machine(), "continued": continued}
    record |= {"seconds": seconds, "gigabytes": memory.peak, "phases": phases.seconds}
    record |= {"placed": len(result.T_world_scan), "frames": [len(frame) for frame in result.components]}
    record |= {"frames_joining_sites": joined, "pairs": len(result.edges)}
    record |= {"accepted": len(accepted), "wrong": count_wrong(truth, accepted)}
    kinds = rows_of_kinds(truth, result, accepted)
    (work / "record.json").write_text(json.dumps(record | {"kinds": kinds}, indent=1))
    print_table([(name, str(value)) for name, value in record.items()])
    print_rows(kinds)


def rows_of_kinds(
    truth: dict[str, KnownScan], result: Reconstruction, accepted: Sequence[EdgeResult]
) -> list[list[str]]:
    """Count scans and edges for each kind of site; an edge that joins two sites counts for its source's."""

    def kind(name: str) -> str:
        return truth[name].place.split()[0]

    scans, placed = Counter(map(kind, truth)), Counter(map(kind, result.T_world_scan))
    rows = [["kind", "scans", "placed", "accepted edges", "wrong"]]
    for one in KINDS:
        edges = [edge for edge in accepted if kind(edge.source) == one]
        rows.append([one, *map(str, (scans[one], placed[one], len(edges), count_wrong(truth, edges)))])
    return rows


class SimulatedDescriptors(Sequence[torch.Tensor]):
    """Descriptors (K, 32) of scans, made at each access: clusters of their site and common ones."""

    def __init__(self, count: int, keypoints: int) -> None:
        self.count, self.keypoints = count, keypoints
        self.common = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, k):  # type: ignore[no-untyped-def]
        if not 0 <= k < self.count:
            raise IndexError(k)
        site = torch.Generator().manual_seed(1 + k // SIMULATED_PER_SITE)
        clusters = torch.cat([self.common, torch.randn(64, 32, generator=site)])
        own = torch.Generator().manual_seed(10**6 + k)
        seen = clusters[torch.randint(len(clusters), (self.keypoints,), generator=own)]
        noisy = seen + 0.4 * torch.randn(self.keypoints, 32, generator=own)
        return torch.nn.functional.normalize(noisy, dim=1)


def simulated_sites(count: int, wrong: float) -> list[list[Edge]]:
    """Simulate pairs of sites that no edge connects."""
    pairs: list[list[Edge]] = []
    for first in range(0, count, SIMULATED_PER_SITE):
        size = min(SIMULATED_PER_SITE, count - first)
        _, own = simulate(size, wrong, np.random.default_rng(first))
        pairs += [
            [edge._replace(source=edge.source + first, target=edge.target + first) for edge in candidates]
            for candidates in own
        ]
    return pairs


def run_simulation(arguments: argparse.Namespace) -> None:
    """Measure signatures, pair selection and pose graph."""
    phases = Phases()
    if arguments.only != "graph":
        simulate_places(arguments.count, arguments.keypoints, phases)
    if arguments.only != "places":
        simulate_graph(arguments.count, arguments.wrong, phases)


def simulate_places(count: int, keypoints: int, phases: Phases) -> None:
    """Measure signatures and the selection of pairs."""
    descriptors = SimulatedDescriptors(count, keypoints)
    with phases("simulate descriptors, once", count):
        for k in range(count):
            descriptors[k]
    positions = torch.rand(KEYPOINTS, 3, generator=torch.Generator().manual_seed(0))
    features = []
    with phases("signatures, with simulation twice", count):
        centres = codebook(descriptors, 0)
        aggregates = torch.empty(count, centres.numel())
        for k, own in enumerate(descriptors):
            aggregates[k] = aggregate(own, centres)
            features.append((own[:KEYPOINTS].clone(), positions[: len(own)]))
    places = Places(aggregates, features, centres)
    with phases("select pairs", count):
        selected = first_pairs(places.signatures, NEIGHBOURS, None, places.score_pairs)
    same = sum(i // SIMULATED_PER_SITE == j // SIMULATED_PER_SITE for i, j in selected)
    print(f"{len(selected)} pairs selected, {100 * same / len(selected):.1f} % of them of one site")


def simulate_graph(count: int, wrong: float, phases: Phases) -> None:
    """Measure disambiguation, rejection and pose graph."""
    pairs = simulated_sites(count, wrong)
    with phases("place scans", len(pairs)):
        placement = place_scans(pairs, np.full(count, RADIUS))
    sizes = [len(scans) for scans in placement.graph.components]
    print(
        f"{len(pairs)} pairs place {count} scans in {len(sizes)} frames of {min(sizes)} to {max(sizes)} scans"
    )


def main(arguments: argparse.Namespace) -> None:
    print_machine()
    arguments.run(arguments)


def parser() -> argparse.ArgumentParser:
    parser = make_parser("growth", __doc__)
    commands = parser.add_subparsers(required=True)
    scans = commands.add_parser("scans", help="synthetic scans from end to end")
    scans.add_argument("count", type=int, help="number of scans")
    scans.add_argument("--sites", type=int, help="number of sites (default: one for ten scans)")
    scans.add_argument("--seed", type=int, default=700, help="seed of the sites (default: %(default)s)")
    scans.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    scans.add_argument("--work", type=Path, required=True, help="folder for sites, scans and model")
    scans.set_defaults(run=run_scans)
    simulated = commands.add_parser("simulate", help="signatures, pair selection and pose graph")
    simulated.add_argument("count", type=int, help="number of scans")
    simulated.add_argument("--keypoints", type=int, default=2000, help="per scan (default: %(default)s)")
    simulated.add_argument("--wrong", type=float, default=0.1, help="share of wrong pairs")
    simulated.add_argument("--only", choices=("places", "graph"), help="one half of the work")
    simulated.set_defaults(run=run_simulation)
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
