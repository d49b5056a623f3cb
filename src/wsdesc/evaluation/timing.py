"""How long it takes: the paper's two tables of times, and how the cost grows with points and keypoints."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from wsdesc.alignment import ransac
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.options import Options
from wsdesc.descriptor.model import DescriptorInput, WSDesc
from wsdesc.evaluation.fragments import Fragment, load_fragment
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.pairwise import Progress, Silent
from wsdesc.evaluation.provenance import this_run
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.report import Report, write_text
from wsdesc.evaluation.scenes import TestScene, read_test_scenes
from wsdesc.evaluation.timing_report import write_timing_report
from wsdesc.matching import mutual_matches

RESULTS = "timing.json"
_GRIDS = 2048  # voxel grids at once


class TimingOptions(Options):
    """What is timed. Every time is the median of `repeats`, after one that is thrown away."""

    pairs: int = Field(5, ge=1)  # of fragments; the tables' times are means over them
    keypoints: int = Field(1000, ge=1)  # of a fragment
    repeats: int = Field(3, ge=1)
    unit: float = Field(1.0, gt=0)  # what counts as a metre in the files
    sizes: tuple[int, ...] = (10_000, 30_000, 100_000, 300_000, 1_000_000)  # points of a cloud
    counts: tuple[int, ...] = (100, 200, 500, 1000, 2000, 5000)  # keypoints
    probes: int = Field(200, ge=1)  # keypoints described in clouds of each size
    seed: int = Field(0, ge=0)


def run_timing(
    root: Path,
    methods: Sequence[Method],
    options: TimingOptions,
    out: Path,
    *,
    devices: Sequence[str] = ("cpu",),
    command: str = "",
    progress: Progress | None = None,
) -> Report:
    """Time methods on fragments below `root`, in the layout of 3DMatch; results go to `out`/timing.

    Models are timed on each of the devices, peers on the CPU. Times are never continued: a run measures
    them all, on one machine.
    """
    progress = progress or Silent()
    scene = read_test_scenes(root)[0]
    everywhere = [place for method in methods for place in _places(method, devices)]
    pairs = scene.pairs[: options.pairs]
    numbers = sorted({number for pair in pairs for number in (pair.i, pair.j)})
    fragments = {number: _fragment(scene, number, options) for number in numbers}
    records: list[Record] = []
    for method in everywhere:
        described = numbers if method.describer else []
        progress.expect(f"{method.name} on {method.device}", fragments=len(described), pairs=len(pairs))
        features: dict[int, Tensor] = {}
        for number in described:
            record, features[number] = _time_fragment(method, fragments[number], options, number)
            records.append(record)
            progress.done("fragments")
        for pair in pairs:
            if method.describer:
                sides = [(fragments[n].keys, features[n]) for n in (pair.j, pair.i)]
                times = _time_matches(sides, options)
            else:
                times = _time_pose(method, [_whole(scene, n, options) for n in (pair.j, pair.i)], options)
            pieces = {"what": "pair", "method": method.name, "device": method.device}
            records.append(pieces | {"i": pair.i, "j": pair.j} | times)
            progress.done("pairs")
    for method in everywhere:
        if isinstance(method.describer, WSDesc):
            records += _growth(method, fragments[numbers[0]], options, progress)
    folder = out / "timing"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / RESULTS, "[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]\n")
    return write_timing_report(
        records, len(pairs), len(numbers), options.keypoints, folder, this_run(command)
    )


def _places(method: Method, devices: Sequence[str]) -> list[Method]:
    """The method on every device it can be on."""
    if not isinstance(method.describer, WSDesc):
        return [method]
    return [replace(method, device=device) for device in devices]


def _fragment(scene: TestScene, number: int, options: TimingOptions) -> Fragment:
    most = max(options.keypoints, *options.counts)
    voxel = INDOOR_RESOLUTION * options.unit
    return load_fragment(scene, number, keypoints=most, voxel=voxel, rotated=False, seed=options.seed)


def _whole(scene: TestScene, number: int, options: TimingOptions) -> Tensor:
    """All points, as methods that find poses take them."""
    return load_fragment(scene, number, keypoints=1, voxel=0, rotated=False, seed=options.seed).points


@torch.inference_mode()
def _time_fragment(
    method: Method, fragment: Fragment, options: TimingOptions, number: int
) -> tuple[Record, Tensor]:
    """Times of the descriptors of one fragment, in ms for each; and the descriptors."""
    keys = fragment.keys[: options.keypoints]
    record: Record = {"what": "fragment", "method": method.name, "device": method.device, "fragment": number}
    record |= {"points": len(fragment.points), "keypoints": len(keys)}
    steps = _steps(method, fragment.points, keys, options.unit)
    for name, step in steps.items():
        record[name] = _median_ms(step, options.repeats) / len(keys)
    features = method.describe(fragment.points, keys, options.unit, f"fragment {number}")
    return record | {"dimension": features.shape[1]}, features


def _steps(method: Method, points: Tensor, keys: Tensor, unit: float) -> dict[str, Callable[[], object]]:
    """What is timed of a descriptor. A model's preparation is its frames, with the search for neighbours; its
    inference voxels and network. Of peers only the whole is known."""
    points, keys = points.to(method.device), keys.to(method.device)
    model = method.describer
    if not isinstance(model, WSDesc):
        return {"total": lambda: method.describe(points, keys, unit, "timing")}
    model.to(method.device)
    scene = model.prepare(points, keys, unit)
    return {
        "preparation": lambda: model.prepare(points, keys, unit),
        "inference": partial(_infer, model, scene),
    }


def _infer(model: WSDesc, scene: DescriptorInput) -> list[Tensor]:
    return [model.describe(model.voxels(part)) for part in scene.split(_GRIDS)]


def _time_matches(sides: list[tuple[Tensor, Tensor]], options: TimingOptions) -> Record:
    """NN query and RANSAC of keypoints and descriptors, in ms."""
    (keys_p, features_p), (keys_q, features_q) = sides
    matches = mutual_matches(features_p, features_q).cpu()
    source, target = keys_p[matches[:, 0]], keys_q[matches[:, 1]]
    threshold = 0.05 * options.unit
    return {
        "dimension": features_p.shape[1],
        "query": _median_ms(lambda: mutual_matches(features_p, features_q), options.repeats),
        "ransac": _median_ms(lambda: ransac(source, target, threshold=threshold), options.repeats),
    }


def _time_pose(method: Method, clouds: list[Tensor], options: TimingOptions) -> Record:
    """The whole of a pair, in ms, for those that find poses by themselves."""
    estimate = method.estimator
    assert estimate is not None
    source, target = clouds
    return {"whole": _median_ms(lambda: estimate(source, target, options.unit), options.repeats)}


@torch.inference_mode()
def _growth(method: Method, fragment: Fragment, options: TimingOptions, progress: Progress) -> list[Record]:
    """Cost over the number of points, all but some of the fragment's far away, and over that of keypoints.

    What a large cloud does cost, once and for all keypoints together, is sorting its points for the search;
    that is timed by itself.
    """
    counts = [count for count in options.counts if count <= len(fragment.keys)]
    sizes = sorted(options.sizes)
    progress.expect(f"{method.name} on {method.device}: growth", sizes=len(sizes), counts=len(counts))
    # What all sizes have in common: the points around one keypoint, and the keypoints in their midst.
    middle = fragment.keys[0]
    near = nearest_to(fragment.points, middle, sizes[0])
    probes = nearest_to(fragment.keys, middle, options.probes)
    base: Record = {"method": method.name, "device": method.device}
    records = []
    model = method.describer
    assert isinstance(model, WSDesc)
    model.to(method.device)
    keys = probes.to(method.device) / options.unit
    for size in sizes:
        points = with_far_points(near, size, options.seed).to(method.device) / options.unit
        grid = NeighbourGrid.of(points)
        scene = model.prepare_grid(grid, keys)
        timed: dict[str, Callable[[], object]] = {
            "sorting": partial(NeighbourGrid.of, points),
            "frames": partial(model.prepare_grid, grid, keys),
            "inference": partial(_infer, model, scene),
        }
        times = {name: _median_ms(step, options.repeats) for name, step in timed.items()}
        records.append({"what": "points", **base, "points": size, "keypoints": len(keys), **times})
        progress.done("sizes")
    for count in counts:
        some = fragment.keys[:count]
        steps = _steps(method, fragment.points, some, options.unit)
        times = {name: _median_ms(step, options.repeats) for name, step in steps.items()}
        records.append(
            {"what": "keypoints", **base, "points": len(fragment.points), "keypoints": count, **times}
        )
        progress.done("counts")
    return records


def nearest_to(points: Tensor, place: Tensor, keep: int) -> Tensor:
    """The `keep` of the points (N, 3) that are nearest to a place (3,), or all of them."""
    distance = torch.linalg.vector_norm(points - place, dim=1)
    return points[distance.argsort(stable=True)[:keep]]


def with_far_points(points: Tensor, size: int, seed: int) -> Tensor:
    """The cloud (N, 3) with points added, (size, 3) in all, each farther from it than any keypoint looks.

    They are copies of the cloud beside it, ten of its own extents apart: a large scan, not a heap.
    """
    extra = max(0, size - len(points))
    rng = np.random.default_rng(seed)
    chosen = torch.from_numpy(rng.integers(0, len(points), extra))
    step = 10 * float((points.amax(0) - points.amin(0)).max())
    place = torch.arange(extra) // len(points)  # which copy
    offset = torch.stack([1 + place % 8, place // 8 % 8, place // 64], dim=1).to(points) * step
    noise = torch.from_numpy(rng.normal(0, 1e-3, (extra, 3))).to(points)
    return torch.cat([points, points[chosen] + offset + noise])


def _median_ms(work: Callable[[], object], repeats: int) -> float:
    """Median wall-clock time in ms; waits for the GPU where there is one."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    work()  # kernels compile, caches fill
    times = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)
