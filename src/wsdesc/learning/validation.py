"""Evaluate a model on pairs of scans it was not trained on.

Most figures need no poses. Where ground-truth poses exist, inlier ratio and feature-match recall are
reported as well; the training uses neither.
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
from wsdesc.core.geometry import Floats
from wsdesc.core.rng import generator_of
from wsdesc.descriptor.model import WSDesc
from wsdesc.evaluation.metrics import Matrices, feature_match_recall, inlier_ratio
from wsdesc.learning.losses import RigidityLoss
from wsdesc.matching.mutual import mutual_matches, nearest

Points = Tensor | NDArray[np.float32] | Floats

ValidationPair = tuple[Points, Points, Matrices | None]
"""Points p (N, 3) and q (M, 3), and T_q_p (4, 4) or None."""

_RETURN_DISTANCE = 0.1  # metres, τ1 of the inlier ratio
_RANSAC_THRESHOLD = 0.05  # metres, that of the published experiments


class RigidityStatistics(NamedTuple):
    """Figures that need no poses, as means over pairs; shares are between 0 and 1."""

    loss: float
    orthogonality: float
    cycle: float
    well_posed: float  # share of pairs whose matches determine both affine maps
    mutual: float  # share of keypoints, of both scans, with a mutual nearest neighbour
    returning: float  # share whose neighbour's neighbour is within 0.1 m of them: at least `mutual`
    consistent: float  # share of mutual matches that are inliers of one pose, by RANSAC


class PoseStatistics(NamedTuple):
    """Figures of the mutual matches under ground-truth poses, for reports only."""

    inlier_ratio: float  # mean over pairs
    recall_005: float  # feature-match recall, τ2 = 0.05
    recall_02: float  # feature-match recall, τ2 = 0.2
    pairs: int  # pairs with a ground-truth pose


class Validation(NamedTuple):
    """Figures of a model on a set of pairs."""

    rigidity: RigidityStatistics
    poses: PoseStatistics | None  # None without ground-truth poses
    pairs: int
    clouds: int  # distinct clouds; each is described once

    def figures(self) -> dict[str, float]:
        """Return all figures by name, prefixed by `held_out_`, for the log."""
        figures = self.rigidity._asdict() | (self.poses._asdict() if self.poses else {})
        return {f"held_out_{name}": value for name, value in figures.items() if name != "pairs"}

    def __str__(self) -> str:
        return "\n".join(comparison_table({"": self}))


class TeacherAgreement(NamedTuple):
    """How well a student's descriptors agree with its teacher's."""

    cosine: float  # mean cosine of both descriptors of a keypoint
    neighbours: float  # share of keypoints whose nearest other keypoint is the same

    def figures(self) -> dict[str, float]:
        """Return both figures by name, prefixed by `held_out_`, for the log."""
        return {f"held_out_{name}": value for name, value in self._asdict().items()}

    def __str__(self) -> str:
        return (
            f"cosine to the teacher {self.cosine:.4f}, same nearest neighbour {100 * self.neighbours:.1f} %"
        )


def comparison_table(columns: dict[str, Validation]) -> list[str]:
    """Format validations on the same pairs side by side.

    Args:
        columns: One or more validations by name.

    Returns:
        Lines of a table: a header with the names, then one figure per line.
    """
    cells = [_table_cells(validation) for validation in columns.values()]
    pairs = next(iter(columns.values())).pairs
    widths = [max(len(name), 9) for name in columns]
    header = "".join(f"  {name:>{width}}" for name, width in zip(columns, widths, strict=True))
    lines = [f"{f'{pairs} held-out pairs':<28}{header}"]
    for label in cells[0]:
        values = "".join(f"  {cell[label]:>{width}}" for cell, width in zip(cells, widths, strict=True))
        lines.append(f"  {label:<26}{values}")
    return lines


def _table_cells(validation: Validation) -> dict[str, str]:
    r, poses = validation.rigidity, validation.poses
    cells = {
        "loss": f"{r.loss:.4f}",
        "orthogonality loss": f"{r.orthogonality:.4f}",
        "cycle loss": f"{r.cycle:.4f}",
        "mutual matches": f"{100 * r.mutual:.1f} %",
        "returning keypoints": f"{100 * r.returning:.1f} %",
        "RANSAC inliers": f"{100 * r.consistent:.1f} %",
    }
    if poses is not None:
        cells |= {
            "inlier ratio": f"{100 * poses.inlier_ratio:.1f} %",
            "feature-match recall 0.05": f"{100 * poses.recall_005:.1f} %",
            "feature-match recall 0.2": f"{100 * poses.recall_02:.1f} %",
        }
    return cells


class _DescribedCloud(NamedTuple):
    keypoints: Tensor  # (K, 3)
    descriptors: Tensor  # (K, C)


def validate(
    model: WSDesc,
    pairs: Iterable[ValidationPair],
    keypoints: int = 1000,
    seed: int = 0,
    device: torch.device | str | None = None,
    *,
    unit: float = 1.0,
    loss: RigidityLoss | None = None,
    iterations: int = 50_000,
) -> Validation:
    """Describe and match pairs of scans and compute figures. The model is left unchanged.

    Equal pairs in equal order, seed and device give equal figures. A cloud object that occurs in several
    pairs is described once.

    Args:
        model: Model to evaluate.
        pairs: (p, q, T_q_p) each; T_q_p is None without a ground-truth pose.
        keypoints: Random keypoints per scan.
        seed: Seed of keypoints and RANSAC.
        device: Device for the computation; None: that of the model.
        unit: Length of one metre in the unit of the points.
        loss: Loss to report; None: the default loss for this unit.
        iterations: Largest number of RANSAC iterations per pair.

    Raises:
        InputError: There are no pairs, or no keypoints are requested.
    """
    pairs = list(pairs)  # keeps the clouds alive, so that no id is reused
    if not pairs:
        raise InputError("pairs: no pairs to validate on")
    if keypoints < 1:
        raise InputError(f"keypoints must be at least 1, got {keypoints}: a scan needs a keypoint")
    loss = loss or RigidityLoss(sigma_d=0.1 * unit, unit=unit)
    # In this order: a model moved in inference mode could not be trained any more.
    with _evaluation_mode(model, device) as used, torch.inference_mode():
        described = _describe_clouds(model, pairs, keypoints, seed, unit, used)
        rows, ratios = [], []
        for index, (p, q, T_q_p) in enumerate(pairs):
            a, b = described[id(p)], described[id(q)]
            matches = mutual_matches(a.descriptors, b.descriptors)
            rows.append([*_loss_terms(loss, a, b), *_shares(a, b, matches, unit, seed + index, iterations)])
            if T_q_p is not None:
                ratios.append(inlier_ratio(a.keypoints, b.keypoints, matches, T_q_p, tau1=0.1 * unit))
    means = np.mean(rows, axis=0).tolist()
    return Validation(RigidityStatistics(*means), _pose_statistics(ratios), len(pairs), len(described))


@torch.no_grad()
def compare_with_teacher(
    teacher: WSDesc, student: WSDesc, clouds: list[Tensor], seed: int = 0, keypoints: int = 512
) -> TeacherAgreement:
    """Compare the descriptors of a student and its teacher on random keypoints of clouds (N, 3)."""
    generator, described = generator_of(seed, 5), []
    for cloud in clouds:
        sampled = cloud[random_sample(len(cloud), keypoints, generator).to(cloud.device)]
        described.append([_describe(model, cloud, sampled) for model in (teacher, student)])
    by_teacher, by_student = (torch.cat(parts) for parts in zip(*described, strict=True))
    neighbours = [(f @ f.T).fill_diagonal_(-2).argmax(1) for f in (by_teacher, by_student)]
    same = (neighbours[0] == neighbours[1]).double().mean()
    return TeacherAgreement(float((by_teacher * by_student).sum(1).mean()), float(same))


def _describe(model: WSDesc, cloud: Tensor, keypoints: Tensor) -> Tensor:
    device = next(model.parameters()).device
    descriptors: Tensor = model(cloud.to(device), keypoints.to(device))
    return descriptors.float().cpu()


def _describe_clouds(
    model: WSDesc, pairs: list[ValidationPair], keypoints: int, seed: int, unit: float, device: torch.device
) -> dict[int, _DescribedCloud]:
    """Describe each cloud once, in the order of first occurrence; return the results by object identity."""
    generator = torch.Generator().manual_seed(seed)
    described: dict[int, _DescribedCloud] = {}
    for p, q, _ in pairs:
        for cloud in (p, q):
            if id(cloud) not in described:
                points = torch.as_tensor(cloud).to(device)
                sampled = points[random_sample(len(points), keypoints, generator).to(device)]
                described[id(cloud)] = _DescribedCloud(sampled, model(points, sampled, unit).float())
    return described


def _loss_terms(loss: RigidityLoss, a: _DescribedCloud, b: _DescribedCloud) -> list[float]:
    terms = loss(a.keypoints, a.descriptors, b.keypoints, b.descriptors)
    values = [terms.loss, terms.orthogonality, terms.cycle, terms.well_posed]
    numbers: list[float] = torch.stack([value.double() for value in values]).tolist()
    return numbers


def _shares(
    a: _DescribedCloud, b: _DescribedCloud, matches: Tensor, unit: float, seed: int, iterations: int
) -> list[float]:
    """Return the last three figures of `RigidityStatistics`."""
    total = len(a.keypoints) + len(b.keypoints)
    to_b, to_a = nearest(a.descriptors, b.descriptors)[0], nearest(b.descriptors, a.descriptors)[0]
    offsets = torch.cat(
        [a.keypoints - a.keypoints[to_a[to_b]], b.keypoints - b.keypoints[to_b[to_a]]]
    )  # (K + L, 3)
    returned = int((torch.linalg.vector_norm(offsets, dim=1) <= _RETURN_DISTANCE * unit).sum())
    estimate = ransac(
        a.keypoints[matches[:, 0]],
        b.keypoints[matches[:, 1]],
        threshold=_RANSAC_THRESHOLD * unit,
        iterations=iterations,
        seed=seed,
    )
    return [2 * len(matches) / total, returned / total, estimate.score]


def _pose_statistics(ratios: list[float]) -> PoseStatistics | None:
    if not ratios:
        return None
    return PoseStatistics(
        inlier_ratio=float(np.mean(ratios)),
        recall_005=feature_match_recall(ratios, 0.05),
        recall_02=feature_match_recall(ratios, 0.2),
        pairs=len(ratios),
    )


@contextmanager
def _evaluation_mode(model: WSDesc, device: torch.device | str | None) -> Iterator[torch.device]:
    """Put the model into evaluation mode on the device, and restore mode and device afterwards."""
    original = next(model.parameters()).device
    modes = [(module, module.training) for module in model.modules()]
    used = original if device is None else torch.device(device)
    try:
        model.eval()
        if used != original:
            model.to(used)
        yield used
    finally:
        if used != original:
            model.to(original)
        for module, training in modes:
            module.training = training
