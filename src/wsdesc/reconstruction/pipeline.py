"""Reconstruct: find the poses of many scans in one frame.

read → describe → select pairs → register pairs → reject wrong edges → pose graph. Unconnected scans are
registered once more with more keypoints.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from wsdesc.cloud.local_frame import in_scan_frames
from wsdesc.cloud.units import INDOOR_RESOLUTION, Scale
from wsdesc.core.errors import InputError
from wsdesc.core.executors import Executor, Serial
from wsdesc.core.folders import locked
from wsdesc.core.journal import content_of
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.descriptor import pretrained
from wsdesc.descriptor.options import DEFAULT_MODEL
from wsdesc.reconstruction.control import ControlPoint
from wsdesc.reconstruction.georeference import georeference
from wsdesc.reconstruction.inputs import Scans, as_files
from wsdesc.reconstruction.jobs import DescribeJob, DescribeSettings, FailedScan, HashedScan, ScanSurvey
from wsdesc.reconstruction.known import Known, read_known
from wsdesc.reconstruction.loop_closure import Placement, place_scans
from wsdesc.reconstruction.options import KnownOptions, ReconstructOptions
from wsdesc.reconstruction.pair_selection import (
    Pair,
    RegisteredPair,
    connecting_pairs,
    first_pairs,
    signatures_of_scans,
)
from wsdesc.reconstruction.result import EdgeResult, Reconstruction
from wsdesc.reconstruction.runner import Runner
from wsdesc.registration.result import Pose

T = TypeVar("T")
U = TypeVar("U")


def reconstruct(
    scans: Scans,
    out: str | Path | None = None,
    *,
    model: str | Path = DEFAULT_MODEL,
    resolution: float | None = None,
    keypoints: int = 2000,
    more_keypoints: int = 4000,
    neighbours: int = 10,
    priors: bool | str | Path | Mapping[str, Any] = False,
    control: str | Path | Sequence[ControlPoint] | None = None,
    reference: str | None = None,
    up: Any = None,
    prior_sigma: float | None = None,
    prior_angle: float = 5.0,
    control_sigma: float | None = None,
    up_angle: float = 1.0,
    device: str = "auto",
    seed: int = 0,
    executor: Executor | None = None,
    progress: ProgressHook | None = None,
    **unknown: Any,
) -> Reconstruction:
    """Find the poses of overlapping scans in one frame.

    All scans are in one unit, any unit, and in any pose. Unreadable scans are left out and named in
    `Reconstruction.not_placed`. Write the result with `Reconstruction.save`.

    Args:
        scans: A folder, or a sequence of folders and scans: files, points (N, 3), and the other forms that
            `as_cloud` takes.
        out: Folder for finished descriptions and pairs. A stopped run continues there and gives the same
            bits; scans can be added later. None uses a temporary folder.
        model: Weights: a name, a file, or the folder of a training run.
        resolution: Working resolution, in the scans' unit. None derives it from all scans.
        keypoints: Keypoints per scan.
        more_keypoints: Keypoints per unconnected scan in a second round; 0: no second round.
        neighbours: Number of most similar scans that each scan is registered with. Of up to 25 scans, all
            pairs are registered.
        priors: Known poses. True takes the poses of the stations in E57 and PTX files. Otherwise poses
            T_world_scan (4, 4) by scan, or a JSON file of them, such as poses.json of another run.
        control: Control points, or a CSV file with the columns scan, x, y, z (in the scan), X, Y, Z (in the
            world), and optionally sigma and name. Scans have the names of their files.
        reference: Scan whose coordinates are those of the result. By default, known poses and control points
            determine the frame; without them it is that of the first scan of each component.
        up: Up in the scans, as for `register`: one direction for all, directions by scan, or a CSV file with
            the columns scan, x, y, z. The result then is level: its z axis points up.
        prior_sigma: Standard deviation of the position of known poses, in the scans' unit. None takes 20
            times the resolution.
        prior_angle: Standard deviation of the rotation of known poses, in degrees.
        control_sigma: Standard deviation of control points without their own, in the scans' unit. None takes
            a fifth of the resolution.
        up_angle: Standard deviation of up, in degrees.
        device: Device of the computation: "cpu", "cuda", or "auto" (CUDA where available).
        seed: Seed of all random choices.
        executor: Runs jobs in this process (default), in processes, or on a Dask cluster; see
            `wsdesc.core.executors`.
        progress: Hook that is entered around each step, for progress bars.
        unknown: Not accepted. The error names the options.

    Returns:
        Poses, accepted and rejected edges, and the scans that were not placed.

    Raises:
        WSDescError: Fewer than two scans can be read, an option is invalid, or `out` cannot be written.
    """
    o = ReconstructOptions.read(
        {
            "model": model,
            "resolution": resolution,
            "keypoints": keypoints,
            "more_keypoints": more_keypoints,
            "neighbours": neighbours,
            "device": device,
            "seed": seed,
            **unknown,
        }
    )
    sigmas = {"prior_sigma": prior_sigma, "prior_angle": prior_angle}
    sigmas |= {"control_sigma": control_sigma, "up_angle": up_angle}
    given: dict[str, Any] = {"priors": priors, "control": control, "reference": reference, "up": up}
    given["options"] = KnownOptions.read(sigmas)
    with _run_folder(out) as folder:
        runner = Runner(folder, executor or Serial(), progress or no_progress)
        return _reconstruct(scans, None if out is None else Path(out), o, given, runner)


def _reconstruct(
    scans: Scans, out: Path | None, o: ReconstructOptions, given: dict[str, Any], runner: Runner
) -> Reconstruction:
    paths, failed = as_files(scans, runner.cache, out)
    known = read_known(paths, **given)
    files = [HashedScan(str(path.absolute()), content_of(path)) for path in paths.values()]
    names, files, surveys = _usable(list(paths), files, runner.survey(files), failed)
    settings = _settings(o, surveys)
    jobs, descriptions = runner.describe(files, settings)
    names, jobs, described = _usable(names, jobs, descriptions, failed)

    radii = np.array([scan.radius for scan in described])
    signatures = signatures_of_scans(jobs, o.seed)
    registered = runner.register(first_pairs(signatures, o.neighbours), jobs)
    with runner.progress("place scans", 0):
        placement = place_scans([pair.edges for pair in registered.values()], radii)
    retry = connecting_pairs(placement.graph.components, registered, signatures, o.neighbours)
    if retry and o.more_keypoints > o.keypoints:
        registered = _register_again(retry, registered, jobs, o.more_keypoints, runner)
        with runner.progress("place scans again", 0):
            placement = place_scans([pair.edges for pair in registered.values()], radii)

    local_frames = [np.array(scan.T_scan_local) for scan in described]
    return _build_result(
        names, failed, paths, registered, placement, local_frames, settings.resolution, known
    )


def _register_again(
    pairs: Sequence[Pair],
    registered: dict[Pair, RegisteredPair],
    jobs: Sequence[DescribeJob],
    keypoints: int,
    runner: Runner,
) -> dict[Pair, RegisteredPair]:
    """Register pairs with more keypoints; each pair keeps the result of higher confidence."""
    scans = sorted({scan for pair in pairs for scan in pair})
    larger = dict(zip(scans, runner.describe_more([jobs[k] for k in scans], keypoints), strict=True))
    retried = runner.register(pairs, [larger.get(k, job) for k, job in enumerate(jobs)], "register again")
    better = {
        pair: result
        for pair, result in retried.items()
        if pair not in registered or result.confidence > registered[pair].confidence
    }
    return dict(sorted((registered | better).items()))


def _build_result(
    names: list[str],
    failed: dict[str, str],
    paths: dict[str, Path],
    registered: dict[Pair, RegisteredPair],
    placement: Placement,
    local_frames: list[Pose],
    resolution: float,
    known: Known,
) -> Reconstruction:
    """Express poses and edges in names and coordinates of the files."""
    geo = georeference(names, placement, local_frames, resolution, known)

    def in_files(T_b_a: Pose, a: int, b: int) -> Pose:
        T = T_b_a.copy()
        T[:3, 3] *= resolution / INDOOR_RESOLUTION
        return in_scan_frames(T, local_frames[a], local_frames[b])

    edges, best = [], dict[int, float]()  # highest confidence per scan
    for (ends, pair), placed in zip(registered.items(), geo.placement.edges, strict=True):
        for scan in ends:
            best[scan] = max(pair.confidence, best.get(scan, 0.0))
        a, b, T, numbers, rmse = *ends, None, (0.0, 0.0, 0), None
        if placed.edge is not None:
            a, b = placed.edge.source, placed.edge.target
            T = in_files(placed.edge.T_target_source, a, b)
            rank = next(k for k, edge in enumerate(pair.edges) if edge is placed.edge)
            numbers = (placed.edge.confidence, pair.overlaps[rank], rank)
            rmse = placed.edge.rmse * resolution / INDOOR_RESOLUTION
        edges.append(
            EdgeResult(
                names[a], names[b], T, *numbers, pair.keypoints, placed.rejection, placed.deviation, rmse
            )
        )
    placed_scans = [k for scans in geo.components for k in scans]
    placed_set = set(placed_scans)
    alone = {
        name: f"no overlap with another scan found; its best pair has a confidence of {best.get(k, 0):.2f}"
        for k, name in enumerate(names)
        if k not in placed_set
    }
    return Reconstruction(
        T_world_scan={names[k]: geo.T_world_scan[k] for k in placed_scans},
        components=[[names[k] for k in scans] for scans in geo.components],
        not_placed=failed | alone,
        edges=edges,
        resolution=resolution,
        paths=paths,
        covariances={names[k]: geo.covariances[k] for k in placed_scans},
        known=geo.known,
        in_world=geo.in_world,
    )


def _settings(o: ReconstructOptions, surveys: Sequence[ScanSurvey]) -> DescribeSettings:
    """Choose the settings that all descriptions share."""
    scale = Scale.combine([scan.spacing for scan in surveys], [scan.extent for scan in surveys])
    return DescribeSettings(
        model=o.model,
        weights=content_of(pretrained.find(o.model)),
        resolution=o.resolution or scale.resolution,
        keypoints=o.keypoints,
        max_keypoints=max(o.keypoints, o.more_keypoints),
        device=o.device,
        seed=o.seed,
    )


def _usable(
    names: list[str], items: list[T], results: Sequence[U | FailedScan], failed: dict[str, str]
) -> tuple[list[str], list[T], list[U]]:
    """Drop failed scans, and add them with the reasons to `failed`."""
    rows = list(zip(names, items, results, strict=True))
    failed |= {name: result.error for name, _, result in rows if isinstance(result, FailedScan)}
    usable = [(name, item, result) for name, item, result in rows if not isinstance(result, FailedScan)]
    if len(usable) < 2:
        reasons = "".join(f"; {name} was left out: {reason}" for name, reason in list(failed.items())[:3])
        raise InputError(f"at least two readable scans are required, found {len(usable)}{reasons}")
    kept_names, kept_items, kept_results = zip(*usable, strict=True)
    return list(kept_names), list(kept_items), list(kept_results)


@contextmanager
def _run_folder(out: str | Path | None) -> Iterator[Path]:
    """Yield the locked folder of a run, or a temporary one."""
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder).absolute()
    else:
        with locked(Path(out)):
            yield Path(out).absolute()
