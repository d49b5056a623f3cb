"""`wsdesc reconstruct`: the poses of many scans in one frame, and their merged cloud."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wsdesc.cli.checks import check_model_and_device, check_outputs, check_view
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
from wsdesc.cli.output import exit_unless, print_table, print_warnings, print_written, progress_bars
from wsdesc.core.errors import InputError
from wsdesc.reconstruction.options import ReconstructOptions

if TYPE_CHECKING:
    from wsdesc.core.progress import Advance
    from wsdesc.reconstruction.pipeline import Reconstruction

_DEFAULTS = ReconstructOptions()


def reconstruct(
    scans: Annotated[list[Path], typer.Argument(help="Scan files, or folders of scans.")],
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
    voxel: Annotated[
        float | None,
        typer.Option(help="Voxel size of the merged cloud (default: half the working resolution)."),
    ] = None,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    device: Device = _DEFAULTS.device,
    seed: Seed = _DEFAULTS.seed,
) -> None:
    """Put many overlapping SCANS into one frame. The same command continues an interrupted run.

    Exit code: 0 if all scans are placed in one frame, 1 if not, 2 for bad input.
    """
    options: dict[str, Any] = {"model": model, "resolution": resolution, "keypoints": keypoints}
    options |= {"more_keypoints": more_keypoints, "neighbours": neighbours, "device": device, "seed": seed}
    ReconstructOptions.read(options)
    if voxel is not None and not voxel > 0:
        raise InputError(f"--voxel: must be a positive length, not {voxel}")
    check_model_and_device(model, device)
    check_view(view, port)
    paths = _find_scans(scans, out)
    with progress_bars() as progress:
        from wsdesc.core.executors import choose_executor
        from wsdesc.core.folders import locked, make_folder

        if save is not None:
            make_folder(out)  # the page may be written into it
            check_outputs({save: (".html",)}, paths)
        from wsdesc.reconstruction.pipeline import assemble

        with closing(choose_executor(jobs, scheduler)) as executor, locked(out):
            result = assemble(paths, out, executor, progress, **options)
            with progress("merge", len(result.T_world_scan)) as advance:
                written = write_model(result, out, voxel, advance)
        scene = None
        if (view or save is not None) and result.T_world_scan:
            with progress("draw", 0):
                from wsdesc.view.page import save_page
                from wsdesc.view.results import reconstruction_scene

                scene = reconstruction_scene(result)
                if save is not None:
                    save_page(scene, save)
                    written.append(save)
    if as_json:
        print(json.dumps(poses_of(result)))
    else:
        _print_result(result)
        print_written(written)
    print_warnings(f"{name} was not placed: {reason}" for name, reason in result.not_placed.items())
    if view and scene is not None:
        from wsdesc.cli.view import serve_page

        serve_page(scene, port)
    exit_unless(result.complete)


def _find_scans(places: list[Path], out: Path) -> list[Path]:
    """List the scans in files and folders in natural order, without the results of earlier runs."""
    from wsdesc.datasets.scans import find_sequences
    from wsdesc.reconstruction.options import JOURNAL

    scans = [scan for sequence in find_sequences(places) for scan in sequence.scans]
    for scan in scans:
        if scan.row is not None:
            raise InputError(f"{scan.path}: a collection of shapes; one scan per file is required")
    own = out.resolve()
    paths = [scan.path for scan in scans if own not in scan.path.resolve().parents]
    if not paths:
        raise InputError(f"{out}: all scans are in the folder of the results: choose another --out")
    # A folder with a journal holds the results of another run.
    return [path for path in paths if not any((p / JOURNAL).exists() for p in path.resolve().parents)]


def _print_result(result: Reconstruction) -> None:
    accepted = sum(pair.rejected is None for pair in result.pairs)
    rows = [
        ("scans", f"{len(result.T_world_scan)} placed, {len(result.not_placed)} not placed"),
        ("frames", ", ".join(f"{len(scans)} scans" for scans in result.components) or "none"),
        ("edges", f"{accepted} accepted of {len(result.pairs)} registered pairs"),
        ("resolution", f"{result.resolution:.4g}"),
    ]
    print_table("reconstruction", rows)


def write_model(
    found: Reconstruction, out: Path, voxel: float | None = None, advance: Advance = lambda done: None
) -> list[Path]:
    """Write poses, graph, report, and the merged cloud of each frame; the paths."""
    texts = {
        "poses.json": json.dumps(poses_of(found), indent=1),
        "poses.tum": tum_of(found),
        "graph.json": json.dumps(graph_of(found), indent=1),
        "report.md": report_of(found),
    }
    from wsdesc.cloud.files import read_points, write_points
    from wsdesc.cloud.merge import VoxelMerge
    from wsdesc.core.atomic import atomic_write

    clouds = ["merged.ply", *(f"merged_{k}.ply" for k in range(2, len(found.components) + 1))]
    for name, scans in zip(clouds, found.components, strict=False):
        merged = VoxelMerge(voxel or found.resolution / 2)
        for scan in scans:  # one at a time is in memory
            merged.add(read_points(found.paths[scan], nonfinite="drop"), found.T_world_scan[scan])
            advance(1)
        write_points(out / name, merged.points)
    for old in out.glob("merged*.ply"):  # of an earlier run that found more frames
        if re.fullmatch(r"merged(_\d+)?\.ply", old.name) and old.name not in clouds[: len(found.components)]:
            old.unlink(missing_ok=True)
    for name, text in texts.items():
        with atomic_write(out / name) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
    return [out / name for name in (*texts, *clouds[: len(found.components)])]


def poses_of(found: Reconstruction) -> dict[str, Any]:
    """What a program wants to know: where each scan is, or why nowhere."""
    frame = {name: k for k, scans in enumerate(found.components) for name in scans}
    return {
        "complete": found.complete,
        "resolution": found.resolution,
        "frames": [{"reference": scans[0], "scans": scans} for scans in found.components],
        "scans": {
            name: {"file": str(found.paths[name]), "frame": frame[name], "T_world_scan": T.tolist()}
            for name, T in found.T_world_scan.items()
        },
        "not_placed": found.not_placed,
    }


def tum_of(found: Reconstruction) -> str:
    """The poses of the first frame, a line each as in trajectories; a number takes the place of the time."""
    from scipy.spatial.transform import Rotation

    lines = ["# number tx ty tz qx qy qz qw"]
    order = list(found.paths)
    for name in sorted(found.components[0] if found.components else [], key=order.index):
        T = found.T_world_scan[name]
        values = (*T[:3, 3], *Rotation.from_matrix(T[:3, :3]).as_quat())
        lines += [f"# {name}", f"{order.index(name)} " + " ".join(f"{v:.12g}" for v in values)]
    return "\n".join(lines)


def graph_of(found: Reconstruction) -> dict[str, Any]:
    """Every pair that was tried, and what became of it."""
    edges = []
    for pair in found.pairs:
        edge = pair._asdict() | {"accepted": pair.rejected is None}
        if pair.T_target_source is not None:
            edge["T_target_source"] = pair.T_target_source.tolist()
        edges.append(edge)
    return {"scans": list(found.paths), "edges": edges}


def report_of(found: Reconstruction) -> str:
    """The same for people."""
    accepted = [pair for pair in found.pairs if pair.rejected is None]
    total = len(found.paths) + sum(name not in found.paths for name in found.not_placed)
    lines = ["# Reconstruction", ""]
    lines += [f"{len(found.T_world_scan)} of {total} scans were placed, in {len(found.components)} frame(s). "
              f"{len(found.pairs)} pairs were registered, {len(accepted)} of them are believed. "
              f"The working resolution is {found.resolution:.4g}.", ""]  # fmt: skip
    for number, scans in enumerate(found.components):
        cloud = "merged.ply" if number == 0 else f"merged_{number + 1}.ply"
        inside = set(scans)
        lines += [f"## Frame {number + 1}: that of {scans[0]}, merged in {cloud}", ""]
        lines += ["| scan | believed pairs | best confidence | moved by |", "|---|---|---|---|"]
        for name in scans:
            own = [p for p in accepted if name in (p.source, p.target) and {p.source, p.target} <= inside]
            x, y, z = found.T_world_scan[name][:3, 3]
            sure = max(p.confidence for p in own)
            lines.append(f"| {_cell(name)} | {len(own)} | {sure:.3f} | {x:.4g}, {y:.4g}, {z:.4g} |")
        lines.append("")
    if found.not_placed:
        lines += ["## Not placed", ""]
        lines += [f"- {name}: {reason}" for name, reason in found.not_placed.items()] + [""]
    lines += ["## Pairs", "", "| source | target | confidence | overlap | deviation | verdict |"]
    lines += ["|---|---|---|---|---|---|"]
    for p in sorted(found.pairs, key=lambda p: -p.confidence):
        off = "" if p.deviation is None else f"{p.deviation:.1f} σ"
        what = f"{p.confidence:.3f} | {p.overlap:.0%} | {off} | {p.rejected or 'believed'}"
        lines.append(f"| {_cell(p.source)} | {_cell(p.target)} | {what} |")
    return "\n".join(lines)


def _cell(name: str) -> str:
    return name.replace("|", "\\|")
