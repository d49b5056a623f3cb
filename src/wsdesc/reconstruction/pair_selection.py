"""Select the pairs of scans to register, and hold their edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from torch import Tensor

from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats
from wsdesc.reconstruction.disambiguation import MIN_CANDIDATE_CONFIDENCE
from wsdesc.reconstruction.jobs import CandidatePose
from wsdesc.reconstruction.pose_graph import Edge, Pair, group_numbers
from wsdesc.reconstruction.signature import similar_pairs

ALL_PAIRS = 25  # scans up to which all pairs are registered
MIN_LOOP_OVERLAP = 0.2  # predicted for pairs that close loops
GOOD_PARTNERS = 5  # per scan, through which other pairs are found
NEIGHBOURS_WEIGHT = 1.0  # of the score through a common partner
SHORTLIST = 4  # similar scans per scan to pair with
_SIMILAR_PAIRS = 20  # similar pairs that are examined per pair to select

Origins = Sequence[int | None]  # number of the earlier model of each scan; None for new scans


@dataclass(frozen=True, eq=False)
class RegisteredPair:
    """Candidate edges of two scans."""

    source: int
    target: int
    edges: list[Edge]  # one per candidate, best first
    candidates: tuple[CandidatePose, ...]  # as registered
    keypoints: int  # per scan

    @classmethod
    def of(
        cls, source: int, target: int, candidates: tuple[CandidatePose, ...], keypoints: int
    ) -> RegisteredPair:
        """Make edges between the scans `source` and `target`.

        At most one candidate is right, so their confidences add up to at most 1.
        """
        total = max(1.0, sum(candidate.confidence for candidate in candidates))
        edges = [
            Edge(
                source=source,
                target=target,
                T_target_source=candidate.T_target_source,
                confidence=candidate.confidence / total,
                information=candidate.information,
                rmse=candidate.rmse or INDOOR_RESOLUTION,
                ambiguous=candidate.ambiguous,
                # Scans without a viewpoint may be fused from several positions, and bent.
                patch_gap=candidate.patch_gap if candidate.visible else None,
            )
            for candidate in candidates
        ]
        return cls(source, target, edges, candidates, keypoints)

    @property
    def overlaps(self) -> list[float]:
        """Share of the source's points with a partner in the target, per edge."""
        return [candidate.overlap for candidate in self.candidates]

    @property
    def confidence(self) -> float:
        """Confidence of the best candidate; 0 without any."""
        return self.edges[0].confidence if self.edges else 0.0


def first_pairs(
    signatures: Tensor,
    neighbours: int,
    origins: Origins | None = None,
    score_pairs: Callable[[Sequence[Pair]], Floats] | None = None,
) -> list[Pair]:
    """Select all pairs of few scans; of many scans, each with its `neighbours` best ones.

    Args:
        signatures: (N, S), unit vectors.
        neighbours: Scans that each scan is paired with.
        origins: Number of the earlier model of each scan, None for new scans. Pairs inside a model are not
            selected. Only new scans and the scans of smaller models look for neighbours.
        score_pairs: Scores pairs; the best ones of a shortlist of similar scans are selected. None selects
            the most similar ones.
    """
    count = len(signatures)
    origins = origins or [None] * count
    if count <= ALL_PAIRS:
        return [pair for pair in combinations(range(count), 2) if _is_new(pair, origins)]
    sizes = Counter(origin for origin in origins if origin is not None)
    largest = max(sizes, key=lambda origin: (sizes[origin], -origin), default=None)
    searching = [k for k, origin in enumerate(origins) if origin is None or origin != largest]
    if score_pairs is None:
        return similar_pairs(signatures, neighbours, searching, origins)
    shortlist = similar_pairs(signatures, SHORTLIST * neighbours, searching, origins)
    own = dict(zip(shortlist, score_pairs(shortlist).tolist(), strict=True))
    selected: set[Pair] = set()
    # Scans of equal bays have many partners in common that do not overlap: both scores select pairs.
    for scores in (own, add_neighbours_of_neighbours(own)):
        pairs = sorted(pair for pair in scores if _is_new(pair, origins))
        selected.update(best_pairs(pairs, np.array([scores[p] for p in pairs]), neighbours, searching))
    return sorted(selected)


def add_neighbours_of_neighbours(scores: Mapping[Pair, float]) -> dict[Pair, float]:
    """Raise the scores of pairs that have a good partner in common, also of pairs that have no score yet.

    Two scans of one place may share little with each other, but much with a third scan. The score of the way
    through it is the lower one of its two pairs, and the best way counts by `NEIGHBOURS_WEIGHT`.
    """
    partners: dict[int, list[tuple[float, int]]] = {}
    for (i, j), score in scores.items():
        partners.setdefault(i, []).append((score, j))
        partners.setdefault(j, []).append((score, i))
    best: dict[int, dict[int, float]] = {k: {} for k in partners}
    for k, own in partners.items():
        for score, other in sorted(own, key=lambda item: (-item[0], item[1]))[:GOOD_PARTNERS]:
            best[k][other] = best[other][k] = score
    through: dict[Pair, float] = {}
    for middle in best.values():
        for (i, first), (j, second) in combinations(sorted(middle.items()), 2):
            through[i, j] = max(through.get((i, j), 0.0), min(first, second))
    raised = dict(scores)
    for pair, score in through.items():
        raised[pair] = raised.get(pair, 0.0) + NEIGHBOURS_WEIGHT * score
    return raised


def best_pairs(
    pairs: Sequence[Pair], scores: Floats, nearest: int, searching: Sequence[int] | None = None
) -> list[Pair]:
    """Select pairs that are among the `nearest` best ones of one of their scans.

    Args:
        pairs: P pairs.
        scores: (P,) higher is better.
        nearest: Pairs per scan.
        searching: Scans whose best pairs are selected; None: all.
    """
    wanted = None if searching is None else set(searching)
    taken, selected = Counter[int](), set[Pair]()
    for k in np.argsort(-scores, kind="stable").tolist():
        ends = [scan for scan in pairs[k] if wanted is None or scan in wanted]
        if any(taken[scan] < nearest for scan in ends):
            selected.add(pairs[k])
        taken.update(ends)
    return sorted(selected)


def _is_new(pair: Pair, origins: Origins) -> bool:
    """Return whether two scans are not of the same earlier model."""
    a, b = (origins[k] for k in pair)
    return a is None or a != b


def loop_pairs(
    overlaps: Mapping[Pair, float], registered: Mapping[Pair, RegisteredPair], limit: int, origins: Origins
) -> list[Pair]:
    """Select pairs that overlap by the poses found so far but are not registered: up to `limit` per scan.

    Args:
        overlaps: Predicted overlap, by pair.
        registered: Registered pairs.
        limit: Pairs per scan.
        origins: As in `first_pairs`.
    """
    pairs = [
        pair
        for pair, overlap in overlaps.items()
        if overlap >= MIN_LOOP_OVERLAP and pair not in registered and _is_new(pair, origins)
    ]
    return best_pairs(pairs, np.array([overlaps[pair] for pair in pairs]), limit)


def connecting_pairs(
    components: Sequence[Sequence[int]],
    registered: Mapping[Pair, RegisteredPair],
    signatures: Tensor,
    limit: int,
    origins: Origins | None = None,
) -> list[Pair]:
    """Select pairs that may connect components: up to `limit` per component except the first, the largest.

    Up to a half are registered pairs, those of the highest confidence. Then come the most similar scans that
    are not registered with each other yet. Pairs inside an earlier model are not selected; see `first_pairs`.
    """
    origins = origins or [None] * len(signatures)
    component = group_numbers(components)
    rejected: dict[int, list[Pair]] = {}  # pairs between components, by component
    for pair in sorted(registered, key=lambda pair: (-registered[pair].confidence, pair)):
        ends = {component[scan] for scan in pair}
        if len(ends) == 2 and registered[pair].confidence >= MIN_CANDIDATE_CONFIDENCE:
            for number in ends:
                rejected.setdefault(number, []).append(pair)
    selected: set[Pair] = set()
    for number, scans in enumerate(components[1:], 1):
        others = [scan for scan in range(len(signatures)) if component[scan] != number]
        cosines = signatures[list(scans)] @ signatures[others].T  # (scans, others)
        order = cosines.flatten().argsort(descending=True, stable=True).tolist()[: limit * _SIMILAR_PAIRS]
        similar = [(scans[k // len(others)], others[k % len(others)]) for k in order]
        similar = [(min(pair), max(pair)) for pair in similar]
        own = rejected.get(number, [])
        unregistered = [pair for pair in similar if pair not in registered]
        ranked = [*own[: limit // 2], *unregistered, *own, *similar]
        selected.update(list(dict.fromkeys(p for p in ranked if _is_new(p, origins)))[:limit])
    return sorted(selected)
