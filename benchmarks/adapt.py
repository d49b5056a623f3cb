"""Adapt to sets of scans, and evaluate the adapted weights by true poses: on the scans, and on other sets.

    python -m benchmarks.adapt DATA --set replay --replay SCENES                # once: synthetic scenes
    python -m benchmarks.adapt DATA --set none --replay SCENES -o none.json     # figures without adaptation
    python -m benchmarks.adapt DATA --set kitchen --replay SCENES -o kitchen.json
    python -m benchmarks.adapt DATA --table none.json kitchen.json …

Sets: kitchen, kitchen-half (adapts to every second scan, evaluates pairs of the others), building, bunny, and
courtyard and warehouse, synthetic LiDAR scans with repetitive structure. Each set is one process and one
small file, so that several sets can run at once. `--wrong 0.05` gives a share of the teaching pairs wrong
poses, `--trust` keeps those that triangles and free space would reject. `-O NAME=VALUE` sets options of
`wsdesc.adapt`.

DATA has the folders indoor/test, tls and objects, in the layout of 3DMatch. Poses are read after the
adaptation, to evaluate it.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree

from benchmarks.common import make_parser, print_machine, print_rows, run_command
from wsdesc import Adaptation, adapt, register, write_points
from wsdesc.adaptation.options import AdaptOptions, make_plan
from wsdesc.adaptation.replay import ReplayPool
from wsdesc.cloud.units import working_resolution
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.synthetic import site_scans
from wsdesc.descriptor import pretrained
from wsdesc.evaluation.methods import from_recipe
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.pairwise import evaluate_pairs
from wsdesc.evaluation.provenance import machine
from wsdesc.evaluation.scenes import EvaluationScene, read_scenes
from wsdesc.evaluation.summary import scene_figures

SITES = {"courtyard": ((2, 4, 5, 6), 12), "warehouse": ((11,), 16)}  # seeds of places, and scans of each
SITE_SENSOR, WANTED_OVERLAPS = "lidar64", (0.1, 0.35)
SITE_OVERLAPS = (0.1, 0.3)  # of pairs that are evaluated
_EVERY = 10  # every tenth point is looked up for an overlap
SITE_PAIRS = 40  # most pairs of a site that are registered
SETS = ("kitchen", "kitchen-half", "building", "bunny", *SITES)


class Test(NamedTuple):
    """Pairs of scans that are matched and registered by RANSAC."""

    folder: str  # below DATA
    keypoints: int
    low_overlap: bool = False
    unit: float | None = None  # None: measured
    half: bool = False  # only pairs of odd scans


TESTS = {
    "kitchen 0.1–0.3": Test("indoor/test", 500, low_overlap=True, unit=1.0),
    "kitchen ≥ 0.3": Test("indoor/test", 500, unit=1.0),
    "kitchen half 0.1–0.3": Test("indoor/test", 500, low_overlap=True, unit=1.0, half=True),
    "kitchen half ≥ 0.3": Test("indoor/test", 500, unit=1.0, half=True),
    "building": Test("tls", 5000),
    "building, 500": Test("tls", 500),
    "bunny": Test("objects", 500),
}


def training_scans(name: str, data: Path, work: Path) -> list[Path]:
    """List the scans that a set adapts to; synthetic ones are made."""
    if name in SITES:
        return [scan.path for scan in make_site(name, work)]
    folder = data / {"building": "tls/building", "bunny": "objects/bunny"}.get(name, "indoor/test/kitchen")
    scans = sorted(folder.glob("*.ply"), key=lambda path: (len(path.name), path.name))
    if not scans:
        raise InputError(f"{folder}: no scans")
    if name == "kitchen-half":
        scans = [path for path in scans if int(path.stem.rsplit("_", 1)[1]) % 2 == 0]
    return scans


class SiteScan(NamedTuple):
    """A scan of a synthetic site."""

    path: Path
    place: int  # scans of two places share nothing
    points: np.ndarray  # (N, 3)
    T_world_scan: np.ndarray  # (4, 4)


def make_site(name: str, work: Path) -> list[SiteScan]:
    """Make the scans of all places of a synthetic site."""
    seeds, count = SITES[name]
    folder = work / "sites" / name
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed in seeds:
        for k, scan in enumerate(site_scans(name, seed, count, SITE_SENSOR, WANTED_OVERLAPS)):
            path = folder / f"place_{seed}_scan_{k}.ply"
            if not path.is_file():
                write_points(path, scan.points)
            rows.append(SiteScan(path, seed, scan.points, scan.T_world_scan))
    return rows


def evaluate_scans(weights: Path, data: Path, device: str, tests: list[str]) -> dict[str, dict[str, float]]:
    """Compute inlier ratio, R1 and R2 of weights on tests, in percent."""
    results = {}
    for name in tests:
        test = TESTS[name]
        scenes = read_scenes(data / test.folder, test.low_overlap)
        if test.half:
            scenes = [
                replace(scene, pairs=[p for p in scene.pairs if p.i % 2 and p.j % 2]) for scene in scenes
            ]
        results[name] = _evaluate(weights, scenes, test, device)
    return results


def _evaluate(weights: Path, scenes: list[EvaluationScene], test: Test, device: str) -> dict[str, float]:
    method = from_recipe({"model": f"adapted={weights}", "device": device})
    options = PairwiseOptions(keypoints=(test.keypoints,), rotated=True, unit=test.unit)
    with tempfile.TemporaryDirectory() as folder:
        records = evaluate_pairs("adapt", scenes, [method], options, Path(folder))[method.name]
    figures = scene_figures(records)[0]
    shares = {"IR": figures.inlier_ratio, "R1": figures.r1, "R2": figures.r2}
    return {"n": figures.pairs} | {k: round(100 * v, 1) for k, v in shares.items() if v is not None}


def evaluate_site(weights: Path, name: str, work: Path, device: str) -> dict[str, float]:
    """Compute R1 of `wsdesc.register` on pairs of a site with little overlap, in percent."""
    scans = make_site(name, work)
    resolution = working_resolution(*(scan.points for scan in scans))
    unit = resolution / 0.025
    trees = {scan.path: cKDTree(scan.points) for scan in scans}
    pairs = []
    for p, q in combinations(scans, 2):
        if p.place != q.place:
            continue
        T_q_p = inverse(q.T_world_scan) @ p.T_world_scan
        forth = _shared(p.points, trees[q.path], T_q_p, resolution)
        back = _shared(q.points, trees[p.path], inverse(T_q_p), resolution)
        if SITE_OVERLAPS[0] <= min(forth.mean(), back.mean()) < SITE_OVERLAPS[1]:
            pairs.append((p, q, T_q_p, p.points[::_EVERY][forth]))
    order = np.random.default_rng(0).permutation(len(pairs))[:SITE_PAIRS]
    right = successes = wrong_successes = 0
    for k in sorted(order.tolist()):
        p, q, T_q_p, overlapping = pairs[k]
        result = register(p.path, q.path, model=str(weights), resolution=resolution, device=device)
        error = transform(overlapping, result.T_target_source) - transform(overlapping, T_q_p)
        correct = bool(np.sqrt(np.square(error).sum(1).mean()) <= 0.2 * unit)
        right += correct
        successes += result.success and correct
        wrong_successes += result.success and not correct
    n = max(1, len(order))
    return {
        "n": len(order),
        "R1": round(100 * right / n, 1),
        "success": round(100 * successes / n, 1),
        "wrong success": round(100 * wrong_successes / n, 1),
    }


def _shared(points: np.ndarray, tree: cKDTree, T: np.ndarray, resolution: float) -> np.ndarray:
    moved = transform(points[::_EVERY].astype(np.float64), T)
    distance, _ = tree.query(moved, distance_upper_bound=3 * resolution, workers=-1)
    return np.isfinite(distance)


def evaluate_all(weights: Path, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Evaluate weights on all tests and sites, or on those that `--test` names."""
    wanted = arguments.test or [*TESTS, *SITES]
    results = evaluate_scans(
        weights, arguments.data, arguments.device, [name for name in wanted if name in TESTS]
    )
    for name in SITES:
        if name in wanted:
            results[name] = evaluate_site(weights, name, arguments.work, arguments.device)
    return results


def adaptation_figures(result: Adaptation) -> dict[str, Any]:
    """Return the figures of a finished adaptation."""
    rounds = [
        {
            "placed": r.placed, "pairs": r.pairs, "wrong_pairs": r.wrong_pairs, "left_out": r.left_out,
            "steps": r.steps, "support": r.support, "synthetic": r.synthetic, "rejection": r.rejection,
            "kept_out": [s._asdict() for _, *both in r.check.by_overlap()[-1:] for s in both],
            "all_pairs": [s._asdict() for _, *both in r.final.by_overlap()[-1:] for s in both],
        }
        for r in result.rounds
    ]  # fmt: skip
    return {"improved": result.improved, "reason": result.reason, "rounds": rounds, "seconds": result.seconds}


def main(arguments: argparse.Namespace) -> None:
    if arguments.table:
        print_tables(arguments.table)
        return
    if arguments.data is None or arguments.set is None:
        raise InputError("DATA and --set are required")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    arguments.device = choose_device(arguments.device)
    options = {name: json.loads(value) for name, value in (o.split("=", 1) for o in arguments.option)}
    if arguments.set == "replay":
        make_replay(arguments, options)
        return
    record: dict[str, Any] = {
        "set": arguments.set,
        "options": options,
        "machine": machine(),
        "argv": sys.argv[1:],
    }
    weights = pretrained.find(arguments.weights)
    begin = time.perf_counter()
    if arguments.set != "none":
        out = arguments.work / "adapted" / f"{arguments.set}{arguments.suffix}"
        if arguments.fresh:
            shutil.rmtree(out, ignore_errors=True)
        result = adapt(
            training_scans(arguments.set, arguments.data, arguments.work),
            out,
            device=arguments.device,
            wrong_teachers=arguments.wrong,
            check_teachers=not arguments.trust,
            replay=arguments.replay,
            progress=_print_steps,
            **options,
        )
        print(result.summary(), flush=True)
        record["adaptation"] = adaptation_figures(result)
        weights = pretrained.find(out)
    record["minutes"] = round((time.perf_counter() - begin) / 60, 2)
    record["figures"] = evaluate_all(weights, arguments)
    record["judge_minutes"] = round((time.perf_counter() - begin) / 60 - record["minutes"], 2)
    print_machine()
    print(json.dumps(record["figures"], indent=1, ensure_ascii=False))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")


def make_replay(arguments: argparse.Namespace, options: dict[str, Any]) -> None:
    """Make the synthetic scenes that several adaptations share."""
    o = AdaptOptions.read(options)
    count = make_plan(o, arguments.device.startswith("cuda")).scenes
    workers = min(count, torch.get_num_threads())
    pool = ReplayPool(arguments.replay or arguments.work / "replay", o.seed, count, workers)
    begin = time.perf_counter()
    try:
        pool.start()
        points = [len(scan.points) for index in range(count) for scan in pool.scene(index)]
    finally:
        pool.close()
    seconds = time.perf_counter() - begin
    print(f"{count} scenes, {len(points)} scans, {seconds:.0f} s by {workers} processes")


def print_tables(files: list[Path]) -> None:
    """Print one row per test and one column per set, beside the figures without adaptation."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    names = list(dict.fromkeys(name for record in records for name in record["figures"]))
    print_rows([["test", "figure", *(_title(record) for record in records)]] + [
        [name, figure, *(str(record["figures"].get(name, {}).get(figure, "–")) for record in records)]
        for name in names
        for figure in ("IR", "R1", "R2", "success")
        if any(figure in record["figures"].get(name, {}) for record in records)
    ])  # fmt: skip
    for record in records:
        if "adaptation" in record:
            a = record["adaptation"]
            verdict = "better" if a["improved"] else f"not better: {a['reason']}"
            times = f"{record['minutes']} min, evaluated in {record['judge_minutes']}"
            print(f"{_title(record)}: {verdict}; {times}")


def _title(record: dict[str, Any]) -> str:
    wrong = [a for a in record.get("argv", []) if a == "--trust" or a.startswith("0.")]
    return " ".join([record["set"], *wrong])


@contextmanager
def _print_steps(name: str, total: int) -> Iterator[Any]:
    begin = time.perf_counter()
    yield lambda items: None
    logging.info("%s: %.1f s%s", name, time.perf_counter() - begin, f" ({total})" if total else "")


def parser() -> argparse.ArgumentParser:
    parser = make_parser("adapt", __doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder of the scans")
    parser.add_argument("--set", choices=(*SETS, "none", "replay"), help="scans to adapt to")
    parser.add_argument("--test", action="append", default=[], help="tests to evaluate (default: all)")
    parser.add_argument("--weights", default="indoor-fast", help="weights evaluated by --set none")
    parser.add_argument("--wrong", type=float, default=0.0, help="share of wrong poses among the teachers")
    parser.add_argument("--trust", action="store_true", help="keep pairs that the check would reject")
    parser.add_argument("--work", type=Path, default=Path("adapt-work"), help="folder (default: %(default)s)")
    parser.add_argument("--suffix", default="", help="end of the name of the adaptation's folder")
    parser.add_argument("--fresh", action="store_true", help="do not continue an earlier adaptation")
    parser.add_argument("--replay", type=Path, help="folder of synthetic scenes that several sets share")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("-O", dest="option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("-o", "--out", type=Path, help="JSON file for the figures")
    parser.add_argument("--table", type=Path, nargs="+", help="print a table of such files")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
