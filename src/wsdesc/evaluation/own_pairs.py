"""A benchmark on pairs of any scans with known poses, in any readable format and any unit of length."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.pairwise import PairBenchmark, RunArguments, run_benchmark
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.evaluation.scenes import read_scenes


def run_pairs(
    root: Path,
    methods: Sequence[Method],
    options: PairwiseOptions,
    out: Path,
    **arguments: Unpack[RunArguments],
) -> BenchmarkResults:
    """Evaluate methods on pairs of any scans; results go to `out`/pairs-ROOT[-rotated][-lo].

    All thresholds are those of 3DMatch times the unit, so that they follow the size of the scans.

    Args:
        root: Folder of scans with gt.log or pairs.txt, or folder of such folders.
        methods: Methods to evaluate.
        options: Options of the protocol.
        out: Folder of the results.
        arguments: See `RunArguments`.
    """
    scenes = read_scenes(root, options.low_overlap)
    root_name = root.resolve().name
    name = f"pairs-{root_name}" + "-rotated" * options.rotated + "-lo" * options.low_overlap
    title = f"Scans of {root_name}" + ", rotated" * options.rotated + ", low overlap" * options.low_overlap
    benchmark = PairBenchmark("pairs", name, title, scenes, partial(_note_units, options))
    return run_benchmark(benchmark, methods, options, out, **arguments)


def _note_units(options: PairwiseOptions, records: dict[str, list[Record]]) -> list[str]:
    units = {record["scene"]: record["unit"] for group in records.values() for record in group}
    source = "measured" if options.unit is None else "given"
    listed = ", ".join(f"{scene} {unit:.4g}" for scene, unit in units.items())
    return [
        f"Not a published benchmark. A match is correct within {options.tau1:g} units; a pose is correct by "
        f"R1 within 0.2 units, by R2 within 15° and 0.3 units. One unit ({source}) in the files' unit of "
        f"length: {listed}."
    ]
