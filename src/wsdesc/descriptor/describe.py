"""`describe`: from a scan and a model to a description."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch

from wsdesc.cloud.convert import Scan, scan_name
from wsdesc.cloud.units import working_resolution
from wsdesc.cloud.viewpoint import ViewpointOption
from wsdesc.core.devices import choose_device
from wsdesc.core.kernels import single_threaded_torch
from wsdesc.core.progress import ProgressHook, StepTimer
from wsdesc.descriptor import pretrained
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.model import WSDesc
from wsdesc.descriptor.options import DEFAULT_MODEL, DescribeOptions
from wsdesc.descriptor.preparation import check_count, clean_scan, prepare_scan

_DEFAULTS = DescribeOptions()


@single_threaded_torch()
def describe(
    scan: Scan,
    *,
    model: str | Path | WSDesc = _DEFAULTS.model,
    keypoints: int = _DEFAULTS.keypoints,
    resolution: float | None = _DEFAULTS.resolution,
    viewpoint: ViewpointOption = _DEFAULTS.viewpoint,
    device: str = _DEFAULTS.device,
    seed: int = _DEFAULTS.seed,
    progress: ProgressHook | None = None,
) -> Description:
    """Compute descriptors and local frames of keypoints that cover a scan evenly.

    Args:
        scan: Scan in any unit: the path of a file, points (N, 3), or another form that `as_cloud` takes.
        model: Weights: a shipped name, the path of a .safetensors file, the folder of a training run; or a
            `WSDesc` model, which stays on its device.
        keypoints: Keypoints per scan, at most.
        resolution: Working resolution (voxel size) in the scan's unit; None derives it from the scan. Scans
            that are to be registered with each other need the same resolution and the same model.
        viewpoint: Position (x, y, z) of the scanner, in the scan's coordinates. None takes it from the file,
            or detects whether it is the origin; "none" uses no free space.
        device: Device: "cpu", "cuda", or "auto" (CUDA where available).
        seed: Seed of the random choices. Same seed and device: same result, bit for bit.
        progress: Hook that is entered around each step, for example to draw a progress bar.

    Returns:
        The description, on the CPU. `save` writes it to a file; `register_described` registers two of them.

    Raises:
        WSDescError: The scan, the weights or an option is invalid.
    """
    name = DEFAULT_MODEL if isinstance(model, WSDesc) else str(model)
    o = DescribeOptions.read(
        {
            "model": name,
            "keypoints": keypoints,
            "resolution": resolution,
            "viewpoint": viewpoint,
            "device": device,
            "seed": seed,
        }
    )
    step = StepTimer(progress)
    with step("read"):
        cleaned = clean_scan(scan, o.viewpoint)
        file = scan_name(scan, "the scan")
        check_count(cleaned, file)
    with step("prepare"):
        network, name = load_model(model, o.device)
        on_device = next(network.parameters()).device
        length = o.resolution or working_resolution(torch.from_numpy(cleaned.points).to(on_device))
        prepared = prepare_scan(cleaned, length, name, o.seed, o.keypoints, on_device, file)
    with step("describe", prepared.missing(o.keypoints)) as advance:
        return prepared.extend(network, o.keypoints, advance).to("cpu")


def load_model(model: str | Path | WSDesc, device: str = "auto") -> tuple[WSDesc, str]:
    """Load a model and return it with its name. Recently loaded weights are cached.

    A `WSDesc` model is returned as it is, on the device it is on.
    """
    if isinstance(model, WSDesc):
        return model, type(model).__name__
    path = pretrained.find(model)
    return _load(str(path), path.stat().st_mtime_ns, choose_device(device)), str(model)


@lru_cache(maxsize=4)
def _load(path: str, modified: int, device: str) -> WSDesc:
    """Load the weights at `path`; `modified` makes the cache reload a file that was written again."""
    model = WSDesc.from_pretrained(path, device)
    if not device.startswith("cuda"):
        return model
    # Half precision changes matches, and so confidences; the small network is fast enough without it.
    return model.accelerate("float32" if model.options.layers == "compact" else "fp16", compile=False)
