"""`wsdesc map`: a map of many scans, or of one large cloud, in which other scans are located."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from wsdesc.cli.checks import check_exist, check_model_and_device
from wsdesc.cli.options import AsJson, Device, Model, Seed, field_option
from wsdesc.cli.output import continue_hint, print_table, print_warnings, progress_bars
from wsdesc.mapping.options import MapOptions

_DEFAULTS = MapOptions()


def build_map(
    scans: Annotated[
        list[Path],
        typer.Argument(
            help="Scans in one frame: files, or a folder; the folder that `wsdesc reconstruct` wrote; or the "
            "file of one large cloud."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the map, such as site.map.")],
    as_json: AsJson = False,
    model: Model = _DEFAULTS.model,
    resolution: Annotated[float | None, field_option(MapOptions, "resolution")] = _DEFAULTS.resolution,
    points_per_keypoint: Annotated[
        float, field_option(MapOptions, "points_per_keypoint")
    ] = _DEFAULTS.points_per_keypoint,
    device: Device = _DEFAULTS.device,
    seed: Seed = _DEFAULTS.seed,
) -> None:
    """Build a map of SCANS. The same command continues an interrupted run.

    Exit code: 0 for a complete map, 2 for bad input.
    """
    options: dict[str, Any] = {"model": model, "resolution": resolution, "device": device, "seed": seed}
    options["points_per_keypoint"] = points_per_keypoint
    MapOptions.read(options)
    check_exist(scans)
    check_model_and_device(model, device)
    with continue_hint(), progress_bars() as progress:
        from wsdesc.mapping.site_map import Map

        built = Map.build(scans[0] if len(scans) == 1 else scans, out, progress=progress, **options)
    summary = {
        "path": str(built.path),
        "resolution": built.resolution,
        "tiles": built.tiles,
        "points": built.points,
        "keypoints": built.keypoints,
        "bytes": built.bytes,
        "scans": len(built.sources),
        "warnings": built.warnings,
    }
    if as_json:
        print(json.dumps(summary))
    else:
        rows = [
            ("map", f"{built.path}, {built.bytes / 1e6:.1f} MB"),
            ("files", str(len(built.sources))),
            ("points", f"{built.points} in {built.tiles} tiles, one for each {built.resolution:.4g}"),
            ("keypoints", str(built.keypoints)),
        ]
        print_table("map", rows)
    print_warnings(built.warnings)
