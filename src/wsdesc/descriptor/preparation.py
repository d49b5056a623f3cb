"""Prepare scans for description: clean, downsample, remove outliers, choose keypoints."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wsdesc.cloud.clean import Cleaned, clean_cloud
from wsdesc.cloud.convert import Scan, as_cloud
from wsdesc.cloud.outliers import remove_outliers
from wsdesc.cloud.range_image import RangeImage
from wsdesc.cloud.sampling import farthest_points, farthest_points_each, voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.cloud.viewpoint import ViewpointOption
from wsdesc.core.errors import InputError
from wsdesc.core.kernels import run_each
from wsdesc.descriptor.description import Description

MIN_POINTS = 50  # at the working resolution; fewer cannot be described


def clean_scan(
    scan: Scan, viewpoint: ViewpointOption = None, name: str = "viewpoint", *, search: bool = False
) -> Cleaned:
    """Read and clean a scan in any form that `as_cloud` takes; see `clean_cloud` for the other arguments."""
    return clean_cloud(as_cloud(scan), viewpoint, name, search=search)


def check_count(cloud: Cleaned, name: str) -> None:
    """Raise an `InputError` if a scan has too few points at any resolution; `name` is that of the scan."""
    count = len(cloud.points)  # without duplicates
    if count < MIN_POINTS:
        state = "all points are equal" if count == 1 else f"{count} different points are left"
        raise InputError(
            f"{name}: {state}, at least {MIN_POINTS} are needed: check that the scan is complete"
        )


def prepare_scans(
    clouds: Sequence[Cleaned],
    resolutions: Sequence[float],
    model: str,
    seed: int,
    keypoints: int,
    device: str | torch.device = "cpu",
    names: Sequence[str] | None = None,
) -> list[Description]:
    """Prepare scans for description on `device`, on the CPU in parallel; see `prepare_scan`.

    Args:
        clouds: Cleaned scans.
        resolutions: Working resolution of each scan, in its unit.
        model: Name or path of the weights.
        seed: Seed of the first keypoint of each scan.
        keypoints: Keypoints to choose at first; `Description.with_keypoints` chooses more.
        device: Where to compute and keep the tensors.
        names: Name of each scan, for errors.

    Returns:
        Descriptions without descriptors, one per scan.

    Raises:
        InputError: Too few points of a scan are left.
    """
    scans = list(zip(clouds, resolutions, names or [""] * len(clouds), strict=True))
    if torch.device(device).type == "cpu":
        return run_each(lambda s: prepare_scan(s[0], s[1], model, seed, keypoints, name=s[2]), scans)
    points = [_downsample(cloud, resolution, device, name) for cloud, resolution, name in scans]
    orders = farthest_points_each(points, keypoints, torch.Generator().manual_seed(seed))
    prepared = zip(clouds, points, orders, resolutions, strict=True)
    return [_undescribed(*scan, model) for scan in prepared]


def prepare_scan(
    cloud: Cleaned,
    resolution: float,
    model: str,
    seed: int,
    keypoints: int,
    device: str | torch.device = "cpu",
    name: str = "",
) -> Description:
    """Downsample a scan, remove outliers, and choose keypoints; the arguments are those of `prepare_scans`.

    Returns:
        A description without descriptors; `extend` computes them.

    Raises:
        InputError: Too few points are left.
    """
    points = _downsample(cloud, resolution, device, name)
    order = farthest_points(points, keypoints, torch.Generator().manual_seed(seed))
    return _undescribed(cloud, points, order, resolution, model)


def _downsample(cloud: Cleaned, resolution: float, device: str | torch.device, name: str) -> Tensor:
    """Downsample a scan and remove outliers: points (N, 3) in metres of the model, on `device`."""
    points = voxel_downsample(torch.from_numpy(cloud.points).to(device), resolution)
    points = remove_outliers(points, resolution) / (resolution / INDOOR_RESOLUTION)
    if len(points) < MIN_POINTS:
        prefix = f"{name}: " if name else ""
        count = "1 point is" if len(points) == 1 else f"{len(points)} points are"
        raise InputError(
            f"{prefix}{count} left at the resolution {resolution:.3g}, at least {MIN_POINTS} are "
            "needed: check that the scan is complete and that the resolution is in the scan's unit"
        )
    return points


def _undescribed(cloud: Cleaned, points: Tensor, order: Tensor, resolution: float, model: str) -> Description:
    """Make a description without descriptors."""
    unit = resolution / INDOOR_RESOLUTION
    descriptors, frames = points.new_empty(0, 0), points.new_empty(0, 3, 3)
    image, viewpoint = None, cloud.local_viewpoint
    if viewpoint is not None:
        image = RangeImage.of(cloud.points, viewpoint).scaled(1 / unit)
    T_scan_local = cloud.T_scan_local
    return Description(
        points, order, descriptors, frames, resolution, T_scan_local, model, cloud.viewpoint, image
    )
