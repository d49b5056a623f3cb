"""Results as scenes: what `wsdesc.view` draws is gathered here from descriptions, matches and poses."""

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
from wsdesc.cloud.files import read_points
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.units import measure
from wsdesc.core.errors import InputError, WSDescError
from wsdesc.descriptor.description import Description, load_model, prepare_scan
from wsdesc.descriptor.options import DEFAULT_MODEL
from wsdesc.matching.mutual import mutual_matches
from wsdesc.view.geometry import Floats, thinned
from wsdesc.view.page import page
from wsdesc.view.scene import MOST, Matches, Scene, Supports, model_scene, pair_scene, rigid
from wsdesc.view.snapshot import snapshot

if TYPE_CHECKING:
    from wsdesc.reconstruction.pipeline import Reconstruction
    from wsdesc.registration.result import Registration

_SMALL = 24_000  # points in a notebook, which keeps them in its file
_POINTS_A_SUPPORT = 400  # take as much room as one support does
_AGREE = 0.1  # metres of the model within which a match agrees with a pose


def registration_scene(
    result: Registration,
    clouds: tuple[Floats, Floats] | None = None,
    names: tuple[str, str] = ("source", "target"),
    most: int = MOST,
) -> Scene:
    """Two scans and the pose found; `clouds`, (N, 3) and (M, 3), where more than thinned ones are at hand."""
    sure = f"confidence {result.confidence:.3f}: " + ("trust it" if result.success else "do NOT trust it")
    facts = [sure, f"overlap {result.overlap:.0%} of the source", *result.warnings]
    if result.described is not None:
        return described_scene(*result.described, result.T_target_source, clouds, names, facts, most)
    if clouds is None:
        raise InputError("no pose was found, and nothing was described: there is nothing to see")
    return pair_scene(*clouds, names=names, title=_title(names), facts=facts, most=most)


def described_scene(
    p: Description,
    q: Description,
    T_target_source: Floats | None = None,
    clouds: tuple[Floats, Floats] | None = None,
    names: tuple[str, str] = ("source", "target"),
    facts: Sequence[str] = (),
    most: int = MOST,
) -> Scene:
    """Two scans that are described, or at least prepared: without descriptors there are no matches."""
    matches = None
    if len(p.descriptors) and len(q.descriptors) and T_target_source is not None:
        matches = _matches(p, q, rigid(T_target_source))
    return pair_scene(
        *(clouds or (_in_file(p), _in_file(q))),
        T_target_source,
        names=names,
        title=_title(names),
        facts=facts,
        matches=matches,
        supports=(supports(p, most // _POINTS_A_SUPPORT), supports(q, most // _POINTS_A_SUPPORT)),
        most=most,
    )


def files_scene(
    clouds: tuple[Floats, Floats],
    T_target_source: Floats | None = None,
    names: tuple[str, str] = ("source", "target"),
    keypoints: int = 0,
) -> Scene:
    """Two clouds (N, 3) and (M, 3), of which nothing is known but perhaps a pose that somebody else found.

    So many `keypoints` of each are described, to show how their matches agree with that pose.
    """
    try:
        cleaned = [clean(cloud) for cloud in clouds]
        resolution = measure(*(cloud.points for cloud in cleaned)).resolution
        model, name = load_model(DEFAULT_MODEL)
        enough = max(keypoints, MOST // _POINTS_A_SUPPORT)
        p, q = (
            prepare_scan(cloud, resolution, name, 0, enough).extend(model, keypoints) for cloud in cleaned
        )
    except InputError as error:  # too small to be described, not to be looked at
        facts = [f"no supports are shown: {error}"]
        return pair_scene(*clouds, T_target_source, names=names, title=_title(names), facts=facts)
    return described_scene(p, q, T_target_source, clouds, names)


def reconstruction_scene(found: Reconstruction, most: int = MOST) -> Scene:
    """All scans that have a place, and the pairs behind it. The files are read again, one at a time."""
    names = [name for scans in found.components for name in scans]
    short = dict(zip(names, short_names(names), strict=True))
    clouds, totals = dict[str, Floats](), dict[str, int]()
    for name in names:
        try:
            points = read_points(found.paths[name], nonfinite="drop")
        except WSDescError as error:
            raise InputError(f"{error}; scans that came as arrays are kept if `folder` is given") from error
        clouds[short[name]] = thinned(points, max(200, most // len(names)))
        totals[short[name]] = len(points)
    pairs = [p for p in found.pairs if p.source in short and p.target in short]
    believed = sum(pair.rejected is None for pair in found.pairs)
    return model_scene(
        clouds,
        {short[name]: T for name, T in found.T_world_scan.items()},
        totals=totals,
        frames=[[short[name] for name in scans] for scans in found.components],
        edges=[(short[p.source], short[p.target], p.confidence, p.rejected is None) for p in pairs],
        title=f"{len(names)} scans",
        facts=[
            f"{len(names)} scans placed, {len(found.not_placed)} not, in {len(found.components)} frame(s)",
            f"{believed} of {len(found.pairs)} pairs believed",
            *(f"not placed: {name}" for name in short_names(list(found.not_placed))),
        ],
        most=most,
    )


def supports(description: Description, most: int) -> Supports | None:
    """What the model of a description sees of its first keypoints; None where that model is not at hand."""
    try:
        model, _ = load_model(description.model, "cpu")
    except WSDescError:
        return None
    keypoints = description.points[description.order[:most]]
    with torch.inference_mode():
        scene = model.prepare_grid(NeighbourGrid.of(description.points), keypoints)
        grids = model.voxels(scene)  # (K, h, h, h)
        sides = model.support(scene.grid, scene.keypoints, scene.frames).detach().expand(len(keypoints))
    return Supports(
        description.offset + description.unit * keypoints.double().numpy(),
        scene.frames.double().numpy(),
        description.unit * sides.double().numpy(),
        (255 * grids).round().to(torch.uint8).numpy(),
    )


def small_page(result: object) -> str | None:
    """A result as HTML that a notebook takes into itself; None where there is nothing to see."""
    scene = _small_scene(result)
    if scene is None:
        return None
    # In a frame of its own, so that its script meets nothing of the notebook.
    document = html.escape(page(scene), quote=True)
    style = "width: 100%; height: 520px; border: 1px solid #ddd"
    return f'<iframe srcdoc="{document}" sandbox="allow-scripts" style="{style}"></iframe>'


def small_picture(result: object) -> bytes | None:
    """The same as a PNG, for readers of notebooks that run no scripts."""
    scene = _small_scene(result)
    return None if scene is None else snapshot(scene)


def _small_scene(result: object) -> Scene | None:
    from wsdesc.reconstruction.pipeline import Reconstruction
    from wsdesc.registration.result import Registration

    with suppress(WSDescError):
        if isinstance(result, Registration):
            return registration_scene(result, most=_SMALL)
        if isinstance(result, Reconstruction):
            return reconstruction_scene(result, most=_SMALL)
    return None


def _title(names: tuple[str, str]) -> str:
    return f"{names[0]} → {names[1]}"


def _matches(p: Description, q: Description, T_target_source: Floats) -> Matches:
    """Mutual matches in the files' coordinates; those that the pose brings together agree."""
    pairs = mutual_matches(p.descriptors, q.descriptors).numpy()  # (M, 2)
    source, target = p.scan_keypoints[pairs[:, 0]], q.scan_keypoints[pairs[:, 1]]
    apart = source @ T_target_source[:3, :3].T + T_target_source[:3, 3] - target
    agree: NDArray[np.bool_] = np.linalg.norm(apart, axis=1) <= _AGREE * p.unit
    return Matches(source, target, agree)


def _in_file(description: Description) -> Floats:
    """Thinned points (N, 3) in the coordinates of the file."""
    return np.asarray(description.offset + description.unit * description.points.double().numpy())


def short_names(names: list[str]) -> list[str]:
    """The ends of names that may be paths, just long enough to tell them apart.

    A page may go to people whom the folders of this machine do not concern.
    """
    parts = [PurePath(name).parts for name in names]
    for count in range(1, max(map(len, parts), default=0) + 1):
        ends = ["/".join(part[-count:]) for part in parts]
        if len(set(ends)) == len(ends):
            return ends
    return names
