"""A scan as the rest of the corridor sees it: some keypoints and what their surroundings look like."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.clean import Cleaned, clean
from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.files import read_cloud
from wsdesc.cloud.formats.npz import read_arrays
from wsdesc.cloud.outliers import without_strays
from wsdesc.cloud.sampling import farthest_points, voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION, working_resolution
from wsdesc.core.atomic import atomic_write
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.progress import Advance
from wsdesc.descriptor.model import WSDesc
from wsdesc.descriptor.options import DEFAULT_MODEL

_AT_ONCE = 256  # keypoints between two words of progress
_FEWEST = 50  # points at the working resolution, below which there is nothing to describe
_ARRAYS = {"points": "f4", "order": "i8", "descriptors": "f4", "frames": "f4", "offset": "f8"}


@dataclass(frozen=True, eq=False)
class Description:
    """A scan thinned to the working resolution, in metres of the model about its middle, and its keypoints.

    A coordinate x of the file is `offset + unit * y` here.
    """

    points: Tensor  # (N, 3) float32
    order: Tensor  # (L,) int64, all keypoints one may have: any first ones are spread over the scan
    descriptors: Tensor  # (K, C) unit vectors, of the first K of them
    frames: Tensor  # (K, 3, 3), axes in columns
    resolution: float  # in the file's own unit of length
    offset: np.ndarray  # (3,) float64
    model: str

    @property
    def unit(self) -> float:
        """The length, in the file's unit, of what is a metre here."""
        return self.resolution / INDOOR_RESOLUTION

    @property
    def places(self) -> Tensor:
        """The keypoints described so far, (K, 3)."""
        return self.points[self.order[: len(self.descriptors)]]

    @property
    def keypoints(self) -> np.ndarray:
        """The same in the file's own coordinates, (K, 3) float64."""
        return np.asarray(self.offset + self.unit * self.places.double().cpu().numpy())

    def to(self, device: str | torch.device) -> Description:
        """The same with all tensors on `device`."""
        names = ("points", "order", "descriptors", "frames")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def with_keypoints(self, count: int, seed: int) -> Description:
        """With `count` keypoints at least that one may have, where the scan has as many points.

        By the same seed those it had come first.
        """
        if len(self.order) >= min(count, len(self.points)):
            return self
        return replace(self, order=farthest_points(self.points, count, torch.Generator().manual_seed(seed)))

    def missing(self, count: int) -> int:
        """How many keypoints `more` would describe."""
        return max(0, min(count, len(self.order)) - len(self.descriptors))

    def check_comparable(self, other: Description) -> None:
        """Descriptions can be matched only if they were made alike; else say why not."""
        if self.model != other.model or self.descriptors.shape[1:] != other.descriptors.shape[1:]:
            raise InputError(f"the scans were described by different models, {self.model} and {other.model}")
        if abs(self.resolution / other.resolution - 1) > 1e-6:
            raise InputError(
                f"the scans were described at different resolutions, {self.resolution:.4g} and "
                f"{other.resolution:.4g}: describe both at one, with --resolution"
            )

    def extend(self, model: WSDesc, count: int, advance: Advance = lambda done: None) -> Description:
        """Describe further keypoints until there are `count`, or none left; what is new comes to the rest."""
        device, home = next(model.parameters()).device, self.points.device
        new = self.order[len(self.descriptors) : count]
        if len(new) == 0:
            return self
        parts, frames = ([self.descriptors], [self.frames]) if len(self.frames) else ([], [])
        with torch.inference_mode():
            points = self.points.to(device)
            scene = model.prepare(points, points[new.to(device)])
            for some in scene.split(_AT_ONCE if device.type == "cpu" else len(new)):
                parts.append(model.describe(model.voxels(some)).float().to(home))
                frames.append(some.axes.float().to(home))
                advance(len(some.keypoints))
        return replace(self, descriptors=torch.cat(parts), frames=torch.cat(frames))

    def save(self, path: str | Path) -> None:
        """Write it as npz, whole or not at all."""
        here = self.to("cpu")
        arrays: dict[str, Any] = {name: np.asarray(getattr(here, name)) for name in _ARRAYS}
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays, resolution=self.resolution, model=self.model)

    @classmethod
    def load(cls, path: str | Path) -> Description:
        """Read what `save` wrote; FileFormatError for anything else."""
        try:
            arrays = read_arrays(path, kinds="iufU")
            resolution, model = float(arrays["resolution"]), str(arrays["model"])
            tensors = {k: torch.from_numpy(arrays[k].astype(kind)) for k, kind in _ARRAYS.items()}
        except Exception as error:  # zip files and arrays are damaged in many ways, each with its exception
            raise FileFormatError(f"{path}: not a description written by `wsdesc describe`") from error
        offset = tensors.pop("offset").numpy()
        found = cls(**tensors, resolution=resolution, offset=offset, model=model)
        found._check(path)
        return found

    def _check(self, path: str | Path) -> None:
        good = self.points.ndim > 0 and self.descriptors.ndim == 2
        count, keys = (len(self.points), len(self.descriptors)) if good else (0, 0)
        good = good and self.points.shape == (count, 3) and count > 0 and self.order.ndim == 1
        good = good and keys <= len(self.order) and self.frames.shape == (keys, 3, 3)
        good = good and self.offset.shape == (3,) and 0 < self.resolution < float("inf")
        if good and len(self.order):
            good = bool(((self.order >= 0) & (self.order < count)).all())
        numbers = (self.points, self.descriptors, self.frames, torch.from_numpy(self.offset))
        if not (good and all(bool(n.isfinite().all()) for n in numbers)):
            raise FileFormatError(f"{path}: the arrays of this description do not fit each other")


def describe(
    scan: Any,
    *,
    model: str | Path | WSDesc = DEFAULT_MODEL,
    keypoints: int = 1500,
    resolution: float | None = None,
    device: str = "auto",
    seed: int = 0,
    advance: Advance = lambda done: None,
) -> Description:
    """Keypoints of a scan, spread over it, with descriptors and local frames.

    Args:
        scan: the path of a file, a `Cloud`, or points (N, 3), in any unit.
        model: weights by name or path, or a model.
        keypoints: how many, at most.
        resolution: working resolution in the scan's unit; None finds it. Scans that shall be compared need
            the same one, and the same model.
        seed: of the first keypoint.
    """
    network, name = load_model(model, device)
    cleaned = cleaned_points(scan)
    resolution = resolution or working_resolution(cleaned.points)
    return prepare_scan(cleaned, resolution, name, seed, keypoints).extend(network, keypoints, advance)


def prepare_scan(
    cleaned: Cleaned,
    resolution: float,
    model: str,
    seed: int,
    most: int,
    device: str | torch.device = "cpu",
) -> Description:
    """A description without descriptors: the scan thinned, rid of outliers, up to `most` keypoints chosen.

    It is made, and stays, on `device`.
    """
    unit = resolution / INDOOR_RESOLUTION
    points = voxel_downsample(torch.from_numpy(cleaned.points).to(device), resolution)  # (N, 3)
    points = without_strays(points, resolution) / unit
    if len(points) < _FEWEST:
        raise InputError(
            f"only {len(points)} points are left at the resolution {resolution:.3g}, of {_FEWEST} that are "
            "needed: is the scan complete, and the resolution in its unit?"
        )
    order = farthest_points(points, most, torch.Generator().manual_seed(seed))
    nothing = torch.empty(0, 3, 3, device=points.device)
    return Description(
        points, order, nothing[:, :, 0].new_empty(0, 0), nothing, resolution, cleaned.offset, model
    )


def cleaned_points(scan: Any) -> Cleaned:
    """Points of whatever a scan may be given as, finite, each once."""
    if isinstance(scan, str | Path):
        scan = read_cloud(scan, nonfinite="drop")
    return clean(scan.points if isinstance(scan, Cloud) else scan)


def load_model(model: str | Path | WSDesc, device: str = "auto") -> tuple[WSDesc, str]:
    """A model on a device, and its name; those loaded lately are kept."""
    if isinstance(model, WSDesc):
        return model, type(model).__name__
    return _load(str(model), choose_device(device)), str(model)


@lru_cache(maxsize=4)
def _load(name: str, device: str) -> WSDesc:
    model = WSDesc.from_pretrained(name, device)
    return model.accelerate("bf16", compile=False) if device.startswith("cuda") else model
