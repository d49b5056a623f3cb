"""The 3DMatch benchmark: indoor scans with large or little overlap, as they are or rotated at random."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.pairwise import PairBenchmark, RunArguments, run_benchmark
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.evaluation.scenes import EvaluationScene, read_scenes

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
    **arguments: Unpack[RunArguments],
) -> BenchmarkResults:
    """Evaluate methods on the scenes at or below `root`; results go to `out`/3dmatch[-rotated][-lo].

    Args:
        root: Folder in the layout of 3DMatch.
        methods: Methods to evaluate.
        options: Options of the protocol.
        out: Folder of the results.
        arguments: See `RunArguments`.
    """
    scenes = read_scenes(root, options.low_overlap)
    name = "3dmatch" + "-rotated" * options.rotated + "-lo" * options.low_overlap
    title = "3DMatch" + ", rotated" * options.rotated + ", low overlap" * options.low_overlap
    benchmark = PairBenchmark("3dmatch", name, title, scenes, lambda records: _other_scenes(scenes))
    return run_benchmark(benchmark, methods, options, out, **arguments)


def _other_scenes(scenes: Sequence[EvaluationScene]) -> list[str]:
    names = [scene.name for scene in scenes]
    if set(names) == set(SCENES):
        return []
    return [f"Not the eight scenes of the published test set, but {', '.join(names)}."]
