"""Scores of all shifts on the CPU: one rotation after another, in little memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from wsdesc.alignment.structure.terms import spectrum_shape, weights
from wsdesc.alignment.structure.voxels import ROTATIONS, Voxels
from wsdesc.core.geometry import Floats


def score_shifts(p: Voxels, q: Voxels, count: int) -> tuple[Floats, Iterator[Tensor]]:
    """Choose the best rotations on coarser voxels, and score all shifts of p against q under each of them.

    Returns:
        Rotations (count, 3, 3) of p, and an iterator over their scores (1, X, Y, Z).
    """
    p_coarse, q_coarse = p.coarser(), q.coarser()
    coarse = [
        score_rotations([p_coarse.turned(R) for R in same_order], q_coarse)
        for same_order in ROTATIONS.reshape(6, 4, 3, 3)
    ]
    values = torch.cat([scores.amax((1, 2, 3)) for scores in coarse])
    best = ROTATIONS[values.topk(count).indices.tolist()]
    return best, (score_rotations([p.turned(R)], q) for R in best)


def score_rotations(turned: Sequence[Voxels], q: Voxels) -> Tensor:
    """Score all shifts of a source against q, in voxels modulo the shape of the result (B, X, Y, Z).

    Args:
        turned: the source in B rotations, with grids of one shape.
        q: the target.
    """
    p = turned[0]
    shape = spectrum_shape(p, q)
    along_p, along_q, violation = weights(p, q)
    coinciding = (along_p * along_q).rsqrt()[:, None, None, None] * (q.surface + q.wide) / 2
    of_q = torch.cat([coinciding - violation * q.free, -violation * q.surface.sum(0, keepdim=True)])
    of_p = torch.stack([torch.cat([p.surface, p.free[None]]) for p in turned])
    p_spectra, q_spectra = (torch.fft.rfftn(grids, shape, dim=(-3, -2, -1)) for grids in (of_p, of_q))
    scores: Tensor = torch.fft.irfftn((p_spectra.conj() * q_spectra).sum(1), shape, dim=(1, 2, 3))
    return scores
