"""Measure place recognition: which share of the overlapping pairs is among the pairs that are registered.

    python -m benchmarks.places --sites 32 --scans 10 [--seed 500] [--keypoints 500] [--work DIR]

Sites are synthetic: rooms, floors with repetitive structure, streets and courtyards in turn. Each kind is
described at its own working resolution, and every scan is compared with the scans of all sites. A pair
overlaps if each scan has 20 % of its points within three resolutions of the other.

Prints pairs per scan, and the share of overlapping pairs among them, for all kinds and for each. Rows are
numbers of similar scans that each scan is registered with. The selections are

- by signatures alone,
- by matches of a shortlist,
- with neighbours of neighbours, as `wsdesc reconstruct` selects pairs,
- with the pairs that it adds after a first round, where accepted edges connect scans. Here edges of 30 %
  overlap count as accepted.

Prepared scans stay in DIR, where a stopped run continues.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from benchmarks.common import add_model_option, make_parser, print_machine, print_rows, run_command
from benchmarks.known_scans import make_site
from wsdesc.cloud.clean import clean_cloud
from wsdesc.cloud.convert import as_cloud
from wsdesc.cloud.units import INDOOR_RESOLUTION, measure
from wsdesc.core.atomic import atomic_write
from wsdesc.core.geometry import transform
from wsdesc.descriptor.describe import load_model
from wsdesc.descriptor.preparation import prepare_scan
from wsdesc.reconstruction.pair_selection import SHORTLIST, best_pairs, first_pairs
from wsdesc.reconstruction.places import Places
from wsdesc.reconstruction.pose_graph import Pair
from wsdesc.reconstruction.signature import aggregate, codebook, similar_pairs

MIN_OVERLAP = 0.2  # share of the points of both scans
ACCEPTED = 0.3  # overlap of pairs whose edges are accepted
NEAR = 3.0  # resolutions between points of an overlap
NEIGHBOURS = (4, 6, 8, 10, 14, 20)


KINDS = ("room", "floor", "street", "courtyard")


class SiteData(NamedTuple):
    """Described scans of a site."""

    descriptors: list[np.ndarray]  # (K, C) of each scan
    keypoints: list[np.ndarray]  # (K, 3) of each scan, in model metres
    overlap: np.ndarray  # (N, N) smaller share of the two scans that overlaps

    def save(self, path: Path) -> None:
        lengths = [len(d) for d in self.descriptors]
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                lengths=lengths,
                descriptors=np.concatenate(self.descriptors).astype(np.float32),
                keypoints=np.concatenate(self.keypoints).astype(np.float32),
                overlap=self.overlap,
            )

    @classmethod
    def load(cls, path: Path) -> SiteData:
        with np.load(path) as arrays:
            ends = np.cumsum(arrays["lengths"])[:-1]
            return cls(
                np.split(arrays["descriptors"], ends),
                np.split(arrays["keypoints"], ends),
                arrays["overlap"],
            )


def describe_site(kind: str, seed: int, count: int, keypoints: int, model: str) -> SiteData:
    """Scan and describe a site, each scan in its own frame, and measure all overlaps."""
    network, name = load_model(model, "cpu")
    scans = make_site(kind, seed, count)
    clouds = [np.asarray(scan.points, np.float64) for scan in scans]
    resolution = measure(*clouds).resolution
    descriptors, places, points = [], [], []
    for scan, cloud in zip(scans, clouds, strict=True):
        prepared = prepare_scan(clean_cloud(as_cloud(cloud), "none"), resolution, name, 0, keypoints)
        described = prepared.extend(network, keypoints)
        descriptors.append(described.descriptors.numpy())
        places.append(described.keypoints.numpy())
        own = described.points.double().numpy() * resolution / INDOOR_RESOLUTION
        points.append(transform(transform(own, described.T_scan_local), scan.T_world_scan))
    return SiteData(descriptors, places, overlaps(points, NEAR * resolution))


def overlaps(points: list[np.ndarray], distance: float) -> np.ndarray:
    """Return the smaller share (N, N) of points of two scans within a distance of the other."""
    trees = [cKDTree(cloud) for cloud in points]
    share = np.zeros((len(points), len(points)))
    for a, b in combinations(range(len(points)), 2):
        shares = [
            np.isfinite(trees[j].query(points[i][::7], distance_upper_bound=distance)[0]).mean()
            for i, j in ((a, b), (b, a))
        ]
        share[a, b] = share[b, a] = min(shares)
    return share


class Sites(NamedTuple):
    """Scans of many sites."""

    descriptors: list[torch.Tensor]
    keypoints: list[torch.Tensor]
    kind: list[str]
    overlap: dict[Pair, float]

    @property
    def true(self) -> set[Pair]:
        """Pairs that overlap."""
        return {pair for pair, share in self.overlap.items() if share >= MIN_OVERLAP}

    @classmethod
    def of(cls, sites: list[tuple[str, SiteData]]) -> Sites:
        descriptors, keypoints, kinds, overlap = [], [], [], dict[Pair, float]()
        for kind, site in sites:
            start = len(descriptors)
            descriptors += [torch.from_numpy(d.copy()) for d in site.descriptors]
            keypoints += [torch.from_numpy(k.copy()) for k in site.keypoints]
            kinds += [kind] * len(site.descriptors)
            pairs = combinations(range(len(site.descriptors)), 2)
            overlap |= {(start + i, start + j): float(site.overlap[i, j]) for i, j in pairs}
        return cls(descriptors, keypoints, kinds, overlap)

    def recall(self, pairs: set[Pair], kind: str | None = None) -> float:
        """Return the share of overlapping pairs, of one kind of site or of all, among the pairs."""
        own = {pair for pair in self.true if kind in (None, self.kind[pair[0]])}
        return len(own & pairs) / max(1, len(own))


def prepare(arguments: argparse.Namespace, folder: Path) -> Sites:
    """Describe all sites, or read those that an earlier run described."""
    sites = []
    for number in range(arguments.sites):
        kind, seed = KINDS[number % len(KINDS)], arguments.seed + number
        path = folder / f"{kind}-{seed}-{arguments.scans}-{arguments.keypoints}.npz"
        if not path.exists():
            describe_site(kind, seed, arguments.scans, arguments.keypoints, arguments.model).save(path)
        sites.append((kind, SiteData.load(path)))
    return Sites.of(sites)


def table(places: Sites, select: Callable[[int], set[Pair]]) -> list[list[str]]:
    """Return rows of recall over the number of neighbours."""
    rows = [["neighbours", "pairs per scan", "all", *KINDS]]
    for neighbours in NEIGHBOURS:
        pairs = select(neighbours)
        shares = [places.recall(pairs, kind) for kind in (None, *KINDS)]
        count = len(pairs) / len(places.kind)
        rows.append([str(neighbours), f"{count:.1f}", *(f"{100 * share:.1f}" for share in shares)])
    return rows


def with_loops(places: Sites, pairs: set[Pair]) -> set[Pair]:
    """Add the overlapping pairs inside frames, if edges with `ACCEPTED` overlap connect scans."""
    edges = [pair for pair in pairs if places.overlap.get(pair, 0.0) >= ACCEPTED]
    rows, columns = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    shape = (len(places.kind), len(places.kind))
    _, frame = connected_components(coo_array((np.ones(len(rows)), (rows, columns)), shape=shape), False)
    return pairs | {(i, j) for i, j in places.true if frame[i] == frame[j]}


def main(arguments: argparse.Namespace) -> None:
    print_machine()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        sites = prepare(arguments, folder)
    print(f"{arguments.sites} sites, {len(sites.kind)} scans, {len(sites.true)} overlapping pairs")
    centres = codebook(sites.descriptors, 0)
    aggregates = torch.stack([aggregate(d, centres) for d in sites.descriptors])
    features = list(zip(sites.descriptors, sites.keypoints, strict=True))
    places = Places(aggregates, features, centres)
    scored = dict[Pair, float]()
    start = time.process_time()

    def score(pairs: Sequence[Pair]) -> np.ndarray:
        new = [pair for pair in pairs if pair not in scored]
        scored.update(zip(new, places.score_pairs(new).tolist(), strict=True))
        return np.array([scored[pair] for pair in pairs])

    def by_matches(nearest: int) -> set[Pair]:
        shortlist = similar_pairs(places.signatures, SHORTLIST * nearest)
        return set(best_pairs(shortlist, score(shortlist), nearest))

    def select(nearest: int) -> set[Pair]:
        return set(first_pairs(places.signatures, nearest, None, score))

    print("by signatures")
    print_rows(table(sites, lambda nearest: set(similar_pairs(places.signatures, nearest))))
    print("by matches of a shortlist that signatures give")
    print_rows(table(sites, by_matches))
    print(f"{1000 * (time.process_time() - start) / len(scored):.2f} ms of a core per pair of the shortlist")
    print("the same, with neighbours of neighbours, as wsdesc reconstruct selects pairs")
    print_rows(table(sites, select))
    print(f"the same, with loops through edges of {ACCEPTED:.0%} overlap")
    print_rows(table(sites, lambda nearest: with_loops(sites, select(nearest))))


def parser() -> argparse.ArgumentParser:
    parser = make_parser("places", __doc__)
    parser.add_argument("--sites", type=int, default=32, help="number of sites (default: %(default)s)")
    parser.add_argument("--scans", type=int, default=10, help="scans per site (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=500, help="seed of the first site (default: %(default)s)")
    parser.add_argument("--keypoints", type=int, default=500, help="per scan (default: %(default)s)")
    add_model_option(parser)
    parser.add_argument("--work", type=Path, help="folder for described scans")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
