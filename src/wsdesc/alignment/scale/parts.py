"""Uncertainty of a scale, from parts of the overlap.

A wrong scale is the same in all parts of an overlap. Distortion, as by fusion or by motion of the scanner,
differs from part to part. So the overlap is divided, and the scale is estimated without each part in turn
(jackknife). Smooth distortion shows in large parts, other errors in small ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.alignment.information.matrix import MIN_PAIRS
from wsdesc.alignment.scale.step import weak_inverse
from wsdesc.core.geometry import Floats

LEVELS = 3  # the overlap is divided into 2, 4 and 8 parts


class ContactPairs(NamedTuple):
    """Contact pairs of two surfaces, in the target's frame."""

    points: Floats  # (M, 3) of the source
    normals: Floats  # (M, 3) mean of both normals
    gaps: Floats  # (M,) along the normals
    weights: Floats  # (M,)


def deviation_between_parts(pairs: ContactPairs) -> float:
    """Return the standard deviation of the logarithm of the scale: the largest of all divisions.

    It is infinite if there are too few pairs.
    """
    points, normals, gaps, weights = pairs
    total = float(weights.sum())
    if len(points) < MIN_PAIRS or not total > 0:
        return math.inf
    points = points - np.einsum("m,mi->i", weights, points) / total
    extent = math.sqrt(float(np.einsum("m,mi,mi->", weights, points, points)) / total)
    if not extent > 0:
        return math.inf
    growth = np.einsum("mi,mi->m", points, normals)[:, None]
    responses = np.concatenate([normals, np.cross(points, normals) / extent, growth / extent], axis=1)
    part = divide(points, LEVELS)
    matrices, slopes = np.zeros((2**LEVELS, 7, 7)), np.zeros((2**LEVELS, 7))
    for k in range(2**LEVELS):
        inside = part == k
        weighted = weights[inside, None] * responses[inside]
        matrices[k] = np.einsum("mi,mj->ij", weighted, responses[inside])
        slopes[k] = np.einsum("mi,m->i", weighted, gaps[inside])
    deviations = []
    while len(matrices) > 1:
        deviations.append(_jackknife(matrices, slopes) / extent)
        matrices, slopes = (x[::2] + x[1::2] for x in (matrices, slopes))
    return max(deviations)


def divide(points: Floats, levels: int) -> NDArray[np.intp]:
    """Divide points (M, 3) into halves along the longest axis, and these again.

    Returns:
        The part (M,) of each point, 0 … 2^levels − 1. Parts 2k and 2k + 1 are halves of part k of the level
        before.
    """
    part = np.zeros(len(points), dtype=np.intp)
    for level in range(levels):
        upper = np.zeros(len(points), dtype=bool)
        for k in range(2**level):
            inside = np.flatnonzero(part == k)
            if len(inside) == 0:
                continue
            centred = points[inside] - points[inside].mean(axis=0)
            axis = np.linalg.eigh(np.einsum("mi,mj->ij", centred, centred))[1][:, -1]
            along = np.einsum("mi,i->m", centred, axis)
            upper[inside] = along > np.median(along)
        part = 2 * part + upper
    return part


def _jackknife(matrices: Floats, slopes: Floats) -> float:
    """Return the deviation of the growth from the equations (B, 7, 7) and (B, 7) of parts."""
    values, vectors = np.linalg.eigh(matrices.sum(axis=0) - matrices)
    turned = np.einsum("bij,bi->bj", vectors, slopes.sum(axis=0) - slopes)
    growth = np.einsum("bj,bj->b", vectors[:, 6], weak_inverse(values) * turned)
    return math.sqrt((len(growth) - 1) * float(growth.var()))
