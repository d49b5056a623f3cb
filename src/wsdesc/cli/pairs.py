"""`wsdesc pairs`: list the scans that overlap."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wsdesc.cli.checks import check_outputs
from wsdesc.cli.options import field_option
from wsdesc.cli.training_output import Window, check_arguments, training_display
from wsdesc.learning.options import DataOptions


def pairs(
    scans: Annotated[
        list[Path], typer.Argument(help="Folders or files of scans, in the order of their names.")
    ],
    mode: Annotated[str, field_option(DataOptions, "pairs", "--pairs")] = "both",
    window: Window = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="JSON file for the pairs.")] = None,
) -> None:
    """List the scans that overlap, and by how much. A training would use these pairs. No poses are read."""
    DataOptions.read({"pairs": mode})
    check_arguments("auto", scans)
    check_outputs({out: (".json",)}, [path for path in scans if path.is_file()])
    with training_display() as display:
        from wsdesc.learning.pairs import pairs as find_pairs

        overlapping = find_pairs(
            scans,
            mode=mode,  # type: ignore[arg-type]  # checked by the options
            window=window,
            out=out,
            progress=display.progress,
        )
    for pair in overlapping:
        overlap = "not checked" if pair.overlap is None else f"{pair.overlap:.2f}"
        print(f"{pair.source} {pair.target} overlap {overlap}")
    if out is not None:
        print(f"written: {out}")
