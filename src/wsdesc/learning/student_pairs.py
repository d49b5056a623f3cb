"""Scans of a distillation, in random pairs: student and teacher describe each scan alone."""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.core.errors import InputError
from wsdesc.core.rng import generator_of
from wsdesc.learning.data import synthetic_pairs
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.sources import CloudPair, MixedPairs, PairSource, shuffled


class RandomPairs:
    """Two of the given clouds at a time, each cloud once per epoch; they need not overlap.

    Args:
        clouds: Points (N, 3) each, in metres.
        seed: Seed of the order.
    """

    def __init__(self, clouds: list[Tensor], seed: int) -> None:
        if not clouds:
            raise InputError("clouds: no clouds to train on")
        self.clouds, self.seed = clouds, seed

    def pair(self, index: int) -> CloudPair:
        """See `PairSource`."""
        count = len(self.clouds)
        first, second = (shuffled(2 * index + k, count, self.seed) for k in (0, 1))
        return self.clouds[first], self.clouds[second]

    def close(self) -> None:
        """Do nothing: no worker processes exist."""


def student_source(clouds: list[Tensor], options: TrainOptions) -> tuple[PairSource, list[Tensor]]:
    """Return a source of clouds and synthetic rooms (rooms only without clouds), and held-out clouds."""
    o, seed = options.data, options.seed
    rooms = synthetic_pairs(o, seed)
    if not clouds:
        return rooms, []
    count = round(o.hold_out * len(clouds))
    order = torch.randperm(len(clouds), generator=generator_of(seed, 4)).tolist()
    scans = RandomPairs([clouds[n] for n in sorted(order[count:])], seed)
    held_out = [clouds[n] for n in sorted(order[:count])]
    if o.synthetic == 0:
        return scans, held_out
    return MixedPairs([scans, rooms], [1 - o.synthetic, o.synthetic], seed), held_out
