"""Steps of a descriptor that benchmarks time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from wsdesc.descriptor.model import DescriptorInput, WSDesc
from wsdesc.evaluation.methods import Method

_GRIDS = 2048  # voxel grids per batch


def descriptor_steps(
    method: Method, points: Tensor, keypoints: Tensor, unit: float
) -> dict[str, Callable[[], object]]:
    """Return the steps of a descriptor that are timed.

    The preparation of a model is the neighbour search and the frames; its inference is voxelization and
    network. Peers are timed as a whole.
    """
    points, keypoints = points.to(method.device), keypoints.to(method.device)
    model = method.describer
    if not isinstance(model, WSDesc):
        return {"total": lambda: method.describe(points, keypoints, unit, "timing")}
    model.to(method.device)
    prepared = model.prepare(points, keypoints, unit)
    return {
        "preparation": lambda: model.prepare(points, keypoints, unit),
        "inference": partial(infer, model, prepared),
    }


def infer(model: WSDesc, prepared: DescriptorInput) -> list[Tensor]:
    """Compute voxels and descriptors of prepared keypoints, in batches."""
    return [model.describe(model.voxels(part)) for part in prepared.split(_GRIDS)]
