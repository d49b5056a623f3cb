"""Measure how far the result of `wsdesc.register` depends on the frames of its input.

    python -m benchmarks.frames DATA [--pairs 15] [--motions 5] [--float32] [--shift 3] [--sets floors]
                                [--device cuda] [--processes 8] [--seed 0]

DATA is a folder with indoor/test/kitchen, tls/building and objects/bunny in the layout of 3DMatch; floors are
synthetic laser scans. Both scans of each pair are moved by random rigid motions, each on its own. With
`--float32` the moved points are rounded to float32, as most files do. With `--shift 0` the origin of a scan
stays where it is.

Prints for each set

- the number of pairs, and the successes of all motions,
- the share of pairs whose `success` differs between motions,
- the share of pairs whose confidences differ by at most 0.05, and the largest difference,
- the largest difference of poses, moved back, in resolutions at the source, of pairs that always succeed.

Fails if `success` differs in more than 1 % of all pairs, or less than 95 % differ by at most 0.05.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import wsdesc
from benchmarks.common import (
    fragment_path,
    make_parser,
    percent,
    print_machine,
    print_rows,
    random_pose,
    read_truth,
    run_command,
    show_progress,
)
from wsdesc.core.geometry import Floats, inverse, transform
from wsdesc.datasets.synthetic.floor import floor_scans

MAX_FLIPS, MIN_STEADY = 0.01, 0.95  # shares of the pairs
MAX_SPREAD = 0.05  # of the confidences of a steady pair
FIRST_FLOOR = 7000  # seed; other commands use lower ones

SCENES = {  # scans, and folders of gt.log
    "kitchen": ("indoor/test/kitchen", ("kitchen-evaluation", "kitchen-evaluation-lo")),
    "building": ("tls/building", ("building-evaluation",)),
    "bunny": ("objects/bunny", ("bunny-evaluation",)),
}
SETS = (*SCENES, "floors")


@dataclass(frozen=True)
class PairOfScans:
    """Two scans: files, or neighbouring scans of a synthetic floor."""

    group: str
    files: tuple[Path, Path] | None = None  # source and target
    floor: int = 0  # seed

    def read(self) -> tuple[Floats, Floats]:
        if self.files is not None:
            source, target = map(wsdesc.read_points, self.files)
            return source, target
        a, b = floor_scans(self.floor, 6)[:2]
        return a.points.astype(np.float64), b.points.astype(np.float64)


class Steadiness(NamedTuple):
    """Results of one pair under all motions."""

    successes: int
    flips: bool  # `success` differs
    spread: float  # largest difference of confidences
    moved: float  # largest difference of poses, in resolutions; NaN unless all succeed


def main(arguments: argparse.Namespace) -> bool:
    print_machine()
    pairs = [pair for name in arguments.sets for pair in choose_pairs(name, arguments.data, arguments.pairs)]
    measure = partial(
        measure_pair,
        motions=arguments.motions,
        float32=arguments.float32,
        shift=arguments.shift,
        device=arguments.device,
        seed=arguments.seed,
    )
    results = list(show_progress(_each(measure, pairs, arguments.processes), "register", len(pairs)))
    table = [["", "pairs", "successes", "flips, %", f"spread ≤ {MAX_SPREAD}, %", "largest", "pose"]]
    for name in arguments.sets:
        chosen = [result for pair, result in zip(pairs, results, strict=True) if pair.group == name]
        table.append(_row(name, chosen))
    table.append(_row("all", results))
    print_rows(table)
    flips = np.mean([result.flips for result in results])
    steady = np.mean([result.spread <= MAX_SPREAD for result in results])
    return bool(flips <= MAX_FLIPS and steady >= MIN_STEADY)


def choose_pairs(name: str, data: Path, count: int) -> list[PairOfScans]:
    """Choose pairs of a set evenly, at most `count`; the same number from each folder of gt.log."""
    if name not in SCENES:
        return [PairOfScans(name, floor=FIRST_FLOOR + k) for k in range(count)]
    folder, evaluations = SCENES[name]
    chosen: list[PairOfScans] = []
    for k, evaluation in enumerate(evaluations):
        truth = read_truth((data / folder).parent / evaluation)
        part = (count * (k + 1)) // len(evaluations) - (count * k) // len(evaluations)
        for n in np.unique(np.linspace(0, len(truth) - 1, min(part, len(truth))).round().astype(int)):
            pair = truth[n]
            files = (fragment_path(data / folder, pair.j), fragment_path(data / folder, pair.i))
            chosen.append(PairOfScans(name, files))
    return chosen


def measure_pair(
    pair: PairOfScans, *, motions: int, float32: bool, shift: float, device: str, seed: int
) -> Steadiness:
    """Register a pair once per motion; the same motions for all pairs."""
    rng = np.random.default_rng(seed)
    scans = pair.read()
    size = float(np.linalg.norm(scans[0].std(axis=0)))
    successes, confidences, poses = [], [], []
    for _ in range(motions):
        T_source, T_target = (random_pose(rng, shift * size) for _ in range(2))
        moved = [transform(scan, T) for scan, T in zip(scans, (T_source, T_target), strict=True)]
        if float32:
            moved = [points.astype(np.float32) for points in moved]
        result = wsdesc.register(*moved, device=device)
        successes.append(result.success)
        confidences.append(result.confidence)
        poses.append(inverse(T_target) @ result.T_target_source @ T_source)
    flips = len(set(successes)) > 1
    difference = np.nan
    if all(successes):
        ends = [transform(scans[0][::10], T) for T in poses]
        steps = [np.sqrt(np.square(end - ends[0]).sum(axis=1).mean()) for end in ends]
        difference = float(max(steps)) / result.resolution
    return Steadiness(sum(successes), flips, max(confidences) - min(confidences), difference)


def _each(measure: partial[Steadiness], pairs: Sequence[PairOfScans], processes: int) -> Iterator[Steadiness]:
    if processes == 1:
        yield from map(measure, pairs)
        return
    # Spawned, as CUDA does not survive a fork.
    with multiprocessing.get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        yield from pool.imap(measure, pairs)


def _row(name: str, results: Sequence[Steadiness]) -> list[str]:
    if not results:
        return [name, "0", *["-"] * 5]
    moved = [result.moved for result in results if np.isfinite(result.moved)]
    return [
        name,
        f"{len(results)}",
        f"{sum(result.successes for result in results)}",
        percent(float(np.mean([result.flips for result in results]))),
        percent(float(np.mean([result.spread <= MAX_SPREAD for result in results]))),
        f"{max(result.spread for result in results):.3f}",
        f"{max(moved):.4f}" if moved else "-",
    ]


if __name__ == "__main__":
    parser = make_parser("frames", __doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--pairs", type=int, default=15, help="per set")
    parser.add_argument("--motions", type=int, default=5, help="per pair")
    parser.add_argument("--float32", action="store_true", help="round the moved points to float32")
    parser.add_argument("--shift", type=float, default=3.0, help="largest shift per axis, in scan sizes")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    sys.exit(run_command(parser, main))
