"""A benchmark on pairs of any scans with known poses, in any readable format and any unit of length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wsdesc.core.executors import Executor
from wsdesc.core.progress import ProgressHook
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.pairwise import evaluate_pairs, summarise_pairs
from wsdesc.evaluation.provenance import RunLog
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.evaluation.scenes import read_scenes


def run_pairs(
    root: Path,
    methods: Sequence[Method],
    options: PairwiseOptions,
    out: Path,
    *,
    executor: Executor | None = None,
    command: str = "",
    fresh: bool = False,
    progress: ProgressHook | None = None,
) -> BenchmarkResults:
    """Evaluate methods on pairs of any scans; results go to `out`/pairs-ROOT[-rotated][-lo].

    All thresholds are those of 3DMatch times the unit, so that they follow the size of the scans.

    Args:
        root: Folder of scans with gt.log or pairs.txt, or folder of such folders.
        methods: Methods to evaluate.
        options: Options of the protocol.
        out: Folder of the results.
        executor: Executor of the jobs (default: this process).
        command: Command line to record with the results.
        fresh: Discard existing results.
        progress: Hook for progress bars.
    """
    scenes = read_scenes(root, options.low_overlap)
    root_name = root.resolve().name
    name = f"pairs-{root_name}" + "-rotated" * options.rotated + "-lo" * options.low_overlap
    title = f"Scans of {root_name}" + ", rotated" * options.rotated + ", low overlap" * options.low_overlap
    folder = out / name
    run_log = RunLog(folder, command, fresh)
    records = evaluate_pairs(
        "pairs", scenes, methods, options, folder,
        executor=executor, run_log=run_log, fresh=fresh, progress=progress,
    )  # fmt: skip
    units = {record["scene"]: record["unit"] for group in records.values() for record in group}
    source = "measured" if options.unit is None else "given"
    listed = ", ".join(f"{scene} {unit:.4g}" for scene, unit in units.items())
    notes = [
        f"Not a published benchmark. A match is correct within {options.tau1:g} units; a pose is correct by "
        f"R1 within 0.2 units, by R2 within 15° and 0.3 units. One unit ({source}) in the files' unit of "
        f"length: {listed}."
    ]
    return summarise_pairs("pairs", name, title, scenes, methods, options, records, run_log, folder, notes)
