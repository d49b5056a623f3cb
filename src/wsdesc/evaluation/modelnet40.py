"""The experiments on ModelNet40: partial views of shapes by the protocols of PRNet and of RPM-Net.

PRNet's two views hold the same samples of a shape, so that exact matches exist, and every rotation-invariant
descriptor does well, even an untrained one. RPM-Net's views are sampled independently.
"""

from __future__ import annotations

import math
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
from wsdesc.datasets.modelnet40 import ShapePair, independent_pair, item_generator, partial_pair, read_split
from wsdesc.evaluation.euler import euler_errors
from wsdesc.evaluation.methods import Method, MethodFailure
from wsdesc.evaluation.metrics import rotation_error_deg, translation_error
from wsdesc.evaluation.options import ShapeOptions
from wsdesc.evaluation.provenance import RunLog
from wsdesc.evaluation.records import Record, RecordStore
from wsdesc.evaluation.results import BenchmarkResults, EvaluatedMethod
from wsdesc.evaluation.score import estimate_pose
from wsdesc.evaluation.stopwatch import Stopwatch
from wsdesc.evaluation.summary import failure_notes
from wsdesc.evaluation.tables import NONE, Table, percent
from wsdesc.matching import mutual_matches

KEY = ("protocol", "item")
UNSEEN_FROM = 20  # first label of the categories that PRNet's protocol does not train on
# Labels of bottle, bowl, cone, cup, flower pot, lamp, tent and vase: a rotation about the axis of such a
# shape cannot be seen. OMNet and GeoTransformer leave these categories out of their published figures.
AXIAL = frozenset({5, 6, 9, 10, 15, 19, 34, 37})
NOT_AXIAL = "without axial categories"
SAME_SURFACE = (
    0.03  # RMS distance up to which two poses of a shape look the same, in radii; its points are as far apart
)
TITLES = {
    "prnet-clean": "PRNet protocol, clean",
    "prnet-noisy": "PRNet protocol, noisy",
    "rpm-45": "RPM-Net protocol, up to 45° per axis",
    "rpm-180": "RPM-Net protocol, up to 180° per axis",
}
_NOTES = [
    "PRNet's two views hold the same samples: exact matches exist, and an untrained network does well, too. "
    "RPM-Net's views are sampled independently.",
    "By R2: within 15° and 0.3 of the shapes' radius. A mean far above its median comes from a few poses "
    "that are completely wrong.",
    "Same surface: the shape, moved by the error of the pose, is at most "
    f"{SAME_SURFACE:g} radii (RMS) from itself, as after a rotation of a symmetric shape.",
    f"Unseen: categories with labels {UNSEEN_FROM} … 39. A model trained on shapes of all 40 categories has "
    "seen them.",
    "Without axial categories: without bottle, bowl, cone, cup, flower pot, lamp, tent and vase, whose "
    "rotation about their axis cannot be seen. GeoTransformer's published figures are without them.",
]

_SUBSETS: dict[str, Callable[[Record], bool]] = {  # title: whether a record belongs to it
    "all categories": lambda record: True,
    NOT_AXIAL: lambda record: record["label"] is not None and record["label"] not in AXIAL,
    "unseen categories": lambda record: record["label"] is not None and record["label"] >= UNSEEN_FROM,
}

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

    The pair of an item depends only on the seed and the item's number, and a smaller limit selects a subset
    of the items of a larger one. Runs can therefore be continued with any limit. Where a method finds no
    pose, the identity counts as its result.

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
        keys = [{"protocol": protocol, "item": item} for protocol in options.protocols for item in items]
        missing = [key for key in keys if key not in store]
        with progress(f"{method.name}, ModelNet40: pairs", len(missing)) as pair_done:
            for key in missing:
                run_log.add_present()
                pair = make_pair(shapes.points[key["item"]], key["protocol"], key["item"], options.seed)
                label = None if shapes.labels is None else int(shapes.labels[key["item"]])
                score = score_shapes(method, pair, options, f"shape {key['item']}")
                if key["protocol"].startswith("rpm"):  # the target has the frame of the shape
                    score["surface_error"] = surface_error(shapes.points[key["item"]], score)
                store.append(key | {"label": label} | score)
                pair_done(1)
        records[method.name] = [store[key] for key in keys]
    results = BenchmarkResults(
        "modelnet40",
        "modelnet40",
        "ModelNet40",
        f"n = {len(items)} of {len(order)} test shapes per protocol, drawn with seed {options.seed}",
        [*_NOTES, *failure_notes(records)],
        options.model_dump(mode="json"),
        [EvaluatedMethod.of(method) for method in methods],
        list(run_log.runs),
        shape_tables(records),
        {"protocol": list(options.protocols), "item": items},
        records,
    )
    pairs = [{"method": method} | record for method, group in records.items() for record in group]
    results.save(folder, {"pairs.csv": pairs})
    return results


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

    A symmetric shape has wrong poses with small surface errors, which cannot be told from the right one.
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


def shape_tables(results: dict[str, list[Record]]) -> list[Table]:
    """Build the tables of each protocol: all categories, those that are not axial (RPM-Net), unseen ones."""
    tables = []
    for protocol in dict.fromkeys(record["protocol"] for records in results.values() for record in records):
        for subset, belongs in _SUBSETS.items():
            if subset == NOT_AXIAL and protocol.startswith("prnet"):
                continue  # PRNet's figures are of all categories
            chosen = {
                name: [r for r in records if r["protocol"] == protocol and belongs(r)]
                for name, records in results.items()
            }
            chosen = {name: records for name, records in chosen.items() if records}  # not run: no row
            count = max(map(len, chosen.values()), default=0)
            if count:
                title = f"ModelNet40, {TITLES[protocol]}, {subset} (n = {count})"
                tables.append(_shape_table(title, protocol, chosen))
    return tables


def _shape_table(title: str, protocol: str, results: dict[str, list[Record]]) -> Table:
    if protocol.startswith("prnet"):
        header = ["RMSE(R) (°)", "MAE(R) (°)", "R²(R)", "RMSE(t)", "MAE(t)", "R²(t)", "found"]
        rows = [[name, *_euler_cells(records)] for name, records in results.items()]
    else:
        header = ["RRE mean (°)", "RRE median (°)", "RTE mean", "RTE median", "RR by R2 (%)"]
        header += ["R2 or same surface (%)", "found"]
        rows = [[name, *_isotropic_cells(records)] for name, records in results.items()]
    return Table(title, ["method", *header], rows)


def _euler_cells(records: list[Record]) -> list[str]:
    errors = euler_errors(
        np.array([record["T_target_source"] for record in records]),
        np.array([record["T_true"] for record in records]),
    )
    return [NONE if math.isnan(value) else f"{value:.3f}" for value in errors] + [_found_cell(records)]


def _isotropic_cells(records: list[Record]) -> list[str]:
    rotation = [record["rotation_error"] for record in records]
    translation = [record["translation_error"] for record in records]
    cells = [f"{x:.3f}" for x in (np.mean(rotation), np.median(rotation))]
    cells += [f"{x:.4f}" for x in (np.mean(translation), np.median(translation))]
    right = [r < 15 and t < 0.3 for r, t in zip(rotation, translation, strict=True)]
    surface = [record.get("surface_error") for record in records]  # None in records of older versions
    same = [a or b < SAME_SURFACE for a, b in zip(right, surface, strict=True) if b is not None]
    looks_right = percent(float(np.mean(same))) if len(same) == len(right) else NONE
    return [*cells, percent(float(np.mean(right))), looks_right, _found_cell(records)]


def _found_cell(records: list[Record]) -> str:
    return f"{sum(record['found'] for record in records)} of {len(records)}"
