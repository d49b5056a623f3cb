"""Free space on a GPU: the counts of the CPU for all poses at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from wsdesc.alignment.free_space.counts import FreeSpace, Limits, ViewCounts
from wsdesc.alignment.surface.cuda import CudaSurface, poses_and_inverses
from wsdesc.cloud.range_image import RangeImage, range_cells
from wsdesc.core.devices import has_triton
from wsdesc.core.geometry import Floats, transform


class _DeviceImage(NamedTuple):
    """A range image on a device."""

    viewpoint: Tensor  # (3,) float64
    free: Tensor  # (6, n, n) float32


_uploaded: WeakKeyDictionary[RangeImage, _DeviceImage] = WeakKeyDictionary()


def measure(
    source: CudaSurface,
    target: CudaSurface,
    images: Sequence[RangeImage | None],
    poses: Floats,
    limits: Limits,
    dense: bool,
) -> list[FreeSpace]:
    """Measure poses T_target_source (H, 4, 4); see `measure_free_space`."""
    T_target_source, T_source_target = poses_and_inverses(poses, source)
    source_counts = _count(source, images[1], T_target_source, limits, dense)
    target_counts = _count(target, images[0], T_source_target, limits, dense)
    rows = torch.stack([source_counts, target_counts], dim=1).tolist()  # H times two sides
    return [FreeSpace(ViewCounts(*s), ViewCounts(*t)) for s, t in rows]


def _count(
    surface: CudaSurface, image: RangeImage | None, T_viewer_surface: Tensor, limits: Limits, dense: bool
) -> Tensor:
    """Count points in the view of the other scan: (H, fields of `ViewCounts`) integers."""
    device = T_viewer_surface.device
    if image is None or len(T_viewer_surface) == 0:
        return torch.zeros(len(T_viewer_surface), len(ViewCounts._fields), dtype=torch.int32, device=device)
    points = surface.points if dense else surface.sample_with_normals[:, :3]  # (S, 3)
    neighbours = surface.neighbours if dense else surface.sample_neighbours
    arguments = points, neighbours, T_viewer_surface, *_upload(image, device), limits
    if device.type == "cuda" and has_triton():
        from wsdesc.alignment.free_space import fused

        return fused.count_points(*arguments)
    return count_plainly(*arguments)


def count_plainly(
    points: Tensor,
    neighbours: Tensor,
    T_viewer_points: Tensor,
    viewpoint: Tensor,
    free: Tensor,
    limits: Limits,
) -> Tensor:
    """Count points in plain torch; see `fused.count_points`."""
    seen = transform(points, T_viewer_points) - viewpoint  # (H, S, 3)
    length = seen.square().sum(-1).sqrt()  # (H, S)
    end = torch.where(length > 0, free.view(-1)[range_cells(seen, free.shape[1])], 0.0).double()
    slack = limits.margin + limits.relative_margin * end
    in_view = end > 0
    violates = in_view & (length < end - slack)
    at_surface = in_view & ~violates & (length < end + slack)
    together = violates[:, neighbours].sum(-1) >= limits.neighbours
    counts = [counted.sum(-1) for counted in (in_view, at_surface, violates & together)]
    return torch.stack(counts, dim=1).int()


def _upload(image: RangeImage, device: torch.device) -> _DeviceImage:
    """Copy a range image to a device, once."""
    uploaded = _uploaded.get(image)
    if uploaded is None or uploaded.free.device != device:
        tensors = (torch.from_numpy(array).to(device) for array in (image.viewpoint, image.free))
        uploaded = _uploaded[image] = _DeviceImage(*tensors)
    return uploaded
