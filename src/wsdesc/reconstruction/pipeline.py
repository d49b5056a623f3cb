"""Reconstruct: find the poses of many scans in one frame.

read → describe → select pairs → register pairs → reject wrong edges → pose graph. Unconnected scans are
registered once more with more keypoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.executors import Executor, open_executor
from wsdesc.core.file_parts import as_path
from wsdesc.core.progress import ProgressHook
from wsdesc.descriptor.options import DEFAULT_MODEL
from wsdesc.reconstruction.assembly import Assembly, assemble
from wsdesc.reconstruction.control import ControlPoint
from wsdesc.reconstruction.growth import extend, renamed
from wsdesc.reconstruction.inputs import Scans, as_files
from wsdesc.reconstruction.known import read_known
from wsdesc.reconstruction.members import (
    check_count,
    common_resolution,
    describe_members,
    describe_settings,
    hash_scans,
    readable_scans,
    separate_duplicates,
    weights_of,
)
from wsdesc.reconstruction.model_file import MODEL
from wsdesc.reconstruction.options import KnownOptions, ReconstructOptions
from wsdesc.reconstruction.result import Reconstruction
from wsdesc.reconstruction.runner import Runner, open_runner


def reconstruct(
    scans: Scans,
    out: str | Path | None = None,
    *,
    model: str | Path = DEFAULT_MODEL,
    resolution: float | None = None,
    keypoints: int = 2000,
    more_keypoints: int = 4000,
    neighbours: int = 10,
    distinct: bool = False,
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
    fixed: bool = False,
    jobs: int = 1,
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
            bits. If `Reconstruction.save` wrote a model with the same options into it, only new scans are
            described, and only pairs with new scans are registered. None uses a temporary folder.
        model: Weights: a name, a file, or the folder of a training run.
        resolution: Working resolution, in the scans' unit. None derives it from all scans.
        keypoints: Keypoints per scan.
        more_keypoints: Keypoints per unconnected scan in a second round; 0: no second round.
        neighbours: Number of most similar scans that each scan is registered with. Of up to 25 scans, all
            pairs are registered.
        distinct: No two parts of the place are equal. Then the checks for repetitive structure are skipped,
            which leave scans out.
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
        fixed: Keep the poses of scans that a model in `out` has placed.
        jobs: Number of processes. Processes are spawned, so a script that uses more than one needs
            `if __name__ == "__main__":`. The result is the same.
        executor: Runs the work instead, for example on a Dask cluster; see `wsdesc.core.executors`.
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
            "distinct": distinct,
            "device": device,
            "seed": seed,
            **unknown,
        }
    )
    sigmas = {"prior_sigma": prior_sigma, "prior_angle": prior_angle}
    sigmas |= {"control_sigma": control_sigma, "up_angle": up_angle}
    given: dict[str, Any] = {"priors": priors, "control": control, "reference": reference, "up": up}
    given["options"] = KnownOptions.read(sigmas)
    folder = None if out is None else as_path(out, "out")
    with (
        open_executor(executor, jobs, o.device) as opened,
        open_runner(folder, opened, progress) as runner,
    ):
        return _reconstruct(scans, folder, o, given, fixed, runner)


def _reconstruct(
    scans: Scans,
    out: Path | None,
    o: ReconstructOptions,
    given: dict[str, Any],
    fixed: bool,
    runner: Runner,
) -> Reconstruction:
    paths, failed = as_files(scans, runner.cache, out)
    known = read_known(paths, **given)
    if fixed and not known.empty:
        raise InputError("fixed poses and known poses, control points, up or a reference: use one of them")
    files, duplicates = separate_duplicates(hash_scans(paths))
    files, surveys = readable_scans(files, runner, failed)
    check_count(len(files), failed, duplicates)
    weights = weights_of(o)
    base = _earlier_model(out, o, weights)
    resolution = o.resolution or (base.resolution if base else common_resolution(surveys))
    settings = describe_settings(o, resolution, weights)
    if base is not None:
        base = renamed(base, {file.content: name for name, file in files.items()})
        assembly = extend(base, files, settings, runner, failed)
    else:
        assembly = Assembly(describe_members(files, settings, runner, failed), settings, o)
    check_count(len(assembly.members), failed, duplicates)
    assembly = replace(assembly, options=o, fixed=fixed, known=known, paths=paths, failed=failed)
    assembly = replace(assembly, duplicates=duplicates)
    return replace(assemble(assembly, runner), folder=out)


def _earlier_model(out: Path | None, o: ReconstructOptions, weights: str) -> Reconstruction | None:
    """Read the model that an earlier run with the same options saved; None if it does not help."""
    if out is None or not (out / MODEL).exists():
        return None
    try:
        model = Reconstruction.load(out)
    except FileFormatError:
        return None  # it is reconstructed again, and replaced
    if model.state is None or model.state.weights != weights:
        return None
    used = model.state.options
    same = used == (o if o.resolution else o.model_copy(update={"resolution": used.resolution}))
    return model if same else None
