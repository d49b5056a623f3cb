"""`Distiller`: train a small network to give the descriptors of a large one, one step at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from wsdesc.cloud.sampling import random_sample
from wsdesc.core.errors import InputError
from wsdesc.descriptor.model import WSDesc
from wsdesc.learning.options import DistillOptions, TrainOptions
from wsdesc.learning.trainer import PreparedPair, Trainer

_VOXEL_FIELDS = ("sigma", "cutoff")  # options of voxel grids that may differ between student and teacher


class Distiller(Trainer):
    """Train a student's network; its support is the teacher's and stays constant.

    Args:
        teacher: Model whose descriptors are the target.
        options: Options of the training.
        device: Device of both models.
    """

    term_names = ("distance", "relation")

    def __init__(self, teacher: WSDesc, options: TrainOptions, device: torch.device | str = "cpu") -> None:
        super().__init__(options, device)
        _check_same_descriptor(teacher, self.model)
        self.distill_options = options.distill or DistillOptions()
        self.model.support.load_state_dict(teacher.support.state_dict())
        self.model.support.requires_grad_(False)
        self.teacher = copy_model(teacher).to(self.device).eval().requires_grad_(False)
        if self._on_cuda:
            self.teacher.accelerate(options.precision, options.compile)
        self._same_voxels = all(
            getattr(teacher.options, name) == getattr(self.model.options, name) for name in _VOXEL_FIELDS
        )
        rate, decay = options.learning_rate, self.distill_options.weight_decay
        network = list(self.model.network.parameters())
        self.optimizers = {
            "network": torch.optim.AdamW(network, rate, weight_decay=decay, fused=self._on_cuda)
        }
        self._compute_loss = torch.compile(self._imitation_loss) if self._compiles else self._imitation_loss

    def load_start(self, start: WSDesc) -> None:
        """Take the network of another student; the support stays the teacher's."""
        self.model.network.load_state_dict(start.network.state_dict())

    def set_learning_rates(self, step: int) -> None:
        """Set the learning rate of a step: a linear warm-up, then as of every trainer."""
        super().set_learning_rates(step)
        factor = min(1.0, (step + 1) / (self.distill_options.warmup_steps + 1))
        for group in self.optimizers["network"].param_groups:
            group["lr"] *= factor

    @torch.no_grad()
    def prepare(self, p: Tensor, q: Tensor, generator: torch.Generator) -> PreparedPair:
        """Sample random keypoints of two clouds (N, 3) and (M, 3), in metres, and compute their frames."""
        prepared = []
        for cloud in (p, q):
            grid = self.grid(cloud, generator)
            sampled = random_sample(len(cloud), self.options.keypoints, generator).to(self.device)
            prepared.append(self.prepare_rows(grid, sampled))
        return PreparedPair(*prepared)

    def gradients(self, pairs: list[PreparedPair]) -> Tensor:
        """Add the mean gradient over `pairs` to the parameters.

        Returns:
            (pairs, 4): loss, distance, relation and 1.
        """
        rows = []
        for p, q in pairs:
            with torch.no_grad():  # the support is constant
                voxels = torch.cat([self.model.voxels(p), self.model.voxels(q)])
                seen = voxels
                if not self._same_voxels:
                    seen = torch.cat([self.teacher.voxels(p), self.teacher.voxels(q)])
                target = self.teacher.describe(seen)
            row = self._compute_loss(voxels, target)
            (row[0] / len(pairs)).backward()
            rows.append(row.detach())
        return torch.stack(rows)

    def _imitation_loss(self, voxels: Tensor, target: Tensor) -> Tensor:
        """Compute a row of `gradients` from voxel grids (K, h, h, h) and the teacher's descriptors (K, C)."""
        with self._autocast():
            descriptors = self.model.network(voxels)
        distance = 1 - (descriptors * target).sum(1).mean()  # half the squared distance of unit vectors
        # Similarities decide about nearest neighbours; a common rotation of all descriptors keeps them.
        relation = (descriptors @ descriptors.T - target @ target.T).square().mean()
        loss = distance + self.distill_options.relation_weight * relation
        return torch.stack([loss, distance, relation, torch.ones_like(loss)])


def copy_model(model: WSDesc) -> WSDesc:
    """Copy a model, so that the caller's stays unchanged on its device."""
    copy = WSDesc(**model.options.model_dump())
    copy.load_state_dict(model.state_dict())
    return copy


def _check_same_descriptor(teacher: WSDesc, student: WSDesc) -> None:
    """Raise InputError unless both models differ only in the network and in the softness of voxels."""
    free = {"layers", "width", "support_start", *_VOXEL_FIELDS}
    ours, theirs = (m.options.model_dump(exclude=free) for m in (teacher, student))
    differ = [name for name in ours if ours[name] != theirs[name]]
    if differ:
        raise InputError(
            "a student may differ from its teacher only in layers, width, sigma and cutoff, got other "
            f"{', '.join(differ)}"
        )
