"""The benchmark of 3DMatch: indoor fragments, overlapping well or little, as they stand or rotated.

And `run_pairs`, the same for any scans in that layout, in any unit of length.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wsdesc.core.executors import Executor
from wsdesc.evaluation.ablation import ablation_table, are_ablations, order_remark
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.pair_report import indoor_table, model_names, write_pair_report
from wsdesc.evaluation.pairwise import PairwiseOptions, Progress, run_pairwise
from wsdesc.evaluation.provenance import Runs
from wsdesc.evaluation.report import Report
from wsdesc.evaluation.scenes import read_test_scenes
from wsdesc.evaluation.tables import main_table

SCENES = (  # of the public test set, as its folders are called
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
    progress: Progress | None = None,
) -> Report:
    """Judge methods on the scenes below `root`; results go to `out`/3dmatch[-rotated][-lo].

    Methods called as rows of the paper's ablation table make that table, in `out`/ablation[-rotated][-lo].
    """
    scenes = read_test_scenes(root, options.low_overlap)
    ablations = are_ablations(method.name for method in methods)
    name = "ablation" if ablations else "3dmatch"
    name += "-rotated" * options.rotated + "-lo" * options.low_overlap
    folder = out / name
    runs = Runs(folder, command, fresh)
    told: Any = {"executor": executor, "runs": runs, "fresh": fresh, "progress": progress}
    results = run_pairwise("3dmatch", scenes, methods, options, folder, **told)
    remarks = []
    if {scene.name for scene in scenes} != set(SCENES):
        remarks.append(
            "Not the published test set, whose eight scenes the published figures are means of, but "
            f"{', '.join(scene.name for scene in scenes)}. Compare the methods with each other."
        )
    title = "3DMatch" + ", rotated" * options.rotated + ", low overlap" * options.low_overlap
    if ablations:
        main, title = ablation_table(results), f"Ablations, {title}"
        remarks += [remark] if (remark := order_remark(results)) else []
        if options.rotated:
            remarks.append("Published figures are of fragments as they stand; these are rotated.")
    elif options.low_overlap:
        remarks.append("Published figures are of pairs that overlap by 30 % or more; these overlap less.")
        main = main_table("3DMatch, low overlap (%)", results, [], [])
    else:
        main = indoor_table(results, options.rotated, model_names(methods))
    return write_pair_report(
        name, title, main, scenes, results, options, folder, runs=runs.all, remarks=remarks
    )


def run_pairs(
    root: Path,
    methods: Sequence[Method],
    options: PairwiseOptions,
    out: Path,
    *,
    executor: Executor | None = None,
    command: str = "",
    fresh: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Judge methods on any scans in the layout of 3DMatch; results go to `out`/pairs-ROOT[-rotated][-lo].

    Every threshold is that of 3DMatch times the unit: what counts as right follows the size of the scans.
    """
    scenes = read_test_scenes(root, options.low_overlap)
    root_name = root.resolve().name
    name = f"pairs-{root_name}" + "-rotated" * options.rotated + "-lo" * options.low_overlap
    folder = out / name
    runs = Runs(folder, command, fresh)
    told: Any = {"executor": executor, "runs": runs, "fresh": fresh, "progress": progress}
    results = run_pairwise("pairs", scenes, methods, options, folder, **told)
    units = {record["scene"]: record["unit"] for records in results.values() for record in records}
    found = "measured" if options.unit is None else "given"
    remarks = [
        f"Not a published benchmark. A match is right within {options.tau1:g} units, a pose by R1 within 0.2 "
        f"units, by R2 within 15° and 0.3 units; the unit, {found}, in the files' own measure: "
        f"{', '.join(f'{scene} {unit:.4g}' for scene, unit in units.items())}."
    ]
    title = f"Scans of {root_name}" + ", rotated" * options.rotated + ", low overlap" * options.low_overlap
    main = main_table(f"{title} (%)", results, [], [])
    return write_pair_report(
        name, title, main, scenes, results, options, folder, runs=runs.all, remarks=remarks
    )
