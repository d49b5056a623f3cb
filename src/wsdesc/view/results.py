"""Build scenes of results: registrations, reconstructions, and scan files."""

from __future__ import annotations

import html
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from wsdesc.cloud.clean import clean
from wsdesc.cloud.convert import Scan, as_cloud
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.units import measure
from wsdesc.core.errors import InputError, WSDescError
from wsdesc.core.geometry import Floats, check_rigid, transform
from wsdesc.descriptor.description import Description, load_model, prepare_scan
from wsdesc.descriptor.options import DEFAULT_MODEL
from wsdesc.matching.mutual import mutual_matches
from wsdesc.view.geometry import thin_points
from wsdesc.view.page import page
from wsdesc.view.scene import (
    MAX_POINTS,
    MatchLines,
    SceneView,
    Supports,
    multi_scan_scene,
    pair_scene,
)
from wsdesc.view.snapshot import snapshot

if TYPE_CHECKING:
    from wsdesc.reconstruction.result import Reconstruction
    from wsdesc.registration.result import AlternativePose, Registration

_NOTEBOOK_POINTS = 24_000  # a notebook stores them in its file
_POINTS_PER_SUPPORT = 400  # a support takes as much memory as so many points
_INLIER_DISTANCE = 0.1  # model metres


def registration_scene(
    result: Registration,
    clouds: tuple[Scan, Scan] | None = None,
    names: tuple[str, str] = ("source", "target"),
    max_points: int = MAX_POINTS,
) -> SceneView:
    """Build the scene of a registration.

    Args:
        result: The registration.
        clouds: Both scans in any form that `as_cloud` takes; without them the downsampled ones are shown.
        names: Names of both scans.
        max_points: Largest number of points of both scans together.
    """
    if result.factor != 1:  # the page moves scans rigidly
        clouds = clouds and (result.factor * as_cloud(clouds[0]).points, clouds[1])
        result = result.as_rigid()
    verdict = "success" if result.success else "NO success"
    facts = [
        f"confidence {result.confidence:.3f} ({verdict})",
        f"overlap {result.overlap:.0%} of the source",
        *result.warnings,
    ]
    if result.described is not None:
        return described_scene(
            *result.described,
            result.T_target_source,
            clouds,
            names,
            facts,
            max_points,
            pose_choices(result.T_target_source, result.alternatives, result.confidence),
        )
    if clouds is None:
        raise InputError("nothing to show: the registration holds neither a pose nor the scans")
    return pair_scene(*clouds, names=names, title=_title(names), facts=facts, max_points=max_points)


def described_scene(
    source: Description,
    target: Description,
    T_target_source: Floats | None = None,
    clouds: tuple[Scan, Scan] | None = None,
    names: tuple[str, str] = ("source", "target"),
    facts: Sequence[str] = (),
    max_points: int = MAX_POINTS,
    choices: Sequence[tuple[str, Floats]] = (),
) -> SceneView:
    """Build the scene of two described scans, with matches if both have descriptors and a pose is given."""
    matches = None
    if len(source.descriptors) and len(target.descriptors) and T_target_source is not None:
        matches = _match_lines(source, target, check_rigid(T_target_source, "T_target_source"))
    max_supports = max_points // _POINTS_PER_SUPPORT
    drawn: tuple[Scan, Scan] = clouds or (_file_points(source), _file_points(target))
    return pair_scene(
        *drawn,
        T_target_source,
        names=names,
        title=_title(names),
        facts=facts,
        matches=matches,
        supports=(supports(source, max_supports), supports(target, max_supports)),
        choices=choices,
        max_points=max_points,
    )


def files_scene(
    clouds: tuple[Scan, Scan],
    T_target_source: Floats | None = None,
    names: tuple[str, str] = ("source", "target"),
    keypoints: int = 0,
    choices: Sequence[tuple[str, Floats]] = (),
) -> SceneView:
    """Build the scene of two scans and any pose.

    Args:
        clouds: Source and target, in any form that `as_cloud` takes.
        T_target_source: Pose (4, 4), if there is one.
        names: Names of both scans.
        keypoints: Keypoints per scan that are described and matched; 0 shows no matches.
        choices: Names and poses (4, 4) that can be chosen; the first is `T_target_source`.
    """
    clouds = (as_cloud(clouds[0]), as_cloud(clouds[1]))
    try:
        cleaned = [clean(cloud.points) for cloud in clouds]
        resolution = measure(*(cloud.points for cloud in cleaned)).resolution
        model, name = load_model(DEFAULT_MODEL)
        count = max(keypoints, MAX_POINTS // _POINTS_PER_SUPPORT)
        source, target = (
            prepare_scan(cloud, resolution, name, 0, count).extend(model, keypoints) for cloud in cleaned
        )
    except InputError as error:  # too few points for descriptors can still be drawn
        facts = [f"supports are not shown: {error}"]
        return pair_scene(
            *clouds, T_target_source, names=names, title=_title(names), facts=facts, choices=choices
        )
    return described_scene(source, target, T_target_source, clouds, names, choices=choices)


def pose_choices(
    T_target_source: Floats, alternatives: Sequence[AlternativePose], confidence: float
) -> list[tuple[str, Floats]]:
    """Name the poses of a pair, the first one included; none if there are no alternatives."""
    if not alternatives:
        return []
    poses = [(confidence, T_target_source)]
    poses += [(other.probability, other.T_target_source) for other in alternatives]
    return [(f"{k}: probability {probability:.2f}", T) for k, (probability, T) in enumerate(poses, 1)]


def reconstruction_scene(result: Reconstruction, max_points: int = MAX_POINTS) -> SceneView:
    """Build the scene of all placed scans and their edges. Reads the scan files again, one at a time."""
    names = [name for scans in result.components for name in scans]
    short = dict(zip(names, short_names(names), strict=True))
    clouds, totals = dict[str, Floats](), dict[str, int]()
    for name in names:
        try:
            points = as_cloud(result.paths[name]).points
        except WSDescError as error:
            raise InputError(f"{error}; `reconstruct` keeps scans given as arrays in `out`") from error
        clouds[short[name]] = thin_points(points, max(200, max_points // len(names)))
        totals[short[name]] = len(points)
    edges = [
        (short[edge.source], short[edge.target], edge.confidence, edge.accepted)
        for edge in result.edges
        if edge.source in short and edge.target in short
    ]
    accepted = sum(edge.accepted for edge in result.edges)
    frames = len(result.components)
    return multi_scan_scene(
        clouds,
        {short[name]: T for name, T in result.T_world_scan.items()},
        totals=totals,
        components=[[short[name] for name in scans] for scans in result.components],
        edges=edges,
        title=f"{len(names)} scans",
        facts=[
            f"{len(names)} scans placed in {frames} frame{'s' if frames > 1 else ''}, "
            f"{len(result.not_placed)} not placed",
            f"{accepted} edges accepted of {len(result.edges)} registered pairs",
            *(f"not placed: {name}" for name in short_names(list(result.not_placed))),
        ],
        max_points=max_points,
    )


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


def notebook_page(result: object) -> str | None:
    """Return a result as HTML for a notebook; None if there is nothing to show."""
    scene = _notebook_scene(result)
    if scene is None:
        return None
    # The frame separates the page's script from the notebook.
    document = html.escape(page(scene), quote=True)
    style = "width: 100%; height: 520px; border: 1px solid #ddd"
    return f'<iframe srcdoc="{document}" sandbox="allow-scripts" style="{style}"></iframe>'


def notebook_picture(result: object) -> bytes | None:
    """Return a result as a PNG, for viewers that run no scripts; None if there is nothing to show."""
    scene = _notebook_scene(result)
    return None if scene is None else snapshot(scene)


def _notebook_scene(result: object) -> SceneView | None:
    from wsdesc.reconstruction.result import Reconstruction
    from wsdesc.registration.result import Registration

    with suppress(WSDescError):
        if isinstance(result, Registration):
            return registration_scene(result, max_points=_NOTEBOOK_POINTS)
        if isinstance(result, Reconstruction):
            return reconstruction_scene(result, max_points=_NOTEBOOK_POINTS)
    return None


def _title(names: tuple[str, str]) -> str:
    return f"{names[0]} → {names[1]}"


def _match_lines(source: Description, target: Description, T_target_source: Floats) -> MatchLines:
    """Match both scans mutually; inliers are matches that agree with the pose."""
    pairs = mutual_matches(source.descriptors, target.descriptors).numpy()  # (M, 2)
    p, q = source.scan_keypoints[pairs[:, 0]], target.scan_keypoints[pairs[:, 1]]  # (M, 3)
    distance = np.linalg.norm(transform(p, T_target_source) - q, axis=1)
    inlier: NDArray[np.bool_] = distance <= _INLIER_DISTANCE * source.unit
    return MatchLines(p, q, inlier)


def _file_points(description: Description) -> Floats:
    """Return the downsampled points (N, 3) in the coordinates of the file."""
    return description.in_scan_frame(description.points)


def short_names(names: list[str]) -> list[str]:
    """Shorten paths to the last parts that tell them apart.

    A page may be shared: it does not show the folders of this machine.
    """
    parts = [PurePath(name).parts for name in names]
    for count in range(1, max(map(len, parts), default=0) + 1):
        short = ["/".join(part[-count:]) for part in parts]
        if len(set(short)) == len(short):
            return short
    return names
