"""The experiments on ModelNet40: partial views of shapes by the protocols of PRNet and of RPM-Net.

PRNet's two views hold the same samples of a shape, so that exact matches exist and any descriptor that keeps
still under rotation does well, an untrained one included. RPM-Net's are sampled independently: those tell
descriptors apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from wsdesc.alignment import fit_rigid, ransac
from wsdesc.core.errors import InputError
from wsdesc.core.options import Options
from wsdesc.datasets.modelnet40 import ShapePair, independent_pair, item_generator, partial_pair, read_split
from wsdesc.evaluation.methods import Method, as_motion
from wsdesc.evaluation.metrics import rotation_error_deg, translation_error
from wsdesc.evaluation.pairwise import Progress, Silent
from wsdesc.evaluation.provenance import Runs
from wsdesc.evaluation.records import Record, Store
from wsdesc.evaluation.report import Report
from wsdesc.evaluation.shape_report import write_shape_report
from wsdesc.matching import mutual_matches

KEY = ("protocol", "item")

Maker = Callable[[NDArray[np.float32], np.random.Generator], ShapePair]


def _prnet(noise: float) -> Maker:
    return lambda shape, generator: partial_pair(shape, generator, noise=noise)


def _rpm(angle: float) -> Maker:
    return lambda shape, generator: independent_pair(shape, generator, max_angle=angle)


PROTOCOLS: dict[str, Maker] = {
    "prnet-clean": _prnet(0.0),
    "prnet-noisy": _prnet(0.01),
    "rpm-45": _rpm(45.0),
    "rpm-180": _rpm(180.0),
}


class ShapeOptions(Options):
    """How shapes are judged. Lengths are in units; a unit of 1 is the radius of the shapes' sphere."""

    protocols: tuple[str, ...] = tuple(PROTOCOLS)
    limit: int | None = Field(None, ge=1)  # shapes, drawn at random; None: all
    unit: float = Field(1.0, gt=0)  # what the model calls a metre
    threshold: float = Field(0.05, gt=0)  # distance up to which a match agrees with a motion
    iterations: int = Field(50_000, ge=1)  # of RANSAC, at most
    seed: int = Field(0, ge=0)


def run_modelnet40(
    root: Path,
    methods: Sequence[Method],
    options: ShapeOptions,
    out: Path,
    *,
    command: str = "",
    fresh: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Judge methods on test shapes below `root`; results go to `out`/modelnet40.

    Each item's pair depends on the seed and its number alone, and a smaller limit takes some of the items of
    a larger one: results are continued whatever the limit was. A pose that was not found counts as the
    identity.
    """
    progress = progress or Silent()
    unknown = [name for name in options.protocols if name not in PROTOCOLS]
    if unknown:
        raise InputError(f"unknown protocol {unknown[0]!r}: choose of {', '.join(PROTOCOLS)}")
    shapes = read_split(root, "test")
    order = np.random.default_rng(options.seed).permutation(len(shapes.points))
    items = sorted(order[: options.limit].tolist())
    folder = out / "modelnet40"
    runs = Runs(folder, command, fresh)
    results = {}
    for method in methods:
        settings: dict[str, Any] = {
            "benchmark": "modelnet40",
            "method": method.name,
            "weights": method.fingerprint,
            "shapes": list(shapes.points.shape),
            **options.model_dump(mode="json", exclude={"protocols", "limit"}),
        }
        store = Store.open(folder / f"{method.file_stem}.jsonl", settings, KEY, fresh)
        keys = [{"protocol": protocol, "item": item} for protocol in options.protocols for item in items]
        missing = [key for key in keys if key not in store]
        progress.expect(f"{method.name}: ModelNet40", pairs=len(missing))
        for key in missing:
            runs.note()
            pair = make_pair(shapes.points[key["item"]], key["protocol"], key["item"], options.seed)
            label = None if shapes.labels is None else int(shapes.labels[key["item"]])
            store.append(key | {"label": label} | judge_shapes(method, pair, options, f"shape {key['item']}"))
            progress.done("pairs")
        results[method.name] = [store[key] for key in keys]
    samples = f"n = {len(items)} of {len(order)} test shapes a protocol, drawn by seed {options.seed}"
    return write_shape_report(results, methods, samples, folder, runs.all)


def make_pair(shape: NDArray[np.float32], protocol: str, item: int, seed: int) -> ShapePair:
    """The pair of an item under a protocol, the same in whatever order pairs are made."""
    return PROTOCOLS[protocol](shape, item_generator(seed, item))


def judge_shapes(method: Method, pair: ShapePair, options: ShapeOptions, where: str) -> Record:
    """Match all points, RANSAC, refit on its inliers, compare: errors in degrees and in the shapes' unit."""
    source, target = torch.from_numpy(pair.source), torch.from_numpy(pair.target)
    T, matches, failure = None, None, None
    if method.describer is not None:
        features = [method.describe(cloud, cloud, options.unit, where) for cloud in (source, target)]
        matches = 0
        bad = sum(int((~some.isfinite().all(dim=1)).sum()) for some in features)
        if bad:
            failure = f"{where}: {bad} descriptors are not finite"
        else:
            pairs = mutual_matches(features[0], features[1]).cpu()  # (M, 2)
            matches = len(pairs)
            found = ransac(
                source[pairs[:, 0]],
                target[pairs[:, 1]],
                threshold=options.threshold * options.unit,
                iterations=options.iterations,
                seed=options.seed,
            )
            if found.success:
                agreeing = pairs[found.inliers]
                T = fit_rigid(source[agreeing[:, 0]], target[agreeing[:, 1]]).numpy()
    else:
        assert method.estimator is not None
        answer = method.estimator(source, target, options.unit)
        T = as_motion(answer)
        failure = "its pose is not a rigid motion" if T is None and answer is not None else None
    estimate = np.eye(4) if T is None else T
    return {
        "matches": matches,
        "found": T is not None,
        "T_target_source": estimate.tolist(),
        "T_true": pair.T_target_source.tolist(),
        "rotation_error": float(rotation_error_deg(estimate, pair.T_target_source)),
        "translation_error": float(translation_error(estimate, pair.T_target_source)),
        "failure": failure,
    }
