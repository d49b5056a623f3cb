"""`wsdesc locate`: the pose of a scan in a map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wsdesc.cli.checks import check_inputs, check_outputs, read_viewpoint
from wsdesc.cli.options import (
    AsJson,
    Device,
    PoseFile,
    ScanFile,
    ScanViewpoint,
    Seed,
    field_option,
    join_counts,
    read_counts,
)
from wsdesc.cli.output import (
    exit_unless,
    matrix_rows,
    print_table,
    print_warnings,
    print_written,
    progress_bars,
    seconds_text,
)
from wsdesc.cli.register import print_alternatives
from wsdesc.core.devices import check_device
from wsdesc.mapping.options import LocateOptions

if TYPE_CHECKING:
    from wsdesc.mapping.result import Location

_DEFAULTS = LocateOptions()


def locate(
    scan: ScanFile,
    site: Annotated[Path, typer.Argument(metavar="MAP", help="Map that `wsdesc map` wrote.")],
    out: PoseFile = None,
    as_json: AsJson = False,
    all_poses: Annotated[
        bool, typer.Option("--all", help="Other plausible poses too, with their matrices and probabilities.")
    ] = False,
    keypoints: Annotated[str, field_option(LocateOptions, "keypoints", metavar="N,…")] = join_counts(
        _DEFAULTS.keypoints
    ),
    neighbours: Annotated[int, field_option(LocateOptions, "neighbours")] = _DEFAULTS.neighbours,
    places: Annotated[int, field_option(LocateOptions, "places")] = _DEFAULTS.places,
    viewpoint: ScanViewpoint = None,
    device: Device = _DEFAULTS.device,
    seed: Seed = _DEFAULTS.seed,
) -> None:
    """Find the pose of SCAN in MAP, without an initial guess. Lengths are in the unit of the map.

    Exit code: 0 for a success (confidence of at least 0.9), 1 for no success, 2 for bad input.
    """
    options: dict[str, Any] = {"neighbours": neighbours, "places": places, "device": device, "seed": seed}
    options["viewpoint"] = read_viewpoint(viewpoint)
    options["keypoints"] = read_counts(keypoints, "--keypoints", least=3)
    LocateOptions.read(options)
    check_inputs((scan,))
    check_outputs({out: (".txt", ".json")}, (scan,))
    check_device(device)
    with progress_bars() as progress:
        from wsdesc.mapping.site_map import Map

        with progress("open", 0):
            opened = Map.open(site)
        result = opened.locate(scan, progress=progress, **options)
        if out is not None and not result.success and out.suffix.lower() != ".json":
            # A JSON file says that it is no success; a matrix cannot.
            result.warnings.append(f"Without success, {out} is not written.")
            out = None
        if out is not None:
            result.save(out, all_poses=all_poses)
    if as_json:
        print(json.dumps(result.to_dict()))
    else:
        _print_result(result, scan, site)
        if all_poses:
            print_alternatives(result)
        print_written([out])
    print_warnings(result.warnings)
    exit_unless(result.success)


def _print_result(result: Location, scan: Path, site: Path) -> None:
    rows = [("scan", str(scan)), ("map", str(site))]
    if not result.success and not result.inliers:
        print_table("location", [*rows, ("result", "not found")])
        return
    print(f"T_map_scan\n{matrix_rows(result.T_map_scan)}\n")
    verdict = "success" if result.success else "NO success"
    rows += [
        ("confidence", f"{result.confidence:.3f} ({verdict})"),
        ("origin", ", ".join(f"{value:.3f}" for value in result.translation) + " in the map"),
        ("deviation", f"{result.deviation_text} at the overlap, if the pose is right"),
        ("overlap", f"{result.overlap:.0%} of the scan, rmse {result.rmse:.3g}"),
        ("matches", f"{result.matches}, {result.inliers} of them inliers"),
        ("alternatives", result.alternatives_text),
        ("seconds", seconds_text(result.timings)),
    ]
    print_table("location", rows)
