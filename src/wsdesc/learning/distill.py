"""A narrow network learns the descriptors of a wide one: no labels, no pairs, any clouds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wsdesc.cloud.sampling import random_sample
from wsdesc.core.errors import InputError
from wsdesc.core.rng import generator_of
from wsdesc.descriptor.model import WSDesc
from wsdesc.learning.options import DistillOptions, TrainOptions
from wsdesc.learning.run import train
from wsdesc.learning.sources import CloudPair, MixedPairs, PairSource, RoomPairs
from wsdesc.learning.trainer import PreparedPair, Trainer


class RandomPairs:
    """Two of given clouds at a time, all of them once in each round; whether they overlap does not matter."""

    def __init__(self, clouds: list[Tensor], seed: int) -> None:
        if not clouds:
            raise InputError("there are no clouds to learn from")
        self.clouds, self.seed = clouds, seed

    def pair(self, number: int) -> CloudPair:
        """See `PairSource`."""
        return self._cloud(2 * number), self._cloud(2 * number + 1)

    def _cloud(self, number: int) -> Tensor:
        turn, place = divmod(number, len(self.clouds))
        order = torch.randperm(len(self.clouds), generator=generator_of(self.seed, 1, turn))
        return self.clouds[int(order[place])]

    def close(self) -> None:
        """Nothing to let go of."""


class Distiller(Trainer):
    """A student with the teacher's support, which stays as it is; only its network learns."""

    terms = ("distance", "relation")  # what the two figures beside the loss are

    def __init__(self, teacher: WSDesc, options: TrainOptions, device: torch.device | str = "cpu") -> None:
        super().__init__(options, device)
        _check_alike(teacher, self.model)
        self.how = options.distill or DistillOptions()
        self.model.support.load_state_dict(teacher.support.state_dict())
        self.model.support.requires_grad_(False)
        self.teacher = _copy(teacher).to(self.device).eval().requires_grad_(False)
        if self._cuda:
            self.teacher.accelerate(options.precision, options.compile)
        rate, decay = options.learning_rate, self.how.weight_decay
        network = list(self.model.network.parameters())
        self.optimizers = {"network": torch.optim.AdamW(network, rate, weight_decay=decay, fused=self._cuda)}
        self._follow = torch.compile(self._imitate) if options.compile and self._cuda else self._imitate

    def pace(self, step: int) -> None:
        """As every trainer, after a warm-up."""
        super().pace(step)
        factor = min(1.0, (step + 1) / (self.how.warm_up + 1))
        for group in self.optimizers["network"].param_groups:
            group["lr"] *= factor

    @torch.no_grad()
    def prepare(self, p: Tensor, q: Tensor, generator: torch.Generator) -> PreparedPair:
        """Choose keypoints of two clouds (N, 3) and (M, 3), in metres, at random, and find their frames."""
        scenes = []
        for cloud in (p, q):
            grid = self.grid(cloud, generator)
            chosen = random_sample(len(cloud), self.options.keypoints, generator).to(self.device)
            scenes.append(self.model.prepare_grid(grid, grid.points[chosen]))
        return PreparedPair(*scenes)

    def gradients(self, pairs: list[PreparedPair]) -> Tensor:
        """Add the mean gradient over `pairs`; rows of loss, its two terms, and 1."""
        seen = []
        for p, q in pairs:
            with torch.no_grad():  # the support does not learn: one set of grids serves both networks
                voxels = torch.cat([self.model.voxels(p), self.model.voxels(q)])
                target = self.teacher.describe(voxels)
            terms = self._follow(voxels, target)
            (terms[0] / len(pairs)).backward()
            seen.append(terms.detach())
        return torch.stack(seen)

    def _imitate(self, voxels: Tensor, target: Tensor) -> Tensor:
        """From voxel grids (K, h, h, h) and the teacher's descriptors (K, C) to (4,): see `gradients`."""
        bf16 = self._cuda and self.options.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            features = self.model.network(voxels)
        distance = 1 - (features * target).sum(1).mean()  # half the squared distance of unit vectors
        # Neighbourhoods live in the similarities, which a common turn of all descriptors leaves as they are.
        relation = (features @ features.T - target @ target.T).square().mean()
        loss = distance + self.how.relational * relation
        return torch.stack([loss, distance, relation, torch.ones_like(loss)])


def student_options(teacher: WSDesc, width: float = 0.25, **changes: Any) -> TrainOptions:
    """Options of a distillation: the teacher's descriptor but narrower; other fields of `TrainOptions` by
    name."""
    values = {
        "descriptor": {**teacher.options.model_dump(), "width": width},
        "distill": DistillOptions(),
        "steps": 8000,
        "keypoints": 256,  # of each of two clouds
        "learning_rate": 2e-3,
        "cooldown": 1.0,
        **changes,
    }
    return TrainOptions.read(values)


def student_source(clouds: list[Tensor], options: TrainOptions) -> tuple[PairSource, list[Tensor]]:
    """A source of `clouds` and synthetic rooms, rooms alone where there are no clouds; and clouds that are
    held out of it where there are enough."""
    o, seed = options.data, options.seed
    rooms = RoomPairs(seed, o.rooms, o.steps_per_room, o.least_coverage)
    if not clouds:
        return rooms, []
    aside = round(o.hold_out * len(clouds))
    order = torch.randperm(len(clouds), generator=generator_of(seed, 4)).tolist()
    scans = RandomPairs([clouds[n] for n in sorted(order[aside:])], seed)
    held_out = [clouds[n] for n in sorted(order[:aside])]
    if o.synthetic == 0:
        return scans, held_out
    return MixedPairs([scans, rooms], [1 - o.synthetic, o.synthetic], seed), held_out


def distill(
    teacher: WSDesc,
    source: PairSource,
    options: TrainOptions,
    out: Path,
    *,
    held_out: list[Tensor] | None = None,
    **how: Any,
) -> Path | None:
    """Train a student in the folder `out`: `run.train` for a teacher, with its arguments and result.

    source: `RandomPairs` of clouds, or any source of pairs. held_out: clouds on which the log says how far the
    student agrees with its teacher.
    """

    def make(options: TrainOptions, device: torch.device | str) -> Trainer:
        return Distiller(teacher, options, device)

    def look(trainer: Trainer) -> dict[str, float]:
        return agreement(teacher, trainer.model, held_out or [], options.seed)

    if held_out:
        how.setdefault("validate", look)
    return train(options, source, out, make=make, **how)


@torch.no_grad()
def agreement(
    teacher: WSDesc, student: WSDesc, clouds: list[Tensor], seed: int = 0, keypoints: int = 512
) -> dict[str, float]:
    """On random keypoints of `clouds`: the mean cosine between both descriptors, and the share of
    keypoints of all clouds whose nearest other keypoint is the same in both."""
    generator, both = generator_of(seed, 5), []
    for cloud in clouds:
        keys = cloud[random_sample(len(cloud), keypoints, generator).to(cloud.device)]
        both.append([_describe(model, cloud, keys) for model in (teacher, student)])
    ours, theirs = (torch.cat(some) for some in zip(*both, strict=True))
    nearest = [(f @ f.T).fill_diagonal_(-2).argmax(1) for f in (ours, theirs)]
    same = (nearest[0] == nearest[1]).double().mean()
    return {"held_out_cosine": float((ours * theirs).sum(1).mean()), "held_out_neighbours": float(same)}


def _describe(model: WSDesc, cloud: Tensor, keys: Tensor) -> Tensor:
    device = next(model.parameters()).device
    described: Tensor = model(cloud.to(device), keys.to(device))
    return described.float().cpu()


def _copy(model: WSDesc) -> WSDesc:
    """The caller's teacher stays where and as it is."""
    copy = WSDesc(**model.options.model_dump())
    copy.load_state_dict(model.state_dict())
    return copy


def _check_alike(teacher: WSDesc, student: WSDesc) -> None:
    ours, theirs = (m.options.model_dump(exclude={"width", "support_start"}) for m in (teacher, student))
    differ = [name for name in ours if ours[name] != theirs[name]]
    if differ:
        raise InputError(f"a student may differ from its teacher in width alone, not in {', '.join(differ)}")
