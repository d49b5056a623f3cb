"""The descriptor model: local frames, voxel grids and the network as one module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

import torch
from torch import Tensor, nn

from wsdesc.cloud.neighbours import NeighbourGrid, check_points
from wsdesc.core.devices import has_triton
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import check_length
from wsdesc.descriptor import pretrained
from wsdesc.descriptor.lrf import LocalFrames, local_frames
from wsdesc.descriptor.network import DescriptorNetwork
from wsdesc.descriptor.options import DescriptorOptions
from wsdesc.descriptor.support import make_support
from wsdesc.descriptor.voxelize import voxelize

Precision = Literal["float32", "tf32", "fp16", "bf16"]

_GRIDS_PER_CHUNK = 8192  # voxel grids in memory: 128 MiB
_HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}
_NETWORK_BATCH = {"cuda": 1024, "cpu": 128}  # voxel grids per call of the network


class DescriptorInput(NamedTuple):
    """Points and keypoints with their frames, in metres of the model, ready for voxelization."""

    points: Tensor | None  # (N, 3) if they need a gradient
    grid: NeighbourGrid
    keypoints: Tensor  # (K, 3)
    frames: Tensor  # (K, 3, 3)

    def split(self, count: int) -> list[DescriptorInput]:
        """Split into parts of at most `count` keypoints."""
        parts = zip(self.keypoints.split(count), self.frames.split(count), strict=True)
        return [DescriptorInput(self.points, self.grid, keypoints, frames) for keypoints, frames in parts]


class WSDesc(nn.Module):
    """Compute descriptors of keypoints: unit vectors, invariant to rigid transformations of the scan.

    `WSDesc()` is the paper's model, untrained; `from_pretrained` loads weights.

    Args:
        options: Fields of `DescriptorOptions`, by name.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = DescriptorOptions.read(options)
        self.support = make_support(self.options)
        o = self.options
        self.network = DescriptorNetwork(o.width, o.dimension, o.resolution, o.layers)
        self._precision: Precision = "float32"
        self._compiled = False

    def forward(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Tensor:
        """Compute descriptors: `prepare`, `voxels` and `describe` in chunks of keypoints.

        In `torch.inference_mode`, the memory does not grow with the number of keypoints.

        Args:
            points: Points (N, 3) of the scan.
            keypoints: Keypoints (K, 3) in the same coordinates.
            unit: Length of one metre of the model, in the unit of the points.

        Returns:
            Descriptors (K, dimension), unit vectors.
        """
        prepared = self.prepare(points, keypoints, unit)
        return torch.cat([self.describe(self.voxels(part)) for part in prepared.split(_GRIDS_PER_CHUNK)])

    def prepare(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> DescriptorInput:
        """Build the neighbour grid and the frames: step 1 of `forward`, without learned parameters."""
        points, keypoints = self._to_metres(points, keypoints, unit)
        prepared = self.prepare_grid(NeighbourGrid.of(points), keypoints)
        return prepared._replace(points=points) if points.requires_grad else prepared

    def prepare_grid(self, grid: NeighbourGrid, keypoints: Tensor) -> DescriptorInput:
        """Build the frames for an existing grid, in metres and precision of the model."""
        if self.options.use_frames:
            frames = self._frames(grid, keypoints).frames
        else:
            frames = torch.eye(3).to(keypoints).expand(len(keypoints), 3, 3)
        return DescriptorInput(None, grid, keypoints, frames)

    def voxels(self, prepared: DescriptorInput) -> Tensor:
        """Compute the voxel grids (K, h, h, h) at the learned support: step 2 of `forward`."""
        o = self.options
        support = self.support(prepared.grid, prepared.keypoints, prepared.frames)
        points = prepared.grid if prepared.points is None else prepared.points
        return voxelize(points, prepared.keypoints, prepared.frames, support, o.resolution, o.sigma, o.cutoff)

    def describe(self, voxels: Tensor) -> Tensor:
        """Compute descriptors (K, dimension) of voxel grids (K, h, h, h): step 3 of `forward`."""
        if not voxels.is_cuda:
            return torch.cat([self.network(part) for part in voxels.split(_NETWORK_BATCH["cpu"])])
        batch = min(len(voxels), _NETWORK_BATCH["cuda"])
        # A compiled network needs full batches only: another size would compile it again.
        missing = -len(voxels) % batch if self._compiled else 0
        padded = torch.cat([voxels, voxels.new_zeros(missing, *voxels.shape[1:])]) if missing else voxels
        half = _HALF.get(self._precision)
        network = self._fused_network(voxels, half) or self.network
        with torch.autocast("cuda", half, enabled=half is not None), _cudnn_tf32(self._precision == "tf32"):
            return torch.cat([network(part) for part in padded.split(batch)])[: len(voxels)]

    def _fused_network(self, voxels: Tensor, half: torch.dtype | None) -> Callable[[Tensor], Tensor] | None:
        """Return the network in triton kernels, for inference in half precision; None if they do not fit."""
        if half is None or self._compiled or torch.is_grad_enabled() or not has_triton():
            return None
        from wsdesc.descriptor import fused_layers

        if not fused_layers.fits(self.network, voxels.shape[1]):
            return None
        return lambda part: fused_layers.describe(self.network, part, half)

    def frames(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> LocalFrames:
        """Compute the frames of `forward`, and whether they are reliable; arguments as in `forward`."""
        return self._frames(*self._to_metres(points, keypoints, unit))

    def accelerate(self, precision: Precision = "bf16", compile: bool = True) -> Self:
        """Run the network faster on CUDA; this has no effect on the CPU.

        Against float32, 99 % of the descriptors change by less than 2e-3 with "tf32" and 3e-2 with "bf16"
        (norm of the difference). "fp16" rounds eight times as finely as "bf16", but is for inference only.
        Compiling does not change them further.

        Args:
            precision: "float32", "tf32", "fp16" or "bf16".
            compile: Compile the network with `torch.compile`.

        Returns:
            The model itself.
        """
        if precision not in get_args(Precision):
            raise InputError(f"unknown precision {precision!r}: choose {', '.join(get_args(Precision))}")
        self._precision, self._compiled = precision, compile
        if compile:
            self.network.compile()
        return self

    def save(self, path: str | Path, half: bool = False) -> None:
        """Write the weights as safetensors, with the options in the header.

        Args:
            path: File to write.
            half: Store matrices and kernels as float16, as the shipped weights do. They are read as float32.
        """
        tensors = self.state_dict()
        if half:
            tensors = {name: t.half() if t.dim() > 1 else t for name, t in tensors.items()}
        pretrained.save(path, self.options, tensors)

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, device: str | torch.device = "cpu") -> Self:
        """Load a model for inference.

        Args:
            name_or_path: Shipped name, path of a .safetensors file, or folder of a training run.
            device: Device of the model.

        Raises:
            FileFormatError: The weights do not exist or cannot be read.
        """
        path = pretrained.find(name_or_path)
        options, tensors = pretrained.load(path)
        with torch.device("meta"):
            pretrained.check_fit(path, cls(**options.model_dump()).state_dict(), tensors)
        model = cls(**options.model_dump())
        model.load_state_dict(tensors)
        return model.to(device).eval()

    def _frames(self, points: Tensor | NeighbourGrid, keypoints: Tensor) -> LocalFrames:
        return local_frames(points, keypoints, self.options.frame_radius, self.options.orientation_radius)

    def _to_metres(self, points: Tensor, keypoints: Tensor, unit: float) -> tuple[Tensor, Tensor]:
        """Convert both to metres and precision of the model.

        Points of another precision lose a common offset first, so that geographic coordinates keep their
        digits. Descriptors do not depend on it.
        """
        check_length(unit, "the unit")
        check_points(points)
        check_points(keypoints, "keypoints")
        if keypoints.requires_grad:
            keypoints = keypoints.detach()
        keypoints = keypoints.to(points)
        precision = self.network.head.weight.dtype
        if points.dtype != precision:
            origin = points.detach().mean(0)
            points, keypoints = (points - origin).to(precision), (keypoints - origin).to(precision)
        return (points, keypoints) if unit == 1 else (points / unit, keypoints / unit)


@contextmanager
def _cudnn_tf32(allow: bool) -> Iterator[None]:
    """Allow or forbid TensorFloat-32 in convolutions, and restore the user's setting afterwards."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = allow
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
