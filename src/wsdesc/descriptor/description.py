"""`Description`: a scan with keypoints and descriptors, which are computed in steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import mark_finite
from wsdesc.cloud.range_image import RangeImage
from wsdesc.cloud.sampling import farthest_points
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.cloud.viewpoint import Viewpoint
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import transform
from wsdesc.core.kernels import iterate_each, run_each
from wsdesc.core.progress import Advance
from wsdesc.descriptor import description_file
from wsdesc.descriptor.model import DescriptorInput, WSDesc

# Keypoints described at once: their grids fit into a CPU's cache, and into 4 GB of a GPU.
_CHUNK, _CHUNK_ON_GPU = 100, 1024


@dataclass(frozen=True, eq=False)
class Description:
    """A scan at its working resolution with keypoints, descriptors and frames.

    Describe each scan once and register it with many others: `describe` → `save` → `load` →
    `register_described`. Scans can be registered if they were described by the same model at the same
    resolution.

    `points`, `keypoints` and `frames` are in metres of the model, in the scan's local frame: its origin and
    axes depend on the scan alone, not on its pose. `in_scan_frame` converts to the scan's own coordinates.

    Attributes:
        points: (N, 3) float32, the downsampled scan.
        order: (L,) int64, indices of the points chosen as keypoints. The first k of them cover the scan
            evenly, for every k.
        descriptors: (K, C) unit vectors, of the first K ≤ L keypoints.
        frames: (K, 3, 3) local frames of these keypoints; the columns are x, y, z.
        resolution: Working resolution, in the scan's unit.
        T_scan_local: (4, 4) float64, from the local frame to the scan's own frame, in the scan's unit.
        model: Name or path of the weights.
        viewpoint: Position of the scanner, in the scan's own coordinates; None if it is not known.
        range_image: Free space around the viewpoint, in metres of the model, in the local frame.
    """

    points: Tensor
    order: Tensor
    descriptors: Tensor
    frames: Tensor
    resolution: float
    T_scan_local: np.ndarray
    model: str
    viewpoint: Viewpoint | None = None
    range_image: RangeImage | None = None

    def __repr__(self) -> str:
        return (
            f"Description({len(self.points):,} points; {len(self.descriptors):,} keypoints; "
            f"resolution {self.resolution:.4g}; model {self.model})"
        )

    @property
    def unit(self) -> float:
        """Length of one metre of the model, in the scan's unit."""
        return self.resolution / INDOOR_RESOLUTION

    @property
    def keypoints(self) -> Tensor:
        """Described keypoints (K, 3), in metres of the model."""
        return self.points[self.order[: len(self.descriptors)]]

    @property
    def scan_keypoints(self) -> np.ndarray:
        """Described keypoints (K, 3) float64, in the scan's own coordinates and unit."""
        return self.in_scan_frame(self.keypoints)

    def in_scan_frame(self, coordinates: Tensor) -> np.ndarray:
        """Convert points (M, 3) in metres of the model to float64 in the scan's own coordinates and unit."""
        return transform(self.unit * coordinates.double().cpu().numpy(), self.T_scan_local)

    def to(self, device: str | torch.device) -> Description:
        """Copy all tensors to `device`."""
        names = ("points", "order", "descriptors", "frames")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def coarser(self, factor: float) -> Description:
        """Return the same points, keypoints and descriptors at a coarser resolution, for the alignment.

        Further keypoints must be described at the resolution before.
        """
        if factor == 1:
            return self
        image = self.range_image and self.range_image.scaled(1 / factor)
        return replace(
            self, points=self.points / factor, resolution=self.resolution * factor, range_image=image
        )

    def with_keypoints(self, count: int, seed: int) -> Description:
        """Choose at least `count` keypoints, or all points of a smaller scan.

        This describes nothing: see `extend`. With the same seed, the keypoints chosen before come first.
        """
        if len(self.order) >= min(count, len(self.points)):
            return self
        return replace(self, order=farthest_points(self.points, count, torch.Generator().manual_seed(seed)))

    def missing(self, count: int) -> int:
        """Count the keypoints that `extend(model, count)` would describe."""
        return max(0, min(count, len(self.order)) - len(self.descriptors))

    def extend(self, model: WSDesc, count: int, advance: Advance = lambda items: None) -> Description:
        """Describe further chosen keypoints, until `count` or all of them are described.

        The model may be on another device; the result stays on the device of `points`.
        """
        return extend_each([self], model, count, advance)[0]

    def _appended(self, new: list[tuple[Tensor, Tensor]]) -> Description:
        """Return a copy with further descriptors (M, C) and frames (M, 3, 3)."""
        before = [(self.descriptors, self.frames)] if len(self.frames) else []
        device = self.points.device
        columns = zip(*before, *new, strict=True)
        descriptors, frames = (torch.cat([part.to(device) for part in column]) for column in columns)
        return replace(self, descriptors=descriptors, frames=frames)

    def check_comparable(self, other: Description) -> None:
        """Raise InputError unless both have the same model, descriptor length and resolution."""
        if self.model != other.model or self.descriptors.shape[1:] != other.descriptors.shape[1:]:
            raise InputError(
                f"the scans were described by different models, {self.model} and {other.model}: "
                "describe both with the same model"
            )
        if abs(self.resolution / other.resolution - 1) > 1e-6:
            raise InputError(
                f"the scans were described at different resolutions, {self.resolution:.4g} and "
                f"{other.resolution:.4g}: describe both at the same resolution"
            )

    def save(self, path: str | Path) -> None:
        """Write an .npz file atomically."""
        description_file.save(path, self.to("cpu"))

    @classmethod
    def load(cls, path: str | Path) -> Description:
        """Read a file written by `save`.

        Raises:
            FileFormatError: The file cannot be read, or is not a description.
        """
        return cls(**description_file.load(path))


def choose_keypoints(descriptions: Sequence[Description], count: int, seed: int) -> list[Description]:
    """Choose keypoints of several scans, on the CPU in parallel; see `Description.with_keypoints`."""
    on_gpu = any(description.points.is_cuda for description in descriptions)
    each: Any = map if on_gpu else run_each
    return list(each(lambda description: description.with_keypoints(count, seed), descriptions))


def extend_each(
    descriptions: Sequence[Description], model: WSDesc, count: int, advance: Advance = lambda items: None
) -> list[Description]:
    """Describe further keypoints of several scans, on the CPU in parallel; see `Description.extend`."""
    device = next(model.parameters()).device
    each: Any = iterate_each if device.type == "cpu" else map

    def prepare(description: Description) -> list[DescriptorInput]:
        new = description.order[len(description.descriptors) : count]
        if len(new) == 0:
            return []
        points = description.points.to(device)
        keypoints = mark_finite(points[new.to(device)])
        with torch.inference_mode():
            prepared = model.prepare(points, keypoints)
            return prepared.split(_CHUNK if device.type == "cpu" else _CHUNK_ON_GPU)

    @torch.inference_mode()
    def describe(parts: Sequence[DescriptorInput]) -> list[tuple[Tensor, Tensor]]:
        voxels = [model.voxels(part) for part in parts]
        joined = voxels[0] if len(voxels) == 1 else torch.cat(voxels)
        descriptors = model.describe(joined).float().split([len(own) for own in voxels])
        return [(own, part.frames.float()) for own, part in zip(descriptors, parts, strict=True)]

    prepared = list(each(prepare, descriptions))
    batches = [[part] for parts in prepared for part in parts]
    if device.type != "cpu" and sum(len(part.keypoints) for (part,) in batches) <= _CHUNK_ON_GPU:
        batches = [[part for (part,) in batches]] if batches else []  # fewer launches
    described = (own for batch in each(describe, batches) for own in batch)
    extended = []
    for description, parts in zip(descriptions, prepared, strict=True):
        new = []
        for part in parts:
            new.append(next(described))
            advance(len(part.keypoints))
        extended.append(description._appended(new) if new else description)
    return extended
