"""The descriptor extractor: frames, voxel grids and the network as one module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from wsdesc.cloud.neighbours import NeighbourGrid, check_points
from wsdesc.core.errors import InputError
from wsdesc.descriptor import pretrained
from wsdesc.descriptor.lrf import LocalFrames, local_frames
from wsdesc.descriptor.network import DescriptorNetwork
from wsdesc.descriptor.options import DescriptorOptions
from wsdesc.descriptor.support import make_support
from wsdesc.descriptor.voxelize import voxelize

Precision = Literal["float32", "tf32", "bf16"]

_GRIDS = 8192  # voxel grids at once: 128 MiB
_DESCRIPTORS = {"cuda": 1024, "cpu": 32}  # and of those, through the network at once


class Scene(NamedTuple):
    """A cloud and keypoints in the model's metres, ready to be voxelized."""

    points: Tensor | None  # (N, 3) where a gradient is to reach them
    grid: NeighbourGrid
    keypoints: Tensor  # (K, 3)
    axes: Tensor  # (K, 3, 3)

    def split(self, count: int) -> list[Scene]:
        """The same cloud with at most `count` keypoints each."""
        parts = zip(self.keypoints.split(count), self.axes.split(count), strict=True)
        return [Scene(self.points, self.grid, keypoints, axes) for keypoints, axes in parts]


class WSDesc(nn.Module):
    """Describes keypoints of a cloud by unit vectors that do not change when the cloud is moved.

    `WSDesc()` is the paper's model, untrained; every field of `DescriptorOptions` may be given by name.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = DescriptorOptions.read(options)
        self.support = make_support(self.options)
        self.network = DescriptorNetwork(self.options.width, self.options.dimension, self.options.resolution)
        self._precision: Precision = "float32"
        self._compiled = False

    def forward(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Tensor:
        """Descriptors of `keypoints` (K, 3) within the cloud `points` (N, 3): (K, dimension), unit length.

        `unit` is the length, in the cloud's own measure, of what the model calls a metre. Keypoints go
        through in chunks: without gradients (`torch.inference_mode`), memory does not grow with K.
        """
        scene = self.prepare(points, keypoints, unit)
        return torch.cat([self.describe(self.voxels(part)) for part in scene.split(_GRIDS)])

    def prepare(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Scene:
        """The first step of `forward`, in which nothing is learned: neighbour grid and frames."""
        points, keypoints = self._in_metres(points, keypoints, unit)
        scene = self.prepare_in(NeighbourGrid.of(points), keypoints)
        return scene._replace(points=points) if points.requires_grad else scene

    def prepare_in(self, grid: NeighbourGrid, keypoints: Tensor) -> Scene:
        """As `prepare`, for a cloud whose grid is at hand, in the model's metres and precision."""
        if self.options.use_frames:
            axes = local_frames(grid, keypoints, self.options.frame_radius).axes
        else:
            axes = torch.eye(3).to(keypoints).expand(len(keypoints), 3, 3)
        return Scene(None, grid, keypoints, axes)

    def voxels(self, scene: Scene) -> Tensor:
        """The second step: voxel grids of the keypoints at the learned support, (K, h, h, h)."""
        o = self.options
        support = self.support(scene.grid, scene.keypoints, scene.axes)
        cloud = scene.grid if scene.points is None else scene.points
        return voxelize(cloud, scene.keypoints, scene.axes, support, o.resolution, o.sigma, o.cutoff)

    def describe(self, voxels: Tensor) -> Tensor:
        """The third step: descriptors (K, dimension) of voxel grids (K, h, h, h), some at a time."""
        if not voxels.is_cuda:
            return torch.cat([self.network(some) for some in voxels.split(_DESCRIPTORS["cpu"])])
        chunk = min(len(voxels), _DESCRIPTORS["cuda"])
        missing = -len(voxels) % chunk if self._compiled else 0  # whole chunks alone: it compiles once
        padded = torch.cat([voxels, voxels.new_zeros(missing, *voxels.shape[1:])]) if missing else voxels
        bf16 = torch.autocast("cuda", torch.bfloat16, enabled=self._precision == "bf16")
        with bf16, _convolutions_in_tf32(self._precision == "tf32"):
            return torch.cat([self.network(some) for some in padded.split(chunk)])[: len(voxels)]

    def frames(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> LocalFrames:
        """The local frames that `forward` uses, and which of them are reliable; lengths as there."""
        return local_frames(*self._in_metres(points, keypoints, unit), self.options.frame_radius)

    def accelerate(self, precision: Precision = "bf16", compile: bool = True) -> Self:
        """Run the network faster on CUDA, in lower precision or compiled; returns the model itself.

        Against float32, 99 % of descriptors move by less than 2e-3 with "tf32" and 3e-2 with "bf16"
        (length of the difference of unit vectors); compiling adds nothing to that. On the CPU this
        changes nothing.
        """
        if precision not in ("float32", "tf32", "bf16"):
            raise InputError(f"unknown precision {precision!r}: choose float32, tf32 or bf16")
        self._precision, self._compiled = precision, compile
        if compile:
            self.network.compile()
        return self

    def save(self, path: str | Path, half: bool = False) -> None:
        """Write the weights as safetensors, the options in the header.

        With `half`, matrices and kernels in float16, as in the box: half the size. They are read as float32.
        """
        tensors = self.state_dict()
        if half:
            tensors = {name: t.half() if t.dim() > 1 else t for name, t in tensors.items()}
        pretrained.save(path, self.options, tensors)

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, device: str | torch.device = "cpu") -> Self:
        """The model of that name in the package, or of that file, ready for inference."""
        path = pretrained.find(name_or_path)
        options, tensors = pretrained.load(path)
        with torch.device("meta"):
            pretrained.check_fit(path, cls(**options.model_dump()).state_dict(), tensors)
        model = cls(**options.model_dump())
        model.load_state_dict(tensors)
        return model.to(device).eval()

    def _in_metres(self, points: Tensor, keypoints: Tensor, unit: float) -> tuple[Tensor, Tensor]:
        """Both in the network's precision. Points that come in another lose a common offset first, which no
        descriptor sees, so that geographic coordinates keep their digits."""
        if not unit > 0:
            raise InputError(f"a unit must be positive, not {unit}")
        check_points(points)
        keypoints = check_points(keypoints, "keypoints").detach().to(points)
        precision = self.network.head.weight.dtype
        if points.dtype != precision:
            origin = points.detach().mean(0)
            points, keypoints = (points - origin).to(precision), (keypoints - origin).to(precision)
        return points / unit, keypoints / unit


@contextmanager
def _convolutions_in_tf32(allow: bool) -> Iterator[None]:
    """TensorFloat-32 only where it was asked for; what the user had set comes back."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = allow
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
