"""The 3DMatch benchmark: indoor scans with large or little overlap, as they are or rotated at random."""

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

SCENES = (  # folders of the public test set
    "7-scenes-redkitchen",
    "sun3d-home_at-home_at_scan1_2013_jan_1",
    "sun3d-home_md-home_md_scan9_2012_sep_30",
    "sun3d-hotel_uc-scan3",
    "sun3d-hotel_umd-maryland_hotel1",
    "sun3d-hotel_umd-maryland_hotel3",
    "sun3d-mit_76_studyroom-76-1studyroom2",
    "sun3d-mit_lab_hj-lab_hj_tea_nov_2_2012_scan1_erika",
)


def run_threedmatch(
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
    """Evaluate methods on the scenes at or below `root`; results go to `out`/3dmatch[-rotated][-lo].

    Args:
        root: Folder in the layout of 3DMatch.
        methods: Methods to evaluate.
        options: Options of the protocol.
        out: Folder of the results.
        executor: Executor of the jobs (default: this process).
        command: Command line to record with the results.
        fresh: Discard existing results.
        progress: Hook for progress bars.
    """
    scenes = read_scenes(root, options.low_overlap)
    name = "3dmatch" + "-rotated" * options.rotated + "-lo" * options.low_overlap
    title = "3DMatch" + ", rotated" * options.rotated + ", low overlap" * options.low_overlap
    folder = out / name
    run_log = RunLog(folder, command, fresh)
    records = evaluate_pairs(
        "3dmatch", scenes, methods, options, folder,
        executor=executor, run_log=run_log, fresh=fresh, progress=progress,
    )  # fmt: skip
    notes = []
    if {scene.name for scene in scenes} != set(SCENES):
        names = ", ".join(scene.name for scene in scenes)
        notes.append(f"Not the eight scenes of the published test set, but {names}.")
    return summarise_pairs("3dmatch", name, title, scenes, methods, options, records, run_log, folder, notes)
