"""`wsdesc demo`: register two scans of a synthetic room and compare with the true pose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wsdesc.cli.checks import check_output_folder
from wsdesc.cli.output import exit_unless, print_table, print_written, progress_bars
from wsdesc.core.startup import frozen_imports, preload_torch
from wsdesc.registration.compile_ahead import start_helpers

if TYPE_CHECKING:
    from wsdesc.view.demo import DemoReport


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the picture, the scans and the pose.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the synthetic room.")] = 0,
) -> None:
    """Register two partial scans of a synthetic room. This takes about ten seconds.

    Exit code: 0 if the pose is right, 1 if it is wrong, 2 for bad input.
    """
    check_output_folder(out)
    start_helpers()
    preload_torch()
    with progress_bars() as progress:
        with frozen_imports():
            from wsdesc.view.demo import FILES, run_demo

        report = run_demo(out, seed, progress)
    _print_report(report, seed)
    print_written(out / name for name in FILES)
    exit_unless(report.right)


def _print_report(report: DemoReport, seed: int) -> None:
    result = report.result
    rows = [
        ("scans", f"{report.points[0]} and {report.points[1]} points, overlap {report.overlap:.0%}"),
        ("start", f"source rotated by {report.start_error[0]:.1f}°, moved by {report.start_error[1]:.2f} m"),
        ("matches", f"{result.matches}, {result.inliers} of them inliers"),
        ("confidence", f"{result.confidence:.3f}"),
        ("error", f"{report.error[0]:.2f}° and {100 * report.error[1]:.1f} cm from the true pose"),
    ]
    print_table(f"wsdesc demo, seed {seed}", rows)
    seconds = [*result.timings.items(), ("total", sum(result.timings.values()))]
    print_table("seconds", [(name, f"{value:6.2f}") for name, value in seconds])
    print("success: the pose is right" if report.right else "NO success: the pose is wrong")
