"""Which pairs of scans `reconstruct` registers, and what registration found of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wsdesc.alignment.observability import Information
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.executors import Job, Result
from wsdesc.reconstruction.disambiguation import LEAST
from wsdesc.reconstruction.jobs import described
from wsdesc.reconstruction.pose_graph import Edge
from wsdesc.reconstruction.signature import candidate_pairs, signatures_of

ALL_PAIRS = 25  # scans up to which every two of them are registered

Pair = tuple[int, int]  # numbers of two scans, ascending


class Found(NamedTuple):
    """What registration says of two scans."""

    edges: list[Edge]  # poses that differ, best first; none where no motion brings the scans together
    overlaps: list[float]  # of each: share of the source that lies on the target
    keypoints: int  # of each scan, that it was found with

    @classmethod
    def of(cls, source: int, target: int, result: Result, keypoints: int) -> Found:
        """From the result of `register_pair`."""
        edges = []
        total = max(1.0, sum(pose["confidence"] for pose in result["poses"]))  # one is right at most
        for pose in result["poses"]:
            matrix, centre, *rest = pose["information"]
            held = Information(np.array(matrix), np.array(centre), *rest)
            T, rmse = np.array(pose["T_target_source"]), pose["rmse"] or INDOOR_RESOLUTION
            edges.append(Edge(source, target, T, pose["confidence"] / total, held, rmse, pose["alike"]))
        return cls(edges, [pose["overlap"] for pose in result["poses"]], keypoints)

    @property
    def confidence(self) -> float:
        """Of the best pose."""
        return self.edges[0].confidence if self.edges else 0.0


def signatures(jobs: Sequence[Job], seed: int) -> Tensor:
    """(N, S) of described scans. The order of the scans, which is that of their names, does not matter."""
    order = sorted(range(len(jobs)), key=lambda k: jobs[k]["content"])
    found = signatures_of(_Descriptors([jobs[k] for k in order]), seed)
    return found[torch.from_numpy(np.argsort(order))]


def first_pairs(alike: Tensor, neighbours: int) -> list[Pair]:
    """All pairs of few scans, else those that look alike; `alike` (N, S) are signatures."""
    if len(alike) <= ALL_PAIRS:
        return list(combinations(range(len(alike)), 2))
    return candidate_pairs(alike, neighbours)


def pairs_between(
    components: Sequence[Sequence[int]], found: Mapping[Pair, Found], alike: Tensor, most: int
) -> list[Pair]:
    """Pairs that may connect what is apart: up to `most` for each component but the first, the largest.

    One half are pairs that were nearly believed, if there are so many; then come scans that look alike, those
    first that were not tried yet.
    """
    component = {scan: number for number, scans in enumerate(components) for scan in scans}
    nearly: dict[int, list[Pair]] = {}
    for pair in sorted(found, key=lambda pair: (-found[pair].confidence, pair)):
        ends = {component[scan] for scan in pair}
        if len(ends) == 2 and found[pair].confidence >= LEAST:
            for number in ends:
                nearly.setdefault(number, []).append(pair)
    chosen: set[Pair] = set()
    for number, scans in enumerate(components[1:], 1):
        others = [scan for scan in range(len(alike)) if component[scan] != number]
        cosines = alike[list(scans)] @ alike[others].T  # (scans, others)
        order = cosines.flatten().argsort(descending=True, stable=True).tolist()
        near = [(scans[k // len(others)], others[k % len(others)]) for k in order[: most * 20]]
        near = [(min(pair), max(pair)) for pair in near]
        own = nearly.get(number, [])
        ranked = [*own[: most // 2], *(pair for pair in near if pair not in found), *own, *near]
        chosen.update(list(dict.fromkeys(ranked))[:most])
    return sorted(chosen)


class _Descriptors(Sequence[Tensor]):
    """Those of described scans, read when they are asked for."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs

    def __len__(self) -> int:
        return len(self.jobs)

    def __getitem__(self, k):  # type: ignore[no-untyped-def]
        return described(self.jobs[k]).descriptors
