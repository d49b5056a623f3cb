"""Train on pairs of overlapping scans, one step at a time. Uses neither files nor poses."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points
from wsdesc.core.rng import random_rotation
from wsdesc.descriptor.model import DescriptorInput, WSDesc
from wsdesc.descriptor.support import UniversalSupport
from wsdesc.learning import distributed
from wsdesc.learning.identity_cache import IdentityCache, cached_grids
from wsdesc.learning.losses import RigidityLoss
from wsdesc.learning.options import TrainOptions

_CACHED_SCANS = 1024


class PreparedPair(NamedTuple):
    """Two scans with keypoints and frames: the part of a step that does not depend on weights."""

    p: DescriptorInput
    q: DescriptorInput


class StepResult(NamedTuple):
    """The losses of one step, as means over its pairs."""

    loss: float
    terms: dict[str, float]  # the two parts of the loss, by name
    support: float  # in metres; NaN if each keypoint has its own
    gradient_norm: float  # before clipping
    skipped: bool  # the loss or gradient was not finite, or the loss exceeded `max_loss`


class Trainer:
    """A model, the rigidity loss and the paper's two optimizers.

    Args:
        options: Options of the training.
        device: Device of the model.
    """

    term_names: ClassVar[tuple[str, str]] = ("orthogonality", "cycle")
    """Names of the two parts of the loss, for the log."""

    def __init__(self, options: TrainOptions, device: torch.device | str = "cpu") -> None:
        self.options = options
        self.device = torch.device(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            self.model = WSDesc(**options.descriptor.model_dump()).to(self.device)
        self.loss = RigidityLoss(**options.loss.model_dump())
        self.optimizers = self._make_optimizers()
        self._grids = cached_grids(self.device)
        self._frames = IdentityCache(self._compute_frames, _CACHED_SCANS)
        self._compute_terms = torch.compile(self._terms) if self._compiles else self._terms

    def load_start(self, start: WSDesc) -> None:
        """Take the weights of another model of the same descriptor."""
        self.model.load_state_dict(start.state_dict())

    @property
    def _on_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def _compiles(self) -> bool:
        return self.options.compile and self._on_cuda

    def _autocast(self) -> torch.autocast:
        enabled = self._on_cuda and self.options.precision == "bf16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=enabled)

    def _make_optimizers(self) -> dict[str, torch.optim.Optimizer]:
        o = self.options
        network, support = list(self.model.network.parameters()), list(self.model.support.parameters())
        optimizers: dict[str, torch.optim.Optimizer] = {
            "network": torch.optim.Adam(network, o.learning_rate, fused=self._on_cuda)
        }
        if support:
            decay = o.support_weight_decay
            optimizers["support"] = torch.optim.Adam(
                support, o.support_learning_rate, weight_decay=decay, fused=self._on_cuda
            )
        return optimizers

    def set_learning_rates(self, step: int) -> None:
        """Set the learning rates of a step: constant, then falling linearly to 0 during the cooldown."""
        o = self.options
        remaining = (o.steps - step) / o.steps
        factor = min(1.0, remaining / o.cooldown) if o.cooldown > 0 else 1.0
        rates = {"network": o.learning_rate, "support": o.support_learning_rate}
        for name, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = factor * rates[name]

    @torch.no_grad()
    def prepare(self, p: Tensor, q: Tensor, generator: torch.Generator) -> PreparedPair:
        """Sample keypoints of two overlapping scans (N, 3), (M, 3), in metres, and compute their frames."""
        prepared = []
        for cloud in (p, q):
            grid = self.grid(cloud, generator)
            keypoints = grid.points[farthest_points(grid.points, self.options.keypoints, generator)]
            prepared.append(self.model.prepare_grid(grid, keypoints))
        return PreparedPair(*prepared)

    def grid(self, cloud: Tensor, generator: torch.Generator) -> NeighbourGrid:
        """Return the neighbour grid of points (N, 3) on the device, rotated at random if the options say so.

        Grids of unrotated clouds are cached.
        """
        if self.options.rotate:
            cloud = cloud.to(self.device, non_blocking=True)
            return NeighbourGrid.of(cloud @ random_rotation(generator).to(cloud))
        return self._grids.get(cloud)

    def prepare_rows(self, grid: NeighbourGrid, rows: Tensor) -> DescriptorInput:
        """Prepare the points at rows (K,) of a grid as keypoints.

        On CUDA, the frames of all points of a cached grid are computed once.
        """
        if not self._on_cuda or self.options.rotate:
            return self.model.prepare_grid(grid, grid.points[rows])
        return DescriptorInput(None, grid, grid.points[rows], self._frames.get(grid)[rows])

    def _compute_frames(self, grid: NeighbourGrid) -> Tensor:
        """Compute the frames (N, 3, 3) of all points; no weights change them."""
        frames = torch.cat([self.model.prepare_grid(grid, part).frames for part in grid.points.split(8192)])
        torch.cuda.current_stream(self.device).synchronize()  # another stream may read the frames next
        return frames

    def step(self, pairs: list[PreparedPair]) -> StepResult:
        """Update the weights by the mean gradient over `pairs` and over those of other processes."""
        rows = self.gradients(pairs)  # (pairs, 4)
        distributed.average_gradients(self.model)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.max_gradient_norm)
        valid = (rows[:, 0] <= self.options.max_loss) & (rows[:, 3] > 0)  # False for NaN
        all_valid = distributed.agree((valid.all() & norm.isfinite()).float())
        loss, first, second, gradient_norm, update = torch.stack(
            [*rows.mean(0)[:3], norm, all_valid]
        ).tolist()
        self._update(update > 0)
        terms = dict(zip(self.term_names, (first, second), strict=True))
        return StepResult(loss, terms, self.support_size(), gradient_norm, update == 0)

    def gradients(self, pairs: list[PreparedPair]) -> Tensor:
        """Add the mean gradient over `pairs` to the parameters.

        Returns:
            (pairs, 4): loss, its two terms, and 1 if the matches determine the affine maps.
        """
        rows = []
        for p, q in pairs:
            voxels = torch.cat([self.model.voxels(p), self.model.voxels(q)])
            row = self._compute_terms(voxels, p.keypoints, q.keypoints)
            (row[0] / len(pairs)).backward()
            rows.append(row.detach())
        return torch.stack(rows)

    def _terms(self, voxels: Tensor, keypoints_p: Tensor, keypoints_q: Tensor) -> Tensor:
        """Compute a row of `gradients` from the voxel grids (K + L, h, h, h) of both scans' keypoints."""
        with self._autocast():
            descriptors = self.model.network(voxels)
        descriptors_p, descriptors_q = descriptors.split([len(keypoints_p), len(keypoints_q)])
        terms = self.loss(keypoints_p, descriptors_p, keypoints_q, descriptors_q)
        return torch.stack([terms.loss, terms.orthogonality, terms.cycle, terms.well_posed.to(terms.loss)])

    def support_size(self) -> float:
        """Return the universal or fixed support in metres; NaN if each keypoint has its own."""
        size = getattr(self.model.support, "size", None)
        return float(size.detach()) if isinstance(size, Tensor) else math.nan

    def _update(self, update: bool) -> None:
        for optimizer in self.optimizers.values():
            if update:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if isinstance(self.model.support, UniversalSupport):
            self.model.support.keep_in_range()
