"""`wsdesc adapt`: adapt the descriptor to unlabelled scans of one's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from wsdesc.adaptation.options import AdaptOptions
from wsdesc.cli.checks import check_model_and_device
from wsdesc.cli.options import AsJson, Device, Seed, field_option
from wsdesc.cli.output import continue_hint, exit_unless, print_written, progress_bars

_DEFAULTS = AdaptOptions()


def adapt(
    scans: Annotated[list[Path], typer.Argument(help="Scan files, or folders of scans that overlap.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the weights and the report.")],
    start: Annotated[str, field_option(AdaptOptions, "start")] = _DEFAULTS.start,
    rounds: Annotated[int, field_option(AdaptOptions, "rounds")] = _DEFAULTS.rounds,
    steps: Annotated[int | None, field_option(AdaptOptions, "steps")] = None,
    distill_steps: Annotated[int | None, field_option(AdaptOptions, "distill_steps")] = None,
    fast_steps: Annotated[int | None, field_option(AdaptOptions, "fast_steps")] = None,
    minutes: Annotated[float | None, field_option(AdaptOptions, "minutes")] = None,
    keypoints: Annotated[int | None, field_option(AdaptOptions, "keypoints")] = None,
    synthetic: Annotated[float, field_option(AdaptOptions, "synthetic")] = _DEFAULTS.synthetic,
    keep_out: Annotated[float, field_option(AdaptOptions, "keep_out")] = _DEFAULTS.keep_out,
    resolution: Annotated[float | None, field_option(AdaptOptions, "resolution")] = None,
    as_json: AsJson = False,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes of the reconstruction.")] = 1,
    device: Device = _DEFAULTS.device,
    seed: Seed = _DEFAULTS.seed,
) -> None:
    """Adapt the descriptor to SCANS without labels. The same command continues an interrupted run.

    Afterwards, `--model OUT` of all commands uses the result. Pose files beside the scans are not read.

    Exit code: 0 if the weights are better on scans that were kept out, 1 if the old weights are kept, 2 for
    bad input.
    """
    options: dict[str, Any] = {"start": start, "rounds": rounds, "steps": steps, "minutes": minutes}
    options |= {"distill_steps": distill_steps, "fast_steps": fast_steps, "keypoints": keypoints}
    options |= {"synthetic": synthetic, "keep_out": keep_out, "resolution": resolution}
    options |= {"device": device, "seed": seed}
    AdaptOptions.read(options)
    check_model_and_device(start, device)
    from wsdesc.reconstruction.inputs import find_scans

    paths = find_scans(scans, out)
    from wsdesc.cli.training_output import printed_messages

    stream = sys.stderr if as_json else sys.stdout  # the standard output is JSON alone
    with continue_hint(), progress_bars() as progress, printed_messages("wsdesc.adaptation", stream):
        from wsdesc.adaptation import pipeline

        result = pipeline.adapt(paths, out, jobs=jobs, progress=progress, **options)
    if as_json:
        print(json.dumps({"improved": result.improved, "reason": result.reason, "folder": str(out)}))
    else:
        print(result.summary())
        print_written([result.report])
    exit_unless(result.improved)
