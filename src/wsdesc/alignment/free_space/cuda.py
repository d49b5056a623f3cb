"""Free space on a GPU: the counts of the CPU for all poses at once, in plain torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wsdesc.alignment.free_space.counts import MIN_NEIGHBOURS, RELATIVE_MARGIN, FreeSpace, ViewCounts
from wsdesc.alignment.surface.cuda import CudaSurface, poses_and_inverses
from wsdesc.cloud.range_image import SLOPE, RangeImage
from wsdesc.core.geometry import Floats, transform


def measure(
    source: CudaSurface,
    target: CudaSurface,
    images: Sequence[RangeImage | None],
    poses: Floats,
    margin: float,
    dense: bool,
) -> list[FreeSpace]:
    """Measure poses T_target_source (H, 4, 4); see `measure_free_space`."""
    T_target_source, T_source_target = poses_and_inverses(poses, source)
    source_counts = _count(source, images[1], T_target_source, margin, dense)
    target_counts = _count(target, images[0], T_source_target, margin, dense)
    rows = torch.stack([source_counts, target_counts], dim=1).tolist()  # H times two sides
    return [FreeSpace(ViewCounts(*s), ViewCounts(*t)) for s, t in rows]


def _count(
    surface: CudaSurface, image: RangeImage | None, T_viewer_surface: Tensor, margin: float, dense: bool
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
    end = torch.where(length > 0, free.view(-1)[_cells_of(seen, free.shape[1])], 0.0).double()
    slack = margin + RELATIVE_MARGIN * end
    in_view = end > 0
    violates = in_view & (length < end - slack)
    at_surface = in_view & ~violates & (length < end + slack)
    together = violates[:, neighbours].sum(-1) >= MIN_NEIGHBOURS
    return torch.stack([counted.sum(-1) for counted in (in_view, at_surface, violates & together)], dim=1)


def _cells_of(vectors: Tensor, cells: int) -> Tensor:
    """Number the direction cells of vectors (H, S, 3) as `wsdesc.cloud.range_image.cell_of`: (H, S)."""
    largest, axis = vectors.abs().max(-1)  # the first of equal axes
    along = vectors.gather(-1, torch.stack([axis, (axis + 1) % 3, (axis + 2) % 3], -1))
    face = 2 * axis + (along[..., 0] <= 0)
    t = along[..., 1:] / largest.clamp(min=1e-300)[..., None]
    u = t * (SLOPE - (SLOPE - 1) * t.abs())
    index = ((u + 1) * 0.5 * cells).long().clamp(0, cells - 1)
    return (face * cells + index[..., 0]) * cells + index[..., 1]
