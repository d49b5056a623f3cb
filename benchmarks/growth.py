"""Measure time and memory of each phase of large reconstructions.

    python -m benchmarks.growth scans 60 [--jobs 2] [--sites 6] [--work DIR]
    python -m benchmarks.growth simulate 10000 [--keypoints 2000] [--only places|graph]

`scans` makes synthetic sites (rooms, floors, streets and courtyards in turn), scales each so that all have
the same working resolution, moves and shuffles the scans, and reconstructs them in one run. Prints the time
of each phase and per scan or pair, the memory, and the errors as in `benchmarks.reconstruct`. With --work, a
stopped run continues; its times then lack the finished part.

`simulate` measures what does not grow linearly: signatures of simulated descriptors, selection of pairs, and
the pose graph with simulated edges, a tenth of them wrong. Sites have 50 scans.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import make_parser, print_machine, print_table, run_command
from benchmarks.places import KINDS, make_site
from benchmarks.posegraph import RADIUS, simulate
from benchmarks.reconstruct import PlacedScan, ReconstructionRun, report_rows, working_folder, write_shuffled
from wsdesc.cloud.units import INDOOR_RESOLUTION, measure
from wsdesc.core.executors import choose_executor
from wsdesc.core.progress import Advance
from wsdesc.reconstruction.options import ReconstructOptions
from wsdesc.reconstruction.pair_selection import first_pairs
from wsdesc.reconstruction.pipeline import reconstruct
from wsdesc.reconstruction.placement import place_scans
from wsdesc.reconstruction.places import KEYPOINTS, Places
from wsdesc.reconstruction.pose_graph import Edge
from wsdesc.reconstruction.signature import aggregate, codebook

SCANS_PER_SITE = 10
SIMULATED_PER_SITE = 50
RESOLUTION = INDOOR_RESOLUTION
NEIGHBOURS = ReconstructOptions().neighbours


_HEADER = f"{'phase':<36}{'items':>8}{'s':>9}{'core s':>9}{'ms per item':>13}{'peak GiB so far':>17}"


class Phases:
    """Progress hook that prints seconds, core seconds and memory of each phase when it ends."""

    def __init__(self) -> None:
        print(_HEADER, flush=True)

    @contextmanager
    def __call__(self, name: str, total: int) -> Iterator[Advance]:
        wall, core = time.perf_counter(), _core_seconds()
        yield lambda items: None
        wall, core = time.perf_counter() - wall, _core_seconds() - core
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


def run_scans(arguments: argparse.Namespace) -> None:
    """Reconstruct many sites in one run."""
    sites = arguments.sites or max(1, arguments.count // SCANS_PER_SITE)
    share, left = divmod(arguments.count, sites)
    print(f"{arguments.count} scans of {sites} sites, {arguments.jobs} processes")
    phases = Phases()
    with working_folder(arguments.work) as work:
        folder = work / "scans"
        folder.mkdir(exist_ok=True)
        with phases("make synthetic scans", arguments.count):
            scans = [s for k in range(sites) for s in scaled_site(k, share + (k < left), arguments.seed)]
            truth = write_shuffled(folder, scans, arguments.seed)
        del scans
        start = time.perf_counter(), time.process_time()
        with closing(choose_executor(arguments.jobs)) as executor:
            model = work / "model"
            result = reconstruct(folder, model, resolution=RESOLUTION, executor=executor, progress=phases)
        result.save(model, progress=phases)
        seconds, core = time.perf_counter() - start[0], time.process_time() - start[1]
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        core += children.ru_utime + children.ru_stime
        peak = max(_peak(), children.ru_maxrss / 2**20)
        print_table(report_rows(truth, ReconstructionRun(result, seconds, core, peak)))


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
    scans.add_argument("--work", type=Path, help="folder for scans and model; a stopped run continues there")
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
