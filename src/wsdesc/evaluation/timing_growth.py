"""Measure how the time of a descriptor grows with points and keypoints."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.core.progress import ProgressHook
from wsdesc.descriptor.model import WSDesc
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.options import TimingOptions
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.scans import EvaluationScan
from wsdesc.evaluation.stopwatch import median_ms
from wsdesc.evaluation.timed_steps import descriptor_steps, infer


@torch.inference_mode()
def time_growth(
    method: Method, scan: EvaluationScan, options: TimingOptions, progress: ProgressHook
) -> list[Record]:
    """Measure times over the number of points, added far from all keypoints, and of keypoints.

    Sorting the points for the neighbour search depends on their number. It happens once per cloud and is
    timed on its own.
    """
    counts = [count for count in options.counts if count <= len(scan.keypoints)]
    sizes = sorted(options.sizes)
    # All sizes share the points around one keypoint and the keypoints among them.
    centre = scan.keypoints[0]
    near = nearest_to(scan.points, centre, sizes[0])
    probes = nearest_to(scan.keypoints, centre, options.probes)
    key: Record = {"method": method.name, "device": method.device}
    label = f"{method.name} on {method.device}"
    records = []
    model = method.describer
    assert isinstance(model, WSDesc)
    model.to(method.device)
    keypoints = probes.to(method.device) / options.unit
    with progress(f"{label}: point counts", len(sizes)) as done:
        for size in sizes:
            points = with_far_points(near, size, options.seed).to(method.device) / options.unit
            grid = NeighbourGrid.of(points)
            prepared = model.prepare_grid(grid, keypoints)
            timed: dict[str, Callable[[], object]] = {
                "sorting": partial(NeighbourGrid.of, points),
                "frames": partial(model.prepare_grid, grid, keypoints),
                "inference": partial(infer, model, prepared),
            }
            times = {name: median_ms(step, options.repeats) for name, step in timed.items()}
            records.append({"what": "points", **key, "points": size, "keypoints": len(keypoints), **times})
            done(1)
    with progress(f"{label}: keypoint counts", len(counts)) as done:
        for count in counts:
            steps = descriptor_steps(method, scan.points, scan.keypoints[:count], options.unit)
            times = {name: median_ms(step, options.repeats) for name, step in steps.items()}
            records.append(
                {"what": "keypoints", **key, "points": len(scan.points), "keypoints": count, **times}
            )
            done(1)
    return records


def nearest_to(points: Tensor, centre: Tensor, count: int) -> Tensor:
    """Return the `count` points of (N, 3) nearest to a centre (3,), or all of them."""
    distance = torch.linalg.vector_norm(points - centre, dim=1)
    return points[distance.argsort(stable=True)[:count]]


def with_far_points(points: Tensor, size: int, seed: int) -> Tensor:
    """Add points to a cloud (N, 3), farther away than any support: (size, 3).

    The added points are copies of the cloud with noise, ten extents apart.
    """
    extra = max(0, size - len(points))
    rng = np.random.default_rng(seed)
    chosen = torch.from_numpy(rng.integers(0, len(points), extra))
    step = 10 * float((points.amax(0) - points.amin(0)).max())
    copy = torch.arange(extra) // len(points)
    offset = torch.stack([1 + copy % 8, copy // 8 % 8, copy // 64], dim=1).to(points) * step
    noise = torch.from_numpy(rng.normal(0, 1e-3, (extra, 3))).to(points)
    return torch.cat([points, points[chosen] + offset + noise])
