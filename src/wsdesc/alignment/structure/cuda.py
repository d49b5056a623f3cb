"""Scores of all shifts on a GPU: all rotations at once, in few kernels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from wsdesc.alignment.structure.peaks import Maxima, largest_scores
from wsdesc.alignment.structure.terms import spectrum_shape, weights
from wsdesc.alignment.structure.voxels import ROTATIONS, Voxels, axes_of
from wsdesc.core.geometry import Floats


def best_shifts(p: Voxels, q: Voxels, count: int) -> tuple[Floats, list[Maxima]]:
    """Choose the best rotations on coarser voxels, and find the best shifts of p, which is cubic, against q.

    Returns:
        Rotations (count, 3, 3) of p, and the largest scores of the shifts under each.
    """
    values = compare_rotations(p.coarser(), q.coarser(), ROTATIONS).amax((1, 2, 3))
    best = ROTATIONS[values.topk(count).indices.tolist()]
    return best, largest_scores(compare_rotations(p, q, best))


def compare_rotations(p: Voxels, q: Voxels, rotations: Floats) -> Tensor:
    """Score all shifts of p, turned by each of the rotations (K, 3, 3), against q: (K, X, Y, Z).

    The grid of p is cubic, so that all turned grids have one shape.
    """
    side, device = p.free.shape[0], p.free.device
    orders, flips = (np.stack(column) for column in zip(*map(axes_of, rotations), strict=True))
    strides = np.array([side * side, side, 1])[orders]  # (K, 3) of the axes before
    signs, ends = np.where(flips, -1, 1), np.where(flips, side - 1, 0)
    table = torch.from_numpy(np.concatenate([orders, strides * signs, strides * ends], axis=1)).to(device)
    step = torch.arange(side, device=device)
    x, y, z = table[:, 3:6].unbind(1)
    index = x[:, None, None, None] * step[:, None, None] + y[:, None, None, None] * step[:, None]
    index = index + z[:, None, None, None] * step + table[:, 6:].sum(1)[:, None, None, None]  # (K, X, Y, Z)
    grids = torch.cat([p.surface, p.free[None]]).view(4, -1)
    channel = torch.cat([table[:, :3], table.new_full((len(table), 1), 3)], 1)  # (K, 4)
    of_p = grids[channel[:, :, None], index.flatten(1)[:, None]].view(len(table), 4, side, side, side)

    along_p, along_q, violation = weights(p, q)
    weight = (along_p[table[:, :3]] * along_q).rsqrt()  # (K, 3)
    of_q = torch.cat([(q.surface + q.wide) / 2, q.free[None], q.surface.sum(0, keepdim=True)])
    shape = spectrum_shape(p, q)
    p_spectrum, q_spectrum = (torch.fft.rfftn(grids, shape, dim=(-3, -2, -1)) for grids in (of_p, of_q))
    coinciding = weight[:, :, None, None, None] * q_spectrum[:3] - violation * q_spectrum[3]
    product = (p_spectrum[:, :3].conj() * coinciding).sum(1)
    product = product - violation * p_spectrum[:, 3].conj() * q_spectrum[4]
    scores: Tensor = torch.fft.irfftn(product, shape, dim=(-3, -2, -1))
    return scores
