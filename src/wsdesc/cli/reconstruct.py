"""`wsdesc reconstruct`: many scans to one model, and the files it writes."""

from __future__ import annotations

import json
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wsdesc.cli.output import print_table, progress
from wsdesc.cli.register import check_outputs
from wsdesc.cli.view import Port, Save, View, check_view, look

if TYPE_CHECKING:
    from wsdesc.core.progress import Advance
    from wsdesc.reconstruction.pipeline import Reconstruction


def reconstruct(
    scans: Annotated[list[Path], typer.Argument(help="Folders of scans, or scans one by one.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for poses, merged cloud and report.")],
    view: View = False,
    save: Save = None,
    port: Port = None,
    as_json: Annotated[bool, typer.Option("--json", help="Poses as JSON on stdout, nothing else.")] = False,
    model: Annotated[str, typer.Option(help="Weights by name or path.")] = "indoor-fast",
    resolution: Annotated[
        float | None, typer.Option(help="Working resolution in the scans' unit; found if not given.")
    ] = None,
    keypoints: Annotated[int, typer.Option(min=3, help="Of each scan.")] = 2000,
    more_keypoints: Annotated[
        int, typer.Option(min=0, help="The same, for a second try with scans that found no place; 0: none.")
    ] = 4000,
    neighbours: Annotated[
        int, typer.Option(min=1, help="Similar scans that each is registered with, if there are many.")
    ] = 10,
    voxel: Annotated[
        float | None, typer.Option(help="Of the merged cloud, in the scans' unit; half the resolution.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
    scheduler: Annotated[
        str | None, typer.Option(help="Dask scheduler that spreads the work, as tcp://host:8786.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same bits.")] = 0,
) -> None:
    """Put many overlapping SCANS into one frame. A run that was stopped goes on where it was.

    Exits with 0 if all scans found their place in one frame, with 1 if not, with 2 for bad input.
    """
    check_view(view, port)
    options: dict[str, Any] = {"model": model, "resolution": resolution, "keypoints": keypoints}
    options |= {"more_keypoints": more_keypoints, "neighbours": neighbours, "device": device, "seed": seed}
    with progress() as watch:
        from wsdesc.core.errors import InputError
        from wsdesc.core.executors import choose_executor
        from wsdesc.core.folders import locked, make_folder
        from wsdesc.reconstruction.pipeline import assemble

        if voxel is not None and not voxel > 0:
            raise InputError(f"voxel: must be a positive length, not {voxel}")
        paths = find_scans(scans, out)
        if save is not None:
            make_folder(out)  # the page may lie there too
            check_outputs({save: (".html",)}, tuple(paths))
        with closing(choose_executor(jobs, scheduler)) as executor, locked(out):
            found = assemble(paths, out, executor, watch, **options)
            with watch("merge", len(found.T_world_scan)) as advance:
                written = write_model(found, out, voxel, advance)
        scene = None
        if (view or save is not None) and found.T_world_scan:
            with watch("draw", 0):
                from wsdesc.view.page import save_page
                from wsdesc.view.results import reconstruction_scene

                scene = reconstruction_scene(found)
                if save is not None:
                    save_page(scene, save)
                    written.append(save)
    if as_json:
        print(json.dumps(poses_of(found)))
    else:
        _print(found, written)
    for name, reason in found.not_placed.items():
        print(f"warning: {name} was not placed: {reason}", file=sys.stderr)
    if view and scene is not None:
        look(scene, port)
    if not found.complete:
        raise typer.Exit(1)


def find_scans(places: list[Path], out: Path) -> list[Path]:
    """The scans in folders and among files, in natural order; what an earlier run wrote is none of them."""
    from wsdesc.core.errors import InputError
    from wsdesc.datasets.scans import find_sequences
    from wsdesc.reconstruction.pipeline import JOURNAL

    found = [scan for sequence in find_sequences(places) for scan in sequence.scans]
    for scan in found:
        if scan.row is not None:
            raise InputError(f"{scan.path}: is a collection of shapes; needed are scans, one a file")
    own = out.resolve()
    paths = [scan.path for scan in found if own not in scan.path.resolve().parents]
    if not paths:
        raise InputError(f"{out}: all scans lie in the folder of the results: name another --out")
    # Results of other runs, which lie in a folder with a journal.
    return [path for path in paths if not any((p / JOURNAL).exists() for p in path.resolve().parents)]


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


def _print(found: Reconstruction, written: list[Path]) -> None:
    accepted = sum(pair.rejected is None for pair in found.pairs)
    rows = [
        ("placed", f"{len(found.T_world_scan)} scans, {len(found.not_placed)} not"),
        ("frames", ", ".join(f"{len(scans)} scans" for scans in found.components) or "none"),
        ("pairs", f"{accepted} of {len(found.pairs)} believed"),
        ("resolution", f"{found.resolution:.4g}"),
    ]
    print_table("reconstruction", rows)
    print("written:", ", ".join(map(str, written)))
