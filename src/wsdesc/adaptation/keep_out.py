"""Choose the scans that the check uses and the teaching leaves out."""

from __future__ import annotations

import torch

from wsdesc.adaptation.teachers import TeacherPair, Teachers
from wsdesc.core.rng import generator_of

MIN_PLACED = 4  # scans with poses that an adaptation needs
MIN_PAIRS = 8  # with fewer pairs of two kept-out scans, pairs of one kept-out scan count, too
MIN_CHECKED_OVERLAP = 0.1
_MAX_PAIRS = 80


def choose_kept_out(teachers: Teachers, share: float, seed: int) -> set[int]:
    """Choose scans that overlap each other: a random one and those that overlap it most."""
    count = max(1, round(share * len(teachers.placed)))
    order = torch.randperm(len(teachers.placed), generator=generator_of(seed, 24)).tolist()
    chosen = {teachers.placed[order[0]]}
    while len(chosen) < count:
        gain: dict[int, float] = {}
        for pair in teachers.pairs:
            for inside, outside in ((pair.p, pair.q), (pair.q, pair.p)):
                if inside in chosen and outside not in chosen:
                    gain[outside] = gain.get(outside, 0.0) + 1 / max(pair.overlap, 0.1)
        if not gain:
            break
        chosen.add(max(gain, key=lambda k: (gain[k], -k)))
    return chosen


def checked_pairs(teachers: Teachers, kept_out: set[int], seed: int) -> list[TeacherPair]:
    """Return the pairs of the check by overlap: of two kept-out scans, or of one if these are too few."""
    pairs = [pair for pair in teachers.pairs if pair.overlap >= MIN_CHECKED_OVERLAP]
    both = [pair for pair in pairs if {pair.p, pair.q} <= kept_out]
    one = [pair for pair in pairs if {pair.p, pair.q} & kept_out]
    return limited(both if len(both) >= MIN_PAIRS else one, _MAX_PAIRS, seed)


def limited(pairs: list[TeacherPair], count: int, seed: int) -> list[TeacherPair]:
    """Draw at most `count` pairs, in the order of their overlap."""
    order = torch.randperm(len(pairs), generator=generator_of(seed, 25)).tolist()[:count]
    return sorted((pairs[k] for k in order), key=lambda pair: (pair.overlap, pair.p, pair.q))
