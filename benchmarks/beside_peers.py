"""Measure time and success of `wsdesc.register` beside other registration tools, pair by pair in one run.

    python -m benchmarks.beside_peers DATA --pairs 8

DATA has the folders indoor/test, tls and objects. Each scan is rotated at random. On each pair the tools run
one after the other, after a first pair that is not counted. Peers receive the working resolution that
WSDesc derives. Times are without reading files. Prints, for each set: the median time of each tool and its
ratio to that of the first peer, the share of right poses (R1), and how many poses WSDesc calls a success.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
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
    read_truth,
    run_command,
    show_progress,
)
from benchmarks.registration import read_rotated
from wsdesc import peers, register
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


class Outcome(NamedTuple):
    """Result of one tool on one pair."""

    seconds: float
    right: bool
    called: bool  # the tool says that the pose is right


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


def run_pair(tools: dict[str, Tool], data: Path, place: ScanSet, pair: PairTruth) -> dict[str, Outcome]:
    """Register a pair by each tool."""
    (p, T_p), (q, T_q) = (
        read_rotated(fragment_path(data / place.scans, number), seed)
        for seed, number in enumerate((pair.j, pair.i))
    )
    resolution = measure(torch.from_numpy(p), torch.from_numpy(q)).resolution
    outcomes = {}
    for name, tool in tools.items():
        start = time.perf_counter()
        T, called = tool(p, q, resolution)
        seconds = time.perf_counter() - start
        T_i_j = None if T is None else np.linalg.inv(T_q) @ T @ T_p
        right = T_i_j is not None and r1_success(T_i_j, pair.T_i_j, pair.information, place.unit)
        outcomes[name] = Outcome(seconds, bool(right), called)
    return outcomes


def main(arguments: argparse.Namespace) -> None:
    """Print one table row for each set and tool."""
    tools = make_tools(arguments)
    table = [["set", "pairs", "tool", "median ms", "ratio", "R1", "called", "of these right"]]
    for name, place in SETS.items():
        pairs = [pair for pair in read_truth(arguments.data / place.truth) if pair.information is not None]
        chosen = np.random.default_rng(arguments.seed).permutation(len(pairs))[: arguments.pairs]
        run_pair(tools, arguments.data, place, pairs[chosen[0]])  # compiles and warms up
        outcomes = [
            run_pair(tools, arguments.data, place, pairs[k]) for k in show_progress(list(chosen), name)
        ]
        medians = {tool: np.median([o[tool].seconds for o in outcomes]) for tool in tools}
        base = medians[arguments.peer[0] if arguments.peer else OWN]
        for tool in tools:
            results = [o[tool] for o in outcomes]
            called = [r.right for r in results if r.called]
            table.append([
                name, str(len(results)), tool, f"{1e3 * medians[tool]:.0f}", f"{medians[tool] / base:.2f}",
                percent(np.mean([r.right for r in results])), str(len(called)), str(sum(called)),
            ])  # fmt: skip
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
