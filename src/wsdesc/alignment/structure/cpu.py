"""Scores of all shifts on the CPU: one rotation per thread, in little memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wsdesc.alignment.structure.peaks import Maxima, largest_scores
from wsdesc.alignment.structure.terms import spectrum_shape, weights
from wsdesc.alignment.structure.voxels import ROTATIONS, Voxels
from wsdesc.core.geometry import Floats
from wsdesc.core.kernels import run_each


def best_shifts(p: Voxels, q: Voxels, count: int) -> tuple[Floats, list[Maxima]]:
    """Choose the best rotations on coarser voxels, and find the best shifts of p against q under each.

    Returns:
        Rotations (count, 3, 3) of p, and the largest scores of the shifts under each.
    """
    p_coarse, q_coarse = p.coarser(), q.coarser()

    def best_scores(same_order: Floats) -> Tensor:
        return score_rotations([p_coarse.turned(R) for R in same_order], q_coarse).amax((1, 2, 3))

    values = torch.cat(run_each(best_scores, list(ROTATIONS.reshape(6, 4, 3, 3))))
    best = ROTATIONS[values.topk(count).indices.tolist()]
    return best, run_each(lambda R: largest_scores(score_rotations([p.turned(R)], q))[0], list(best))


def score_rotations(turned: Sequence[Voxels], q: Voxels) -> Tensor:
    """Score all shifts of a source against q, in voxels modulo the shape of the result (B, X, Y, Z).

    Args:
        turned: The source in B rotations, with grids of one shape.
        q: The target.
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
