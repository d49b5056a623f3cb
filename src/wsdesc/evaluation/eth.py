"""The benchmark of ETH: laser scans outdoors, for descriptors that learned indoors.

A scene is a folder (gazebo_summer, gazebo_winter, wood_summer, wood_autumn; wood_autmn is the last one, too),
its scans files that end in their number: Hokuyo_0.ply or Hokuyo_0.csv with columns x, y, z among others, or
cloud_bin_0.ply; in the folder itself or in csv_local/ below. The truth of its pairs is one of

- gt.log, in the scene or in <scene>-evaluation, as in 3DMatch; or
- pose_scanner_leica.csv (or poseScanner_leica.csv) with columns T00 … T33, row k the T_world_scan of scan k,
  beside overlap*.csv, a square of numbers whose entry (i, j) is the share of scan i that j sees as well:
  pairs i < j with 0.3 or more in both directions count.

Official keypoints stand in 01_Keypoints/Hokuyo_kKeypoints.txt, as indices. Scans are thinned to 2 cm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.executors import Executor
from wsdesc.datasets.scans import natural_order
from wsdesc.datasets.threedmatch import read_log
from wsdesc.evaluation import published
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.pair_report import model_names, write_pair_report
from wsdesc.evaluation.pairwise import PairwiseOptions, Progress, run_pairwise
from wsdesc.evaluation.provenance import Runs
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.report import Report, Table
from wsdesc.evaluation.scenes import PairTruth, TestScene, find_keypoints, make_scene
from wsdesc.evaluation.summary import over_scenes, scene_figures
from wsdesc.evaluation.tables import NONE, most_keypoints, percent, with_published

VOXEL = 0.02  # metres
LEAST_OVERLAP = 0.3
_SCAN = re.compile(r"(?:Hokuyo_|PointCloud|cloud_bin_)(\d+)\.(?:ply|csv|pcd)")
_POSES = ("pose_scanner_leica.csv", "poseScanner_leica.csv")


def read_eth_scenes(root: str | Path) -> list[TestScene]:
    """The scenes below `root`, or `root` itself, in the layout described above."""
    root = Path(root)
    if not root.is_dir():
        raise FileFormatError(f"{root}: there is no such folder")
    folders = [root, *sorted((path for path in root.iterdir() if path.is_dir()), key=natural_order)]
    found = [(folder, _scans(folder)) for folder in folders]
    scenes = [_read_scene(folder, scans) for folder, scans in found if scans]
    if not scenes:
        raise InputError(f"{root}: no scene here; one is a folder of Hokuyo_0.ply (or .csv), Hokuyo_1.ply, …")
    return scenes


def _scans(folder: Path) -> dict[int, Path]:
    if folder.name in ("csv_local", "csv_global", "01_Keypoints"):
        return {}
    for place in (folder, folder / "csv_local"):
        files = sorted(place.iterdir()) if place.is_dir() else []
        scans = {int(m[1]): path for path in files if (m := _SCAN.fullmatch(path.name))}
        if scans:
            return dict(sorted(scans.items()))
    return {}


def _read_scene(folder: Path, scans: dict[int, Path]) -> TestScene:
    name = folder.resolve().name.replace("autmn", "autumn")
    logs = [folder / "gt.log", folder.with_name(f"{folder.name}-evaluation") / "gt.log"]
    log = next((path for path in logs if path.is_file()), None)
    if log is not None:
        pairs = [PairTruth(entry.i, entry.j, entry.T_i_j) for entry in read_log(log)]
    else:
        pairs = _pairs_of_poses(folder)
    places = [folder, folder / "01_Keypoints", logs[1].parent / "01_Keypoints"]
    keypoints = {number: find_keypoints(places, path.stem) for number, path in scans.items()}
    there = {number: path for number, path in keypoints.items() if path}
    return make_scene(name, folder, scans, pairs, there, fragment_name="scan {}")


def _pairs_of_poses(folder: Path) -> list[PairTruth]:
    places = (folder, folder / "csv_local", folder / "csv_global")
    poses = next((path for place in places for n in _POSES if (path := place / n).is_file()), None)
    overlaps = next((path for place in places for path in sorted(place.glob("overlap*.csv"))), None)
    if poses is None or overlaps is None:
        raise FileFormatError(
            f"{folder}: this scene has no ground truth; expected gt.log, or {_POSES[0]} with overlap*.csv"
        )
    T_world_scan = _read_poses(poses)
    shares = _numbers(overlaps)
    if shares.shape != (len(T_world_scan), len(T_world_scan)):
        raise FileFormatError(
            f"{overlaps}: is {shares.shape}, but {poses.name} has {len(T_world_scan)} poses"
        )
    both = np.minimum(shares, shares.T)
    return [
        PairTruth(i, j, np.linalg.inv(T_world_scan[i]) @ T_world_scan[j])
        for i in range(len(both))
        for j in range(i + 1, len(both))
        if both[i, j] >= LEAST_OVERLAP
    ]


def _read_poses(path: Path) -> NDArray[np.float64]:
    """(B, 4, 4) from the columns T00 … T33, whatever else the file has."""
    try:
        first = path.read_text(encoding="utf-8-sig").partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: cannot be read as text ({error})") from error
    names = [word.strip(' "#\r') for word in first.split(",")]
    wanted = [f"T{row}{column}" for row in range(4) for column in range(4)]
    absent = [name for name in wanted if name not in names]
    if absent:
        raise FileFormatError(f"{path}, line 1: lacks the columns {', '.join(absent)}")
    table = _numbers(path, skip=1)
    if table.shape[1] != len(names):
        raise FileFormatError(f"{path}: has {table.shape[1]} columns under {len(names)} names")
    poses = table[:, [names.index(name) for name in wanted]].reshape(-1, 4, 4)
    R = poses[:, :3, :3]
    rigid = np.isclose(R @ R.transpose(0, 2, 1), np.eye(3), atol=1e-3).all(axis=(1, 2))
    rigid &= np.isclose(poses[:, 3], (0, 0, 0, 1), atol=1e-6).all(axis=1)
    if not rigid.all():
        raise FileFormatError(f"{path}, line {rigid.argmin() + 2}: not a rigid motion")
    return poses


def _numbers(path: Path, skip: int = 0) -> NDArray[np.float64]:
    try:
        table = np.loadtxt(path, delimiter=",", skiprows=skip, ndmin=2, comments=("#", "//"))
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: not rows of numbers ({error})") from error
    if table.size == 0 or not np.isfinite(table).all():
        raise FileFormatError(f"{path}: not rows of finite numbers")
    return table


def run_eth(
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
    """Judge methods on the scenes below `root`; results go to `out`/eth."""
    scenes = read_eth_scenes(root)
    folder = out / "eth"
    runs = Runs(folder, command, fresh)
    told: Any = {"executor": executor, "runs": runs, "fresh": fresh, "progress": progress}
    results = run_pairwise("eth", scenes, methods, options, folder, **told)
    remarks = []
    if {scene.name for scene in scenes} != set(published.OUTDOOR_SCENES):
        remarks.append("Not the four published scenes: compare the methods with each other.")
    main = eth_table(results, model_names(methods))
    return write_pair_report(
        "eth", "ETH", main, scenes, results, options, folder, runs=runs.all, remarks=remarks
    )


def eth_table(results: dict[str, list[Record]], models: Sequence[str]) -> Table:
    """Table 8: FMR at τ2 = 0.05, a column for each scene."""
    figures = {name: most_keypoints(scene_figures(records)) for name, records in results.items()}
    found = dict.fromkeys(f.scene for some in figures.values() for f in some)
    scenes = [s for s in published.OUTDOOR_SCENES if s in found]
    scenes += [scene for scene in found if scene not in scenes]
    ours = {}
    for name, some in figures.items():
        recall = {f.scene: f.recall_005 for f in some}
        mean = over_scenes(list(recall.values()))
        ours[name] = [*(percent(recall.get(scene)) for scene in scenes), mean.percent() if mean else NONE]
    header = ["method", *scenes, "mean", f"published: {' / '.join(published.OUTDOOR_SCENES)} / mean"]
    title = "ETH, FMR at τ2 = 0.05 (%); Table 8 of the paper"
    return with_published(title, header, ours, published.OUTDOOR, (2, 3, 4, 5, 6), models)
