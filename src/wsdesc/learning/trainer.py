"""One step of training on pairs of overlapping clouds. Knows nothing of files or poses."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points
from wsdesc.core.rng import random_rotation
from wsdesc.descriptor.model import DescriptorInput, WSDesc
from wsdesc.descriptor.support import UniversalSupport
from wsdesc.learning import distributed
from wsdesc.learning.identity_cache import cached_grids
from wsdesc.learning.losses import RigidityLoss
from wsdesc.learning.options import TrainOptions


class PreparedPair(NamedTuple):
    """Two clouds with keypoints and frames: all of a step that needs no weights."""

    p: DescriptorInput
    q: DescriptorInput


class StepReport(NamedTuple):
    """What a step did: means over its pairs."""

    loss: float
    orthogonality: float
    cycle: float
    support: float  # NaN where each keypoint has its own
    gradient: float  # norm before clipping
    skipped: bool


class Trainer:
    """A model, its loss and the paper's two optimisers."""

    def __init__(self, options: TrainOptions, device: torch.device | str = "cpu") -> None:
        self.options = options
        self.device = torch.device(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            self.model = WSDesc(**options.descriptor.model_dump()).to(self.device)
        self.loss = RigidityLoss(**options.loss.model_dump())
        self.optimizers = self._make_optimizers()
        self._grids = cached_grids(self.device)
        self._learn = torch.compile(self._terms) if options.compile and self._cuda else self._terms

    @property
    def _cuda(self) -> bool:
        return self.device.type == "cuda"

    def _make_optimizers(self) -> dict[str, torch.optim.Optimizer]:
        o = self.options
        network, support = list(self.model.network.parameters()), list(self.model.support.parameters())
        optimizers: dict[str, torch.optim.Optimizer] = {
            "network": torch.optim.Adam(network, o.learning_rate, fused=self._cuda)
        }
        if support:
            decay = o.support_weight_decay
            optimizers["support"] = torch.optim.Adam(
                support, o.support_learning_rate, weight_decay=decay, fused=self._cuda
            )
        return optimizers

    def pace(self, step: int) -> None:
        """Set the learning rates for this step: constant, then in the cooldown falling towards zero."""
        o = self.options
        left = (o.steps - step) / o.steps
        factor = min(1.0, left / o.cooldown) if o.cooldown > 0 else 1.0
        rates = {"network": o.learning_rate, "support": o.support_learning_rate}
        for name, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = factor * rates[name]

    @torch.no_grad()
    def prepare(self, p: Tensor, q: Tensor, generator: torch.Generator) -> PreparedPair:
        """Choose keypoints of two overlapping clouds (N, 3) and (M, 3), in metres, and find their frames."""
        scenes = []
        for cloud in (p, q):
            grid = self.grid(cloud, generator)
            keypoints = grid.points[farthest_points(grid.points, self.options.keypoints, generator)]
            scenes.append(self.model.prepare_grid(grid, keypoints))
        return PreparedPair(*scenes)

    def grid(self, cloud: Tensor, generator: torch.Generator) -> NeighbourGrid:
        """The cloud (N, 3) made searchable on the device, turned if that is wanted; else built only once."""
        if self.options.rotate:
            cloud = cloud.to(self.device, non_blocking=True)
            return NeighbourGrid.of(cloud @ random_rotation(generator).to(cloud))
        return self._grids.of(cloud)

    def step(self, pairs: list[PreparedPair]) -> StepReport:
        """Learn from some pairs, together with those of other processes."""
        rows = self.gradients(pairs)  # (pairs, 4): loss, orthogonality, cycle, well posed
        distributed.average_gradients(self.model)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)
        good = (rows[:, 0] <= self.options.skip_above) & (rows[:, 3] > 0)  # NaN is not
        fine = distributed.agree((good.all() & norm.isfinite()).float())
        loss, orthogonality, cycle, gradient, go_on = torch.stack([*rows.mean(0)[:3], norm, fine]).tolist()
        self._update(go_on > 0)
        return StepReport(loss, orthogonality, cycle, self.support_size(), gradient, go_on == 0)

    def gradients(self, pairs: list[PreparedPair]) -> Tensor:
        """Add the mean gradient over `pairs` to the parameters; returns what `_terms` says of each."""
        seen = []
        for p, q in pairs:
            voxels = torch.cat([self.model.voxels(p), self.model.voxels(q)])
            terms = self._learn(voxels, p.keypoints, q.keypoints)
            (terms[0] / len(pairs)).backward()
            seen.append(terms.detach())
        return torch.stack(seen)

    def _terms(self, voxels: Tensor, keypoints_p: Tensor, keypoints_q: Tensor) -> Tensor:
        """From voxel grids of both clouds' keypoints to (4,): loss, its two terms, and whether well posed."""
        with torch.autocast(
            self.device.type, torch.bfloat16, enabled=self._cuda and self.options.precision == "bf16"
        ):
            features = self.model.network(voxels)
        features_p, features_q = features.split([len(keypoints_p), len(keypoints_q)])
        terms = self.loss(keypoints_p, features_p, keypoints_q, features_q)
        return torch.stack([terms.loss, terms.orthogonality, terms.cycle, terms.well_posed.to(terms.loss)])

    def support_size(self) -> float:
        """The universal or fixed support's size; NaN where each keypoint has its own."""
        size = getattr(self.model.support, "size", None)
        return float(size.detach()) if isinstance(size, Tensor) else math.nan

    def _update(self, go_on: bool) -> None:
        for optimizer in self.optimizers.values():
            if go_on:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if isinstance(self.model.support, UniversalSupport):
            self.model.support.keep_in_range()
