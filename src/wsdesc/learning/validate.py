"""How good a model is on pairs of clouds it did not learn from.

Most of it needs no poses, and may therefore choose between models in a training without ground truth.
Where poses are known they are only reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.alignment.ransac import ransac
from wsdesc.cloud.sampling import random_sample
from wsdesc.core.errors import InputError
from wsdesc.descriptor.model import WSDesc
from wsdesc.evaluation.metrics import Matrices, feature_match_recall, inlier_ratio
from wsdesc.learning.losses import RigidityLoss
from wsdesc.matching.mutual import mutual_matches, nearest

Cloud = Tensor | NDArray[np.float32] | NDArray[np.float64]
Pair = tuple[Cloud, Cloud, Matrices | None]  # p (N, 3), q (M, 3), T_q_p (4, 4) where it is known

_RETURN = 0.1  # metres: a keypoint led back this near to where it started has returned, as τ1 of inliers
_AGREEMENT = 0.05  # metres: RANSAC's threshold in the published experiments


class RigidityStatistics(NamedTuple):
    """Means over pairs of what can be seen without poses; shares lie in 0 … 1."""

    loss: float
    orthogonality: float
    cycle: float
    well_posed: float  # share of pairs whose affine maps were determined; the losses of others say little
    mutual: float  # share of keypoints, of both clouds, that their nearest neighbour has for its own
    returning: (
        float  # share whose neighbour's neighbour is they or a keypoint within 0.1 m: at least `mutual`
    )
    consistent: float  # share of mutual matches that agree with one rigid motion, found by RANSAC


class TruthStatistics(NamedTuple):
    """What poses say about the mutual matches; only for a report, never for a choice."""

    inlier_ratio: float  # mean over pairs
    recall_005: float  # feature-match recall, τ2 = 0.05
    recall_02: float  # and τ2 = 0.2
    pairs: int  # with a known pose


class ValidationReport(NamedTuple):
    """The statistics of all pairs."""

    rigidity: RigidityStatistics
    truth: TruthStatistics | None  # None where no pose is known
    pairs: int
    clouds: int  # different ones, each described once

    def __str__(self) -> str:
        r, t = self.rigidity, self.truth
        text = (
            f"{self.pairs} pairs: loss {r.loss:.4f}"
            f" (orthogonality {r.orthogonality:.4f}, cycle {r.cycle:.4f})"
            f", mutual {100 * r.mutual:.1f} %, returning {100 * r.returning:.1f} %"
            f", consistent {100 * r.consistent:.1f} %"
        )
        if t is not None:
            recalls = f"{100 * t.recall_005:.1f} / {100 * t.recall_02:.1f}"
            text += f"; IR {100 * t.inlier_ratio:.1f}, FMR {recalls} (n = {t.pairs})"
        return text


class _Described(NamedTuple):
    keys: Tensor  # (K, 3)
    features: Tensor  # (K, C)


def validate(
    model: WSDesc,
    pairs: Iterable[Pair],
    keypoints: int = 1000,
    seed: int = 0,
    device: torch.device | str | None = None,
    *,
    unit: float = 1.0,
    loss: RigidityLoss | None = None,
    iterations: int = 50_000,
) -> ValidationReport:
    """Describe, match and compare pairs of clouds as a test does, without learning from them.

    A cloud that several pairs share is described once; it is known by being the same object. Same pairs in
    the same order, same seed, same device: same report. The model comes back as it was.

    Args:
        model: to be judged.
        pairs: (p, q, T_q_p) each, None where the pose is not known.
        keypoints: of each cloud, at random.
        seed: of keypoints and RANSAC.
        device: where to compute; None: where the model is.
        unit: the length, in the clouds' own measure, that counts as a metre.
        loss: the loss to report; None: the default one for this unit.
        iterations: RANSAC's samples at most, for each pair.
    """
    pairs = list(pairs)  # holds the clouds, so that their identities stay theirs
    if not pairs:
        raise InputError("there are no pairs to validate on")
    if keypoints < 1:
        raise InputError(f"validation needs a keypoint or more of each cloud, not {keypoints}")
    loss = loss or RigidityLoss(sigma_d=0.1 * unit, unit=unit)
    # In this order: a model that moves in inference mode could not be trained any more.
    with _evaluating(model, device) as here, torch.inference_mode():
        described = _describe(model, pairs, keypoints, seed, unit, here)
        rows, ratios = [], []
        for number, (p, q, T_q_p) in enumerate(pairs):
            a, b = described[id(p)], described[id(q)]
            matches = mutual_matches(a.features, b.features)
            rows.append([*_loss_terms(loss, a, b), *_shares(a, b, matches, unit, seed + number, iterations)])
            if T_q_p is not None:
                ratios.append(inlier_ratio(a.keys, b.keys, matches, T_q_p, tau1=0.1 * unit))
    means = np.mean(rows, axis=0).tolist()
    return ValidationReport(RigidityStatistics(*means), _truth(ratios), len(pairs), len(described))


def _describe(
    model: WSDesc, pairs: list[Pair], keypoints: int, seed: int, unit: float, device: torch.device
) -> dict[int, _Described]:
    """Keypoints and descriptors by the cloud's identity, in the order of first appearance."""
    generator = torch.Generator().manual_seed(seed)
    described: dict[int, _Described] = {}
    for p, q, _ in pairs:
        for cloud in (p, q):
            if id(cloud) not in described:
                points = torch.as_tensor(cloud).to(device)
                chosen = random_sample(len(points), keypoints, generator)
                keys = points[chosen.to(device)]
                described[id(cloud)] = _Described(keys, model(points, keys, unit).float())
    return described


def _loss_terms(loss: RigidityLoss, a: _Described, b: _Described) -> list[float]:
    terms = loss(a.keys, a.features, b.keys, b.features)
    values = [terms.loss, terms.orthogonality, terms.cycle, terms.well_posed]
    numbers: list[float] = torch.stack([value.double() for value in values]).tolist()
    return numbers


def _shares(
    a: _Described, b: _Described, matches: Tensor, unit: float, seed: int, iterations: int
) -> list[float]:
    total = len(a.keys) + len(b.keys)
    to_b, to_a = nearest(a.features, b.features)[0], nearest(b.features, a.features)[0]
    there = torch.cat([a.keys - a.keys[to_a[to_b]], b.keys - b.keys[to_b[to_a]]])  # (K + L, 3)
    returned = int((torch.linalg.vector_norm(there, dim=1) <= _RETURN * unit).sum())
    agreeing = ransac(
        a.keys[matches[:, 0]],
        b.keys[matches[:, 1]],
        threshold=_AGREEMENT * unit,
        iterations=iterations,
        seed=seed,
    )
    return [2 * len(matches) / total, returned / total, agreeing.score]


def _truth(ratios: list[float]) -> TruthStatistics | None:
    if not ratios:
        return None
    return TruthStatistics(
        inlier_ratio=float(np.mean(ratios)),
        recall_005=feature_match_recall(ratios, 0.05),
        recall_02=feature_match_recall(ratios, 0.2),
        pairs=len(ratios),
    )


@contextmanager
def _evaluating(model: WSDesc, device: torch.device | str | None) -> Iterator[torch.device]:
    """The model in evaluation mode on the device; afterwards it is in its mode and place again."""
    home = next(model.parameters()).device
    modes = [(module, module.training) for module in model.modules()]
    here = home if device is None else torch.device(device)
    try:
        model.eval()
        if here != home:
            model.to(here)
        yield here
    finally:
        if here != home:
            model.to(home)
        for module, training in modes:
            module.training = training
