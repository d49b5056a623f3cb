"""The experiments on ModelNet40: partial views of shapes by the protocols of PRNet and of RPM-Net.

PRNet's two views hold the same samples of a shape, so that exact matches exist, and every rotation-invariant
descriptor does well, even an untrained one. RPM-Net's views are sampled independently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from wsdesc.alignment import fit_rigid, ransac
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse, transform
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.datasets.modelnet40 import Shapes, read_split
from wsdesc.datasets.partial_views import ShapePair, independent_pair, item_generator, partial_pair
from wsdesc.evaluation.methods import Method, MethodFailure
from wsdesc.evaluation.metrics import rotation_error_deg, translation_error
from wsdesc.evaluation.options import ShapeOptions
from wsdesc.evaluation.provenance import RunLog
from wsdesc.evaluation.records import Record, RecordStore
from wsdesc.evaluation.results import BenchmarkResults, EvaluatedMethod
from wsdesc.evaluation.score import estimate_pose
from wsdesc.evaluation.shape_tables import NOTES, shape_tables
from wsdesc.evaluation.stopwatch import Stopwatch
from wsdesc.evaluation.summary import failure_notes
from wsdesc.matching import mutual_matches

KEY = ("protocol", "item")

PairMaker = Callable[[NDArray[np.float32], np.random.Generator], ShapePair]


def _prnet(noise: float) -> PairMaker:
    return lambda shape, generator: partial_pair(shape, generator, noise=noise)


def _rpm(angle: float) -> PairMaker:
    return lambda shape, generator: independent_pair(shape, generator, max_angle=angle)


PAIR_MAKERS: dict[str, PairMaker] = {
    "prnet-clean": _prnet(0.0),
    "prnet-noisy": _prnet(0.01),
    "rpm-45": _rpm(45.0),
    "rpm-180": _rpm(180.0),
}


def run_modelnet40(
    root: Path,
    methods: Sequence[Method],
    options: ShapeOptions,
    out: Path,
    *,
    command: str = "",
    fresh: bool = False,
    progress: ProgressHook | None = None,
) -> BenchmarkResults:
    """Evaluate methods on test shapes of the folder `root`; results go to `out`/modelnet40.

    The pair of an item depends only on the seed and the item's number. A smaller limit selects a subset of
    the items of a larger one. Runs can therefore be continued with any limit. Where a method finds no pose,
    the identity counts as its result.

    Args:
        root: Folder of ply_data_test*.h5.
        methods: Methods to evaluate.
        options: Options of the protocols.
        out: Folder of the results.
        command: Command line to record with the results.
        fresh: Discard existing results.
        progress: Hook for progress bars.
    """
    progress = progress or no_progress
    unknown = [name for name in options.protocols if name not in PAIR_MAKERS]
    if unknown:
        raise InputError(f"unknown protocol {unknown[0]!r}: choose from {', '.join(PAIR_MAKERS)}")
    shapes = read_split(root, "test")
    order = np.random.default_rng(options.seed).permutation(len(shapes.points))
    items = sorted(order[: options.limit].tolist())
    folder = out / "modelnet40"
    run_log = RunLog(folder, command, fresh)
    records = {}
    for method in methods:
        settings: dict[str, Any] = {
            "benchmark": "modelnet40",
            "method": method.name,
            "weights": method.fingerprint,
            "shapes": list(shapes.points.shape),
            **options.model_dump(mode="json", exclude={"protocols", "limit"}),
        }
        store = RecordStore.open(folder / f"{method.file_stem}.jsonl", settings, KEY, fresh)
        keys: list[dict[str, Any]] = [
            {"protocol": protocol, "item": item} for protocol in options.protocols for item in items
        ]
        missing = [key for key in keys if key not in store]
        with progress(f"{method.name}, ModelNet40: pairs", len(missing)) as pair_done:
            for key in missing:
                run_log.add_present()
                store.append(key | _score_item(method, shapes, options, **key))
                pair_done(1)
        records[method.name] = [store[key] for key in keys]
    results = BenchmarkResults(
        benchmark="modelnet40",
        name="modelnet40",
        title="ModelNet40",
        samples=f"n = {len(items)} of {len(order)} test shapes per protocol, drawn with seed {options.seed}",
        notes=[*NOTES, *failure_notes(records)],
        options=options.model_dump(mode="json"),
        methods=[EvaluatedMethod.of(method) for method in methods],
        runs=list(run_log.runs),
        tables=shape_tables(records),
        selection={"protocol": list(options.protocols), "item": items},
        records=records,
    )
    pairs = [{"method": method} | record for method, group in records.items() for record in group]
    results.save(folder, {"pairs.csv": pairs})
    return results


def _score_item(method: Method, shapes: Shapes, options: ShapeOptions, protocol: str, item: int) -> Record:
    """Score the pair of a shape: a record without its key."""
    pair = make_pair(shapes.points[item], protocol, item, options.seed)
    score = score_shapes(method, pair, options, f"shape {item}")
    if protocol.startswith("rpm"):  # the target has the frame of the shape
        score["surface_error"] = surface_error(shapes.points[item], score)
    return {"label": None if shapes.labels is None else int(shapes.labels[item])} | score


def make_pair(shape: NDArray[np.float32], protocol: str, item: int, seed: int) -> ShapePair:
    """Make the pair of an item; it does not depend on the order in which pairs are made."""
    return PAIR_MAKERS[protocol](shape, item_generator(seed, item))


def score_shapes(method: Method, pair: ShapePair, options: ShapeOptions, where: str) -> Record:
    """Match all points, run RANSAC, refit to its inliers, and compare with the true pose.

    Errors are in degrees and in the shapes' unit.
    """
    source, target = torch.from_numpy(pair.source), torch.from_numpy(pair.target)
    T, matches, failure = None, None, None
    stopwatch = Stopwatch(method.device)
    if method.describer is not None:
        matches = 0
        failure, descriptors = _describe(method, [source, target], options.unit, where)
        if failure is None:
            p, q = descriptors
            pairs = mutual_matches(p, q).cpu()  # (M, 2)
            matches = len(pairs)
            result = ransac(
                source[pairs[:, 0]],
                target[pairs[:, 1]],
                threshold=options.threshold * options.unit,
                iterations=options.iterations,
                seed=options.seed,
            )
            if result.success:
                inliers = pairs[result.inliers]
                T = fit_rigid(source[inliers[:, 0]], target[inliers[:, 1]]).numpy()
    else:
        T, failure = estimate_pose(method, source, target, options.unit, where)
    seconds = stopwatch.seconds()
    estimate = np.eye(4) if T is None else T
    return {
        "matches": matches,
        "found": T is not None,
        "T_target_source": estimate.tolist(),
        "T_true": pair.T_target_source.tolist(),
        "rotation_error": float(rotation_error_deg(estimate, pair.T_target_source)),
        "translation_error": float(translation_error(estimate, pair.T_target_source)),
        "failure": failure,
        "seconds": seconds,
    }


def surface_error(target: Any, score: Record) -> float:
    """Return the RMS distance of a target (N, 3), moved by the error of a pose, from itself.

    A symmetric shape has wrong poses with small surface errors: nothing reveals them.
    """
    error = np.array(score["T_target_source"]) @ inverse(np.array(score["T_true"]))
    points = np.asarray(target, np.float64)
    distances = cKDTree(points).query(transform(points, error))[0]
    return float(np.sqrt(np.mean(np.square(distances))))


def _describe(
    method: Method, clouds: Sequence[Tensor], unit: float, where: str
) -> tuple[str | None, list[Tensor]]:
    """Describe all points of clouds (N, 3): why the descriptors are unusable or None, descriptors (N, C)."""
    try:
        descriptors = [method.describe(cloud, cloud, unit, where) for cloud in clouds]
    except MethodFailure as error:
        return str(error), []
    bad = sum(int((~values.isfinite().all(dim=1)).sum()) for values in descriptors)
    return f"{where}: {bad} descriptors are not finite" if bad else None, descriptors
