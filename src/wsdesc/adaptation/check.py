"""Evaluate weights without ground truth: the poses of a reconstruction count as right.

Each scan is described once. A pair is matched with few keypoints and solved by RANSAC; some pairs are also
registered. Both poses are compared with that of the reconstruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from wsdesc.adaptation.replay import ReplayPool
from wsdesc.adaptation.scans import TaughtScan, overlap_at, relative_pose
from wsdesc.adaptation.teachers import OVERLAP_DISTANCE, TeacherPair
from wsdesc.alignment.ransac import ransac
from wsdesc.alignment.surface import Surface, make_surface
from wsdesc.cloud.sampling import farthest_points
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import Floats
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.descriptor.describe import load_model
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.model import WSDesc
from wsdesc.evaluation.metrics import inlier_ratio
from wsdesc.matching.mutual import mutual_matches
from wsdesc.registration.candidates import find_candidates
from wsdesc.registration.result import SUCCESS

KEYPOINTS = 500  # keypoints per scan for the inlier ratio and RANSAC
REGISTERED_KEYPOINTS = 1200  # keypoints per scan for the registration
MAX_ERROR = 0.2  # metres: root mean square displacement of the overlap of a right pose
MIN_GAIN = 0.005  # smallest gain of inlier ratio of an accepted adaptation
MAX_LOSS = 0.02  # largest loss of recall of an accepted adaptation: RANSAC is random
MAX_FORGOTTEN = 0.02  # largest loss of inlier ratio on synthetic scenes


@dataclass(frozen=True)
class PairFigures:
    """Figures of one pair; the pose of the reconstruction counts as right."""

    p: int
    q: int
    overlap: float
    inlier_ratio: float
    ransac_right: bool  # whether the pose of RANSAC is right
    registered: bool  # whether the pair was also registered
    right: bool = False  # whether the pose of the registration is right
    success: bool = False  # whether the registration is a success
    confidence: float = 0.0


class Summary(NamedTuple):
    """Means over pairs; None where no pair was registered."""

    pairs: int
    inlier_ratio: float
    ransac_recall: float
    registered: int
    recall: float | None
    success: float | None
    confidence: float | None


def measure(
    weights: str | Path,
    scans: Sequence[TaughtScan],
    pairs: Sequence[TeacherPair],
    *,
    registered: int,
    device: str,
    seed: int = 0,
    progress: ProgressHook = no_progress,
    step: str = "check",
) -> list[PairFigures]:
    """Measure weights on pairs of scans.

    Args:
        weights: Name or path of the weights.
        scans: Scans of the pairs.
        pairs: Pairs with the poses that count as right.
        registered: Largest number of pairs that are also registered, spread evenly over the pairs.
        device: Device of the computation.
        seed: Seed of keypoints and RANSAC.
        progress: Hook that is entered around the step.
        step: Name of the step.
    """
    model, _ = load_model(weights, device)
    described: dict[int, Description] = {}
    surfaces: dict[int, Surface] = {}
    chosen = {round(k) for k in np.linspace(0, len(pairs) - 1, min(registered, len(pairs)))}
    keypoints = REGISTERED_KEYPOINTS if chosen else KEYPOINTS
    figures = []
    with progress(step, len(pairs)) as advance:
        for number, pair in enumerate(pairs):
            for k in (pair.p, pair.q):
                if k not in described:
                    described[k] = _describe(scans[k], model, keypoints, device, seed)
                    surfaces[k] = make_surface(described[k].points)
            p, q = described[pair.p], described[pair.q]
            ratio, T = _match(p, q, pair.T_q_p, seed + number)
            overlapping = _overlap_points(scans[pair.p], scans[pair.q], pair.T_q_p)
            row = PairFigures(
                pair.p, pair.q, pair.overlap, ratio, _agree(T, pair.T_q_p, overlapping), number in chosen
            )
            if row.registered:
                row = _register(row, p, q, (surfaces[pair.p], surfaces[pair.q]), pair.T_q_p, overlapping)
            figures.append(row)
            advance(1)
    return figures


def _describe(scan: TaughtScan, model: WSDesc, keypoints: int, device: str, seed: int) -> Description:
    points = scan.points.to(device)
    description = Description(
        points=points,
        order=farthest_points(points, keypoints, torch.Generator().manual_seed(seed)),
        descriptors=points.new_empty(0, 0),
        frames=points.new_empty(0, 3, 3),
        resolution=INDOOR_RESOLUTION,
        T_scan_local=np.eye(4),
        model="",
        range_image=scan.range_image,
    )
    return description.extend(model, keypoints)


def _match(p: Description, q: Description, T_q_p: Floats, seed: int) -> tuple[float, Floats]:
    """Match few keypoints; return the inlier ratio and the pose of RANSAC."""
    matches = mutual_matches(p.descriptors[:KEYPOINTS], q.descriptors[:KEYPOINTS])
    ends = p.keypoints[matches[:, 0]], q.keypoints[matches[:, 1]]
    ratio = inlier_ratio(p.keypoints, q.keypoints, matches, T_q_p)
    return ratio, ransac(ends[0].cpu(), ends[1].cpu(), seed=seed).T_target_source.numpy()


def _overlap_points(p: TaughtScan, q: TaughtScan, T_q_p: Floats) -> Floats:
    """Return points (M, 3) of p that have a partner in q."""
    points = p.points[p.sample(1000)].double().numpy()
    distance, _ = q.tree.query(points @ T_q_p[:3, :3].T + T_q_p[:3, 3], distance_upper_bound=0.1)
    near: Floats = points[np.isfinite(distance)]
    return near if len(near) else points


def _agree(T: Floats, T_true: Floats, points: Floats) -> bool:
    """Return whether two poses move the points to nearly the same positions."""
    D = T - T_true
    return bool(np.sqrt(np.square(points @ D[:3, :3].T + D[:3, 3]).sum(1).mean()) <= MAX_ERROR)


def _register(
    row: PairFigures,
    p: Description,
    q: Description,
    surfaces: tuple[Surface, Surface],
    T_q_p: Floats,
    points: Floats,
) -> PairFigures:
    """Register a pair, and add the result to its figures."""
    candidates = find_candidates(p, q, surfaces)
    if not candidates.ranked:
        return row
    best = candidates.ranked[0]
    right = _agree(best.refined.T_target_source, T_q_p, points)
    return replace(row, right=right, success=best.confidence >= SUCCESS, confidence=best.confidence)


def summarise(figures: Iterable[PairFigures]) -> Summary:
    """Average the figures of pairs."""
    rows = list(figures)
    registered = [row for row in rows if row.registered]

    def mean(values: list[float]) -> float | None:
        return float(np.mean(values)) if values else None

    return Summary(
        pairs=len(rows),
        inlier_ratio=mean([row.inlier_ratio for row in rows]) or 0.0,
        ransac_recall=mean([float(row.ransac_right) for row in rows]) or 0.0,
        registered=len(registered),
        recall=mean([float(row.right) for row in registered]),
        success=mean([float(row.success and row.right) for row in registered]),
        confidence=mean([row.confidence for row in registered]),
    )


def compare(before: Sequence[PairFigures], after: Sequence[PairFigures]) -> str | None:
    """Return why the weights after an adaptation are not better than those before it; None if they are."""
    old, new = summarise(before), summarise(after)
    if new.inlier_ratio < old.inlier_ratio + MIN_GAIN:
        return f"the inlier ratio went from {100 * old.inlier_ratio:.1f} to {100 * new.inlier_ratio:.1f} %"
    if new.ransac_recall < old.ransac_recall - _allowed_loss(old.pairs):
        return (
            f"RANSAC registered {100 * new.ransac_recall:.1f} % of the pairs, "
            f"{100 * old.ransac_recall:.1f} % before"
        )
    if (new.recall or 0.0) < (old.recall or 0.0) - _allowed_loss(old.registered):
        return f"{100 * (new.recall or 0):.1f} % were registered, {100 * (old.recall or 0):.1f} % before"
    return None


def _allowed_loss(pairs: int) -> float:
    """Return the recall that an adaptation may lose on so many pairs."""
    return max(MAX_LOSS, 1.001 / max(1, pairs))


def measure_synthetic(
    weights: Path, pool: ReplayPool, *, device: str, progress: ProgressHook, step: str
) -> float:
    """Measure the inlier ratio of weights on synthetic scenes that no step trained on."""
    scans: list[TaughtScan] = []
    pairs = []
    for p, q in pool.checked_pairs():
        scans += [TaughtScan("", scan.points, scan.T_world_local, 1.0) for scan in (p, q)]
        T_q_p = relative_pose(p.T_world_local, q.T_world_local)
        overlap = overlap_at(scans[-2], scans[-1], T_q_p, OVERLAP_DISTANCE)
        pairs.append(TeacherPair(len(scans) - 2, len(scans) - 1, T_q_p, overlap))
    figures = measure(weights, scans, pairs, registered=0, device=device, progress=progress, step=step)
    return summarise(figures).inlier_ratio
