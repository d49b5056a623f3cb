"""Keypoints in a scene: their matches, and the supports of their descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from wsdesc.cloud.clean import clean
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.units import measure
from wsdesc.core.errors import InputError, WSDescError
from wsdesc.core.geometry import Floats, transform
from wsdesc.descriptor.describe import load_model
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.options import DEFAULT_MODEL
from wsdesc.descriptor.preparation import prepare_scan
from wsdesc.matching.mutual import mutual_matches
from wsdesc.view.scene import MatchLines, Supports

if TYPE_CHECKING:
    from wsdesc.registration.matched import MatchedKeypoints
    from wsdesc.registration.result import Registration

_POINTS_PER_SUPPORT = 400  # a support takes as much memory as so many points
_INLIER_DISTANCE = 0.1  # model metres
_KEYPOINTS = 1200  # keypoints per scan, to compute matches


class KeypointViews(NamedTuple):
    """Matches and supports of two scans, and a line of text about them."""

    matches: MatchLines | None = None
    supports: tuple[Supports | None, Supports | None] = (None, None)
    facts: tuple[str, ...] = ()


def views_of_result(result: Registration, max_points: int) -> KeypointViews:
    """Return the matches and supports of a registration that holds them."""
    if result.described is None:
        return KeypointViews()
    lines = None if result.matched is None else matched_lines(result.matched, *result.described)
    return KeypointViews(lines, _both_supports(*result.described, max_points))


def computed_views(
    clouds: Sequence[Floats], T_target_source: Floats, resolution: float | None, max_points: int
) -> KeypointViews:
    """Match two clouds (N, 3) again, and compute supports; inliers agree with the pose."""
    try:
        source, target = _describe_pair(clouds, resolution, max_points // _POINTS_PER_SUPPORT)
    except InputError as error:  # scans with too few points for descriptors can still be drawn
        return KeypointViews(facts=(f"matches are not shown: {error}",))
    return KeypointViews(
        mutual_lines(source, target, T_target_source),
        _both_supports(source, target, max_points),
        (f"lines: matches of {_KEYPOINTS} keypoints per scan, computed for this page",),
    )


def _both_supports(
    source: Description, target: Description, max_points: int
) -> tuple[Supports | None, Supports | None]:
    count = max_points // _POINTS_PER_SUPPORT
    return supports(source, count), supports(target, count)


def _describe_pair(
    clouds: Sequence[Floats], resolution: float | None, max_supports: int
) -> tuple[Description, Description]:
    """Choose keypoints of two scans, and describe them."""
    cleaned = [clean(cloud) for cloud in clouds]
    resolution = resolution or measure(*(cloud.points for cloud in cleaned)).resolution
    model, name = load_model(DEFAULT_MODEL)
    count = max(_KEYPOINTS, max_supports)
    source, target = (
        prepare_scan(cloud, resolution, name, 0, count).extend(model, _KEYPOINTS) for cloud in cleaned
    )
    return source, target


def matched_lines(matched: MatchedKeypoints, source: Description, target: Description) -> MatchLines:
    """Return the matches of a registration as lines, in the coordinates of the scans."""
    p, q = source.scan_keypoints[matched.pairs[:, 0]], target.scan_keypoints[matched.pairs[:, 1]]  # (M, 3)
    return MatchLines(p, q, matched.inlier)


def mutual_lines(source: Description, target: Description, T_target_source: Floats) -> MatchLines:
    """Match two scans mutually; inliers are matches that agree with the pose."""
    pairs = mutual_matches(source.descriptors, target.descriptors).numpy()  # (M, 2)
    p, q = source.scan_keypoints[pairs[:, 0]], target.scan_keypoints[pairs[:, 1]]  # (M, 3)
    distance = np.linalg.norm(transform(p, T_target_source) - q, axis=1)
    return MatchLines(p, q, distance <= _INLIER_DISTANCE * target.unit)


def supports(description: Description, count: int) -> Supports | None:
    """Compute the supports of a scan's first `count` keypoints; None if its model is not available."""
    try:
        model, _ = load_model(description.model, "cpu")
    except WSDescError:
        return None
    keypoints = description.points[description.order[:count]]
    with torch.inference_mode():
        inputs = model.prepare_grid(NeighbourGrid.of(description.points), keypoints)
        grids = model.voxels(inputs)  # (K, h, h, h)
        sides = model.support(inputs.grid, inputs.keypoints, inputs.frames).detach().expand(len(keypoints))
    return Supports(
        description.in_scan_frame(keypoints),
        description.T_scan_local[:3, :3] @ inputs.frames.double().numpy(),
        description.unit * sides.double().numpy(),
        (255 * grids).round().to(torch.uint8).numpy(),
    )
