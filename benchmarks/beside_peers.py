"""Measure time and success of `wsdesc.register` beside other registration tools, pair by pair in one run.

    python -m benchmarks.beside_peers DATA --pairs 8

DATA has the folders indoor/test, tls, objects and wild. Each scan is rotated at random. On each pair the
tools run one after the other, after a first pair that is not counted. Peers receive the working resolution
that WSDesc derives. Times are without reading files. Prints, for each set: the median time of each tool and
its ratio to that of the first peer, the share of right poses (R1), and how many poses each tool calls a
success. Of wild/, poses are right as in `benchmarks.wild`, if anything is known of the pair.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.common import (
    add_model_option,
    fragment_path,
    make_parser,
    percent,
    print_machine,
    print_rows,
    random_rotation,
    read_truth,
    run_command,
    show_progress,
)
from benchmarks.registration import read_rotated, rotate
from benchmarks.wild import check_pose
from benchmarks.wild_peers import PAIRS
from wsdesc import peers, read_points, register
from wsdesc.cloud.units import INDOOR_RESOLUTION, measure
from wsdesc.core.geometry import Floats
from wsdesc.evaluation import r1_success
from wsdesc.evaluation.scenes import PairTruth


class ScanSet(NamedTuple):
    """Scans and true poses of one place."""

    scans: str
    truth: str
    unit: float  # of one metre, in the files


SETS = {
    "kitchen": ScanSet("indoor/test/kitchen", "indoor/test/kitchen-evaluation", 1.0),
    "kitchen, low overlap": ScanSet("indoor/test/kitchen", "indoor/test/kitchen-evaluation-lo", 1.0),
    "building": ScanSet("tls/building", "tls/building-evaluation", 1.0),
    "bunny": ScanSet("objects/bunny", "objects/bunny-evaluation", 0.01),
}
OWN = "WSDesc"


class Case(NamedTuple):
    """A pair of rotated scans, and what is known of its pose."""

    source: Floats  # (N, 3)
    target: Floats  # (M, 3)
    is_right: Callable[[Floats, float], bool | None]  # of a pose and the resolution; None if it is unknown


class Outcome(NamedTuple):
    """Result of one tool on one pair."""

    seconds: float
    right: bool | None
    success: bool  # the tool says that the pose is right


Tool = Callable[[Floats, Floats, float], tuple[Floats | None, bool]]


def make_tools(arguments: argparse.Namespace) -> dict[str, Tool]:
    """Make the tools: functions of source, target and resolution that return a pose and its success."""

    def own(p: Floats, q: Floats, resolution: float) -> tuple[Floats | None, bool]:
        result = register(p, q, model=arguments.model, device=arguments.device)
        return result.T_target_source, result.success

    def peer(name: str) -> Tool:
        estimate = peers.pose(name)

        def run(p: Floats, q: Floats, resolution: float) -> tuple[Floats | None, bool]:
            T = estimate(torch.from_numpy(p), torch.from_numpy(q), resolution / INDOOR_RESOLUTION)
            return (None, False) if T is None else (T.numpy(), True)

        return run

    return {OWN: own, **{name: peer(name) for name in arguments.peer}}


def cases_of(data: Path, place: ScanSet, count: int, seed: int) -> list[Callable[[], Case]]:
    """Choose pairs of a set at random; their scans are read when they are called."""
    pairs = [pair for pair in read_truth(data / place.truth) if pair.information is not None]
    chosen = np.random.default_rng(seed).permutation(len(pairs))[:count]
    return [partial(_read_pair, data, place, pairs[k]) for k in chosen]


def _read_pair(data: Path, place: ScanSet, pair: PairTruth) -> Case:
    (p, T_p), (q, T_q) = (
        read_rotated(fragment_path(data / place.scans, number), seed)
        for seed, number in enumerate((pair.j, pair.i))
    )

    def is_right(T: Floats, resolution: float) -> bool:
        return bool(r1_success(np.linalg.inv(T_q) @ T @ T_p, pair.T_i_j, pair.information, place.unit))

    return Case(p, q, is_right)


def _read_wild_pair(folder: Path, name: str) -> Case:
    rng = np.random.default_rng(0)
    T_p, T_q = random_rotation(rng), random_rotation(rng)
    p, q = (read_points(folder / file, nonfinite="drop") for file in PAIRS[name])

    def is_right(T: Floats, resolution: float) -> bool | None:
        return check_pose(folder, name, np.linalg.inv(T_q) @ T @ T_p, resolution)[0]

    return Case(rotate(p, T_p), rotate(q, T_q), is_right)


def run_pair(tools: dict[str, Tool], case: Case) -> dict[str, Outcome]:
    """Register a pair by each tool."""
    resolution = measure(torch.from_numpy(case.source), torch.from_numpy(case.target)).resolution
    outcomes = {}
    for name, tool in tools.items():
        start = time.perf_counter()
        T, success = tool(case.source, case.target, resolution)
        seconds = time.perf_counter() - start
        outcomes[name] = Outcome(seconds, False if T is None else case.is_right(T, resolution), success)
    return outcomes


def rows_of(name: str, outcomes: Sequence[dict[str, Outcome]], base: str) -> list[list[str]]:
    """Return one table row for each tool; `base` is the tool that others are compared with."""
    medians = {tool: np.median([o[tool].seconds for o in outcomes]) for tool in outcomes[0]}
    rows = []
    for tool in outcomes[0]:
        results = [o[tool] for o in outcomes]
        known = [r.right for r in results if r.right is not None]
        successes = [r.right for r in results if r.success]
        rows.append([
            name, str(len(results)), tool, f"{1e3 * medians[tool]:.0f}",
            f"{medians[tool] / medians[base]:.2f}", percent(np.mean(known)), str(len(successes)),
            str(sum(map(bool, successes))),
        ])  # fmt: skip
    return rows


def main(arguments: argparse.Namespace) -> None:
    """Print one table row for each set and tool."""
    tools = make_tools(arguments)
    table = [["set", "pairs", "tool", "median ms", "ratio", "R1", "successes", "of these right"]]
    data, count = arguments.data, arguments.pairs
    sets = {name: cases_of(data, place, count, arguments.seed) for name, place in SETS.items()}
    sets["wild"] = [partial(_read_wild_pair, data / "wild", name) for name in PAIRS]
    for name, cases in sets.items():
        run_pair(tools, cases[0]())  # compiles and warms up
        outcomes = [run_pair(tools, read()) for read in show_progress(cases, name)]
        table += rows_of(name, outcomes, arguments.peer[0] if arguments.peer else OWN)
    print_machine()
    print_rows(table)


if __name__ == "__main__":
    parser = make_parser("beside_peers", __doc__)
    parser.add_argument("data", type=Path, help="folder of the scans")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of each set (default: %(default)s)")
    parser.add_argument("--peer", action="append", default=[], help="peer, such as kiss-matcher")
    add_model_option(parser)
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice of pairs")
    sys.exit(run_command(parser, main))
