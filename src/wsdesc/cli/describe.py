"""`wsdesc describe`: keypoints and descriptors of one scan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wsdesc.cli.checks import check_inputs, check_model_and_device, check_outputs, read_viewpoint
from wsdesc.cli.options import Device, Model, ScanFile, ScanResolution, ScanViewpoint, Seed, field_option
from wsdesc.cli.output import progress_bars
from wsdesc.descriptor.options import DescribeOptions

_DEFAULTS = DescribeOptions()


def describe(
    scan: ScanFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="File (.npz) for keypoints and descriptors.")],
    model: Model = _DEFAULTS.model,
    resolution: ScanResolution = _DEFAULTS.resolution,
    keypoints: Annotated[int, field_option(DescribeOptions, "keypoints")] = _DEFAULTS.keypoints,
    viewpoint: ScanViewpoint = None,
    device: Device = _DEFAULTS.device,
    seed: Seed = _DEFAULTS.seed,
) -> None:
    """Describe keypoints of a SCAN. Then `wsdesc match` registers it with any number of other scans.

    Scans that are registered with each other need the same --resolution and --model.
    """
    options: dict[str, Any] = {"model": model, "resolution": resolution, "keypoints": keypoints}
    options |= {"viewpoint": read_viewpoint(viewpoint), "device": device, "seed": seed}
    DescribeOptions.read(options)
    check_inputs((scan,))
    check_outputs({out: (".npz",)}, (scan,))
    check_model_and_device(model, device)
    with progress_bars() as progress:
        with progress("read file", 0):
            from wsdesc.cloud.convert import as_cloud

            cloud = as_cloud(scan)
        from wsdesc.descriptor.describe import describe as run

        description = run(cloud, progress=progress, **options)
        description.save(out)
    count, length = description.descriptors.shape
    print(f"{count} keypoints, descriptors of {length} numbers, resolution {description.resolution:.4g}")
    print(f"viewpoint: {description.viewpoint or 'unknown'}")
    print(f"written: {out}")
