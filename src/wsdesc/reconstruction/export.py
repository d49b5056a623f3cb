"""Write the result of a reconstruction into a folder, and read it back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wsdesc.cloud.crs import read_crs_option
from wsdesc.cloud.merge import VoxelMerge
from wsdesc.cloud.storage import Record, Storage
from wsdesc.cloud.write import write_cloud
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.folders import file_of_name, make_folder, relative_name
from wsdesc.core.geometry import Floats, check_length, check_rigid
from wsdesc.core.json_file import read_object
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.reconstruction import model_file
from wsdesc.reconstruction.distances import ScanSample
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.known import KnownResult
from wsdesc.reconstruction.model_file import MODEL
from wsdesc.reconstruction.options import POSES
from wsdesc.reconstruction.report_html import report_html
from wsdesc.reconstruction.result import Reconstruction
from wsdesc.reconstruction.scan_export import frame_crs, read_scan
from wsdesc.reconstruction.trajectories import g2o_text, tum_text

TUM, G2O, GRAPH = "poses.tum", "poses.g2o", "graph.json"
REPORT, PAGE = "report.md", "report.html"
MERGED = ("ply", "laz", "las", "pcd")  # formats of merged clouds
_LARGEST_FILE = 1 << 30  # bytes of a JSON file that is read


def save(
    result: Reconstruction,
    folder: Path,
    voxel: float | None = None,
    progress: ProgressHook | None = None,
    merged: str | None = "ply",
    crs: str | None = None,
) -> list[Path]:
    """Write all files of a result; see `Reconstruction.save`."""
    if voxel is not None:
        check_length(voxel, "voxel")
    if merged is not None and merged not in MERGED:
        raise InputError(f"merged must be one of {', '.join(MERGED)}, or None, not {merged!r}")
    records = read_crs_option(crs) if crs else ()
    make_folder(folder)
    files = {name: relative_name(path, folder) for name, path in result.paths.items()}
    texts = {
        POSES: json.dumps(poses_dict(result) | {"files": files}, indent=1),
        TUM: tum_text(result),
        G2O: g2o_text(result),
        GRAPH: json.dumps(graph_dict(result), indent=1),
        REPORT: report_text(result),
    }
    progress = progress or no_progress
    extension = None if merged is None else f".{merged}"
    voxel = voxel or result.resolution / 2
    clouds, samples = _save_merged(result, folder, voxel, extension, records, progress)
    with progress("report", 0):
        texts[PAGE] = report_html(result, samples)
    for name, text in texts.items():
        with atomic_write(folder / name) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
    written = [folder / name for name in (*texts, *clouds)]
    if result.state is None:
        (folder / MODEL).unlink(missing_ok=True)  # of an earlier result
        return written
    return [*written, model_file.write(folder, result.state, {name: texts[name] for name in (POSES, GRAPH)})]


def load(folder: Path) -> Reconstruction:
    """Read a result from model.npz, or from poses.json and graph.json if there is none."""
    if (folder / MODEL).exists():
        state, texts = model_file.read(folder)
        try:
            poses, graph = json.loads(texts[POSES]), json.loads(texts[GRAPH])
        except (ValueError, KeyError, RecursionError) as error:
            raise FileFormatError(f"{folder / MODEL}: damaged") from error
    else:
        if not (folder / POSES).exists():
            raise FileFormatError(
                f"{folder}: no reconstruction in this folder (no {MODEL} and no {POSES}): make one with "
                "`wsdesc reconstruct SCANS -o FOLDER`, or name its folder"
            )
        state, poses, graph = None, _read_json(folder / POSES), _read_json(folder / GRAPH)
    try:
        return Reconstruction(
            T_world_scan={
                str(name): _pose(scan["T_world_scan"], str(name)) for name, scan in poses["scans"].items()
            },
            components=[[str(name) for name in frame["scans"]] for frame in poses["frames"]],
            not_placed={str(name): str(reason) for name, reason in poses["not_placed"].items()},
            edges=[_edge(values) for values in graph["edges"]],
            resolution=float(poses["resolution"]),
            paths={str(name): file_of_name(path, folder) for name, path in poses["files"].items()},
            covariances={
                str(name): _covariance(scan["covariance"])
                for name, scan in poses["scans"].items()
                if "covariance" in scan
            },
            known=[_known(values) for values in poses.get("known", [])],
            in_world=bool(poses.get("in_world", False)),
            duplicates={str(name): str(other) for name, other in poses.get("duplicates", {}).items()},
            state=state,
            folder=folder,
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, InputError) as error:
        raise FileFormatError(f"{folder}: not a result that `Reconstruction.save` wrote") from error


def poses_dict(result: Reconstruction) -> dict[str, Any]:
    """Return the content of poses.json."""
    frame = {name: number for number, scans in enumerate(result.components) for name in scans}
    return {
        "complete": result.complete,
        "resolution": result.resolution,
        "in_world": result.in_world,
        "frames": [{"reference": scans[0], "scans": scans} for scans in result.components],
        "scans": {
            name: {"file": str(result.paths[name]), "frame": frame[name], "T_world_scan": T.tolist()}
            | ({"covariance": result.covariances[name].tolist()} if name in result.covariances else {})
            for name, T in result.T_world_scan.items()
        },
        "not_placed": result.not_placed,
        "known": [item.to_dict() for item in result.known],
        "duplicates": result.duplicates,
        "files": {name: str(path) for name, path in result.paths.items()},
    }


def graph_dict(result: Reconstruction) -> dict[str, Any]:
    """Return the content of graph.json: all edges, accepted and rejected."""
    return {"scans": list(result.paths), "edges": [edge.to_dict() for edge in result.edges]}


def report_text(result: Reconstruction) -> str:
    """Return the report in Markdown."""
    accepted = [edge for edge in result.edges if edge.accepted]
    total = len(result.paths) + sum(name not in result.paths for name in result.not_placed)
    lines = ["# Reconstruction", ""]
    lines += [f"{len(result.T_world_scan)} of {total} scans were placed. Frames: {len(result.components)}. "
              f"Accepted edges: {len(accepted)} of {len(result.edges)} registered pairs. "
              f"Working resolution: {result.resolution:.4g}.", ""]  # fmt: skip
    for number, scans in enumerate(result.components):
        lines += [f"## Frame {number + 1}: {_frame(result, number)}", ""]
        lines += ["| scan | accepted edges | best confidence | translation |", "|---|---|---|---|"]
        for name in scans:
            own = [e for e in accepted if name in (e.source, e.target) and {e.source, e.target} <= set(scans)]
            x, y, z = result.T_world_scan[name][:3, 3]
            best = max((edge.confidence for edge in own), default=0.0)
            lines.append(f"| {_cell(name)} | {len(own)} | {best:.3f} | {x:.4g}, {y:.4g}, {z:.4g} |")
        lines.append("")
    if result.not_placed:
        lines += ["## Not placed", ""]
        lines += [f"- {name}: {reason}" for name, reason in result.not_placed.items()] + [""]
    if result.duplicates:
        lines += ["## Duplicates", ""]
        lines += [f"- {name} equals {other}" for name, other in result.duplicates.items()] + [""]
    if result.known:
        lines += ["## Known beforehand", ""]
        lines += [f"- {'used: ' if item.accepted else 'left out: '}{item}" for item in result.known] + [""]
    lines += ["## Pairs", "", "| source | target | confidence | overlap | deviation | state |"]
    lines += ["|---|---|---|---|---|---|"]
    for edge in sorted(result.edges, key=lambda edge: -edge.confidence):
        deviation = "" if edge.deviation is None else f"{edge.deviation:.1f} σ"
        state = "accepted" if edge.accepted else f"rejected: {edge.rejection}"
        numbers = f"{edge.confidence:.3f} | {edge.overlap:.0%} | {deviation} | {state}"
        lines.append(f"| {_cell(edge.source)} | {_cell(edge.target)} | {numbers} |")
    return "\n".join(lines)


def _save_merged(
    result: Reconstruction,
    folder: Path,
    voxel: float,
    extension: str | None,
    crs: tuple[Record, ...],
    progress: ProgressHook,
) -> tuple[list[str], dict[str, ScanSample]]:
    """Write the merged cloud of each component, if wanted; return the file names and samples of the scans."""
    files: list[str] = []
    samples: dict[str, ScanSample] = {}
    with progress("merge", len(result.T_world_scan)) as advance:
        for number, scans in enumerate(result.components):
            merged = VoxelMerge(voxel)
            for scan in scans:  # one scan at a time is in memory
                cloud = read_scan(result.paths[scan], sample=True)
                samples[scan] = ScanSample.of(cloud.points, seed=len(samples))
                if extension is not None:
                    merged.add_cloud(cloud, result.T_world_scan[scan])
                advance(1)
            if extension is not None:
                files.append(_cloud_name(number, extension))
                frame = crs or frame_crs(result, scans[0])
                cloud = merged.cloud
                write_cloud(
                    folder / files[-1], replace(cloud, storage=replace(cloud.storage or Storage(), crs=frame))
                )
    for old in folder.glob("merged*"):  # an earlier result may have had more components
        if re.fullmatch(r"merged(_\d+)?\.(ply|las|laz|pcd)", old.name) and old.name not in files:
            old.unlink(missing_ok=True)
    return files, samples


def _read_json(path: Path) -> dict[str, Any]:
    invalid = "not written by `Reconstruction.save`"
    return read_object(path, largest=_LARGEST_FILE, kind="a reconstruction", invalid=invalid)


def _edge(values: dict[str, Any]) -> EdgeResult:
    fields = {name: value for name, value in values.items() if name != "accepted"}
    if fields["T_target_source"] is not None:
        fields["T_target_source"] = _pose(fields["T_target_source"], "T_target_source")
    if fields.get("information") is not None:
        fields["information"] = _covariance(fields["information"])
    return EdgeResult(**fields)


def _known(values: dict[str, Any]) -> KnownResult:
    return KnownResult(**{name: value for name, value in values.items() if name != "accepted"})


def _covariance(rows: Any) -> Floats:
    covariance = np.array(rows, dtype=np.float64)
    if covariance.shape != (6, 6) or not np.isfinite(covariance).all():
        raise ValueError("a covariance is not a finite 6 × 6 matrix")
    return covariance


def _pose(rows: Any, name: str) -> Floats:
    return check_rigid(np.array(rows, dtype=np.float64), name)


def _cloud_name(component: int, extension: str) -> str:
    return f"merged{extension}" if component == 0 else f"merged_{component + 1}{extension}"


def _frame(result: Reconstruction, number: int) -> str:
    return "the world" if number == 0 and result.in_world else f"that of {result.components[number][0]}"


def _cell(name: str) -> str:
    """Escape a name for a cell of a Markdown table."""
    return name.replace("|", "\\|")
