"""Free space on a GPU: the counts of the CPU for all poses at once, in plain torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wsdesc.alignment.free_space.counts import FreeSpace, Limits, ViewCounts
from wsdesc.alignment.surface.cuda import CudaSurface, poses_and_inverses
from wsdesc.cloud.range_image import RangeImage, range_cells
from wsdesc.core.geometry import Floats, transform


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
    """Count points in the view of the other scan: (H, fields of `ViewCounts`) int64."""
    device = T_viewer_surface.device
    if image is None or len(T_viewer_surface) == 0:
        return torch.zeros(len(T_viewer_surface), len(ViewCounts._fields), dtype=torch.int64, device=device)
    free = torch.from_numpy(image.free).to(device)
    points = surface.points if dense else surface.points[surface.sample]  # (S, 3)
    neighbours = surface.neighbours if dense else surface.sample_neighbours
    seen = transform(points, T_viewer_surface)
    seen = seen - torch.from_numpy(image.viewpoint).to(device)  # (H, S, 3)
    length = seen.square().sum(-1).sqrt()  # (H, S)
    end = torch.where(length > 0, free.view(-1)[range_cells(seen, free.shape[1])], 0.0).double()
    slack = limits.margin + limits.relative_margin * end
    in_view = end > 0
    violates = in_view & (length < end - slack)
    at_surface = in_view & ~violates & (length < end + slack)
    together = violates[:, neighbours].sum(-1) >= limits.neighbours
    return torch.stack([counted.sum(-1) for counted in (in_view, at_surface, violates & together)], dim=1)
