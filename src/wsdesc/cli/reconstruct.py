"""`wsdesc reconstruct`: the poses of many scans in one frame, and their merged cloud."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from wsdesc.cli.checks import check_model_and_device, check_outputs, check_view
from wsdesc.cli.grow import Fixed, Voxel, check_voxel, print_model
from wsdesc.cli.options import (
    AsJson,
    Device,
    Jobs,
    Model,
    Port,
    SavePage,
    Scheduler,
    Seed,
    View,
    field_option,
)
from wsdesc.cli.output import continue_hint, exit_unless, print_warnings, progress_bars
from wsdesc.core.errors import InputError
from wsdesc.reconstruction.options import KnownOptions, ReconstructOptions

_DEFAULTS = ReconstructOptions()
_KNOWN = KnownOptions()


def reconstruct(
    scans: Annotated[
        list[Path],
        typer.Argument(
            help="Scan files, or folders of scans. Every station of an E57 or PTX file is a scan."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for poses, merged cloud and report.")],
    view: View = False,
    save: SavePage = None,
    port: Port = None,
    as_json: AsJson = False,
    model: Model = _DEFAULTS.model,
    resolution: Annotated[
        float | None, field_option(ReconstructOptions, "resolution")
    ] = _DEFAULTS.resolution,
    keypoints: Annotated[int, field_option(ReconstructOptions, "keypoints")] = _DEFAULTS.keypoints,
    more_keypoints: Annotated[
        int, field_option(ReconstructOptions, "more_keypoints")
    ] = _DEFAULTS.more_keypoints,
    neighbours: Annotated[int, field_option(ReconstructOptions, "neighbours")] = _DEFAULTS.neighbours,
    distinct: Annotated[
        bool, field_option(ReconstructOptions, "distinct", "--distinct")
    ] = _DEFAULTS.distinct,
    fixed: Fixed = False,
    voxel: Voxel = None,
    merged: Annotated[
        str, typer.Option(metavar="FORMAT", help="Format of the merged cloud: ply, laz, las, pcd, or none.")
    ] = "ply",
    tiles: Annotated[
        Path | None,
        typer.Option(help="Folder for the merged cloud in tiles (.laz): for clouds larger than memory."),
    ] = None,
    tile_size: Annotated[
        float | None, typer.Option(help="Side of a tile, in the scans' unit (default: 1024 voxels).")
    ] = None,
    write_scans: Annotated[
        Path | None,
        typer.Option(help="Folder for every scan, moved into the frame, with its attributes and format."),
    ] = None,
    write_e57: Annotated[
        Path | None, typer.Option("--write-e57", help="File (.e57) for all scans with their poses.")
    ] = None,
    crs: Annotated[
        str | None,
        typer.Option(help="Coordinate system of LAS and LAZ files: EPSG:25832, or a file (.wkt, .prj)."),
    ] = None,
    priors: Annotated[
        bool, typer.Option("--priors", help="Poses of stations in E57 and PTX files are known approximately.")
    ] = False,
    prior_poses: Annotated[
        Path | None,
        typer.Option(help="File (.json) of known poses T_world_scan by scan, such as poses.json of a run."),
    ] = None,
    control: Annotated[
        Path | None,
        typer.Option(help="File (.csv) of control points: scan,x,y,z,X,Y,Z[,sigma[,name]]."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Scan whose coordinates are those of the result (default: the first).")
    ] = None,
    up: Annotated[
        str | None,
        typer.Option(
            metavar="DIRECTION",
            help="Up in all scans: x, y, z, -x, -y, -z, X,Y,Z, or a file (.csv) with scan,x,y,z.",
        ),
    ] = None,
    prior_sigma: Annotated[float | None, field_option(KnownOptions, "prior_sigma")] = _KNOWN.prior_sigma,
    prior_angle: Annotated[float, field_option(KnownOptions, "prior_angle")] = _KNOWN.prior_angle,
    control_sigma: Annotated[
        float | None, field_option(KnownOptions, "control_sigma")
    ] = _KNOWN.control_sigma,
    up_angle: Annotated[float, field_option(KnownOptions, "up_angle")] = _KNOWN.up_angle,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    device: Device = _DEFAULTS.device,
    seed: Seed = _DEFAULTS.seed,
) -> None:
    """Put many overlapping SCANS into one frame. The same command continues an interrupted run.

    With more scans, the same command registers only pairs with new ones.

    Exit code: 0 if all scans are placed in one frame, 1 if not, 2 for bad input.
    """
    options: dict[str, Any] = {"model": model, "resolution": resolution, "keypoints": keypoints}
    options |= {"more_keypoints": more_keypoints, "neighbours": neighbours, "distinct": distinct}
    options |= {"device": device, "seed": seed}
    ReconstructOptions.read(options)
    sigmas: dict[str, Any] = {"prior_sigma": prior_sigma, "prior_angle": prior_angle}
    sigmas |= {"control_sigma": control_sigma, "up_angle": up_angle}
    KnownOptions.read(sigmas)
    options |= {"priors": prior_poses or priors, "control": control, "reference": reference, "up": up}
    options |= sigmas
    if merged not in ("ply", "laz", "las", "pcd", "none"):
        raise InputError(f"--merged: {merged!r} is not a format: ply, laz, las, pcd, or none")
    if tile_size is not None:
        from wsdesc.core.geometry import check_length

        check_length(tile_size, "--tile-size")
    if control is not None:
        from wsdesc.reconstruction.control import read_control

        read_control(control)
    if crs is not None:
        from wsdesc.cloud.crs import read_crs_option

        read_crs_option(crs)
    check_voxel(voxel)
    check_model_and_device(model, device)
    check_view(view, port)
    _check_outside((tiles, write_scans, write_e57), scans, out)
    from wsdesc.reconstruction.inputs import find_scans

    paths = find_scans(scans, out)
    with continue_hint(), progress_bars() as progress:
        from wsdesc.core.executors import choose_executor
        from wsdesc.core.folders import make_folder

        if save is not None or write_e57 is not None:
            make_folder(out)  # these files may be written into it
            check_outputs({save: (".html",), write_e57: (".e57",)}, paths)
        from wsdesc.reconstruction import pipeline

        with closing(choose_executor(jobs, scheduler, device)) as executor:
            result = pipeline.reconstruct(
                paths, out, fixed=fixed, executor=executor, progress=progress, **options
            )
        written = result.save(
            out, voxel=voxel, merged=None if merged == "none" else merged, crs=crs, progress=progress
        )
        notes: list[str] = []
        if write_scans is not None:
            moved, notes = result.write_scans(write_scans, crs=crs, progress=progress)
            written += moved
        if tiles is not None and result.components:
            written += result.write_tiles(tiles, voxel=voxel, tile=tile_size, crs=crs, progress=progress)
        if write_e57 is not None and result.components:
            notes += result.write_e57(write_e57, progress=progress)
            written.append(write_e57)
        scene = None
        if (view or save is not None) and result.T_world_scan:
            with progress("draw", 0):
                from wsdesc.view.page import save_page
                from wsdesc.view.results import reconstruction_scene

                scene = reconstruction_scene(result)
                if save is not None:
                    save_page(scene, save)
                    written.append(save)
    print_model(result, written, as_json)
    print_warnings(notes)
    if view and scene is not None:
        from wsdesc.cli.view import serve_page

        serve_page(scene, port)
    exit_unless(result.complete)


def _check_outside(outputs: Sequence[Path | None], scans: Sequence[Path], out: Path) -> None:
    """Refuse outputs in a folder of scans: the next run would take them for scans."""
    for output in filter(None, outputs):
        parents = (output.resolve(), *output.resolve().parents)
        inside = [scan for scan in scans if scan.resolve() in parents]
        if inside and out.resolve() not in parents:
            raise InputError(f"{output}: is in the folder of scans {inside[0]}; choose another folder")
