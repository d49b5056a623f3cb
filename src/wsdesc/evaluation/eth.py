"""The ETH benchmark: outdoor laser scans, for descriptors trained indoors.

A scene is a folder: gazebo_summer, gazebo_winter, wood_summer or wood_autumn (wood_autmn is accepted). Its
scans are numbered files: Hokuyo_0.ply, Hokuyo_0.csv with columns x, y, z, or cloud_bin_0.ply, in the folder
or in its subfolder csv_local. The ground truth is one of

- gt.log, in the folder or in SCENE-evaluation, as in 3DMatch;
- pose_scanner_leica.csv (or poseScanner_leica.csv) with columns T00 … T33, and overlap*.csv. Row k of the
  first is T_world_scan of scan k. Entry (i, j) of the second is the share of scan i that scan j also covers.
  Pairs i < j with at least 0.3 in both directions are evaluated.

Official keypoints are indices in 01_Keypoints/Hokuyo_kKeypoints.txt. Scans are downsampled to 2 cm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np

from wsdesc.cloud.scan_files import natural_order
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import Floats, inverse, is_rigid
from wsdesc.datasets.threedmatch import read_log
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.options import EthOptions
from wsdesc.evaluation.pairwise import PairBenchmark, RunArguments, run_benchmark
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.evaluation.scenes import EvaluationScene, PairTruth, find_keypoints, make_scene

SCENES = ("gazebo_summer", "gazebo_winter", "wood_summer", "wood_autumn")
MIN_OVERLAP = 0.3
_SCAN = re.compile(r"(?:Hokuyo_|PointCloud|cloud_bin_)(\d+)\.(?:ply|csv|pcd)")
_POSES = ("pose_scanner_leica.csv", "poseScanner_leica.csv")


def read_eth_scenes(root: str | Path) -> list[EvaluationScene]:
    """Read the scenes at or below `root`, in the layout described above."""
    root = Path(root)
    if not root.is_dir():
        raise FileFormatError(f"{root}: no such folder")
    folders = [root, *sorted((path for path in root.iterdir() if path.is_dir()), key=natural_order)]
    scenes = [_read_scene(folder, scans) for folder in folders if (scans := _scans(folder))]
    if not scenes:
        raise InputError(
            f"{root}: no scene found; expected folders of Hokuyo_0.ply (or .csv), Hokuyo_1.ply, …"
        )
    return scenes


def _scans(folder: Path) -> dict[int, Path]:
    if folder.name in ("csv_local", "csv_global", "01_Keypoints"):
        return {}
    for location in (folder, folder / "csv_local"):
        files = sorted(location.iterdir()) if location.is_dir() else []
        scans = {int(m[1]): path for path in files if (m := _SCAN.fullmatch(path.name))}
        if scans:
            return dict(sorted(scans.items()))
    return {}


def _read_scene(folder: Path, scans: dict[int, Path]) -> EvaluationScene:
    name = folder.resolve().name.replace("autmn", "autumn")
    evaluation = folder.resolve().with_name(f"{folder.resolve().name}-evaluation")
    truth = next((path for path in (folder, evaluation) if (path / "gt.log").is_file()), None)
    if truth:
        pairs = [PairTruth(entry.i, entry.j, entry.T_i_j) for entry in read_log(truth / "gt.log")]
    else:
        pairs = _pairs_of_poses(folder)
    folders = [folder, folder / "01_Keypoints", evaluation / "01_Keypoints"]
    keypoints = {number: find_keypoints(folders, path.stem) for number, path in scans.items()}
    listed = {number: path for number, path in keypoints.items() if path}
    return make_scene(name, folder, scans, pairs, listed, scan_name="scan {}")


def _pairs_of_poses(folder: Path) -> list[PairTruth]:
    folders = (folder, folder / "csv_local", folder / "csv_global")
    poses = next((path for location in folders for n in _POSES if (path := location / n).is_file()), None)
    overlaps = next((path for location in folders for path in sorted(location.glob("overlap*.csv"))), None)
    if poses is None or overlaps is None:
        raise FileFormatError(
            f"{folder}: this scene has no ground truth; expected gt.log, or {_POSES[0]} with overlap*.csv"
        )
    T_world_scan = _read_poses(poses)
    shares = _numbers(overlaps)
    if shares.shape != (len(T_world_scan), len(T_world_scan)):
        raise FileFormatError(
            f"{overlaps}: the matrix is {shares.shape}, but {poses.name} has {len(T_world_scan)} poses"
        )
    both = np.minimum(shares, shares.T)
    return [
        PairTruth(i, j, inverse(T_world_scan[i]) @ T_world_scan[j])
        for i in range(len(both))
        for j in range(i + 1, len(both))
        if both[i, j] >= MIN_OVERLAP
    ]


def _read_poses(path: Path) -> Floats:
    """Read (B, 4, 4) from the columns T00 … T33; other columns are ignored."""
    try:
        first = path.read_text(encoding="utf-8-sig").partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: cannot be read as text ({error})") from error
    names = [word.strip(' "#\r') for word in first.split(",")]
    columns = [f"T{row}{column}" for row in range(4) for column in range(4)]
    missing = [name for name in columns if name not in names]
    if missing:
        raise FileFormatError(f"{path}, line 1: lacks the columns {', '.join(missing)}")
    table = _numbers(path, skip=1)
    if table.shape[1] != len(names):
        raise FileFormatError(f"{path}: has {table.shape[1]} columns under {len(names)} names")
    poses = table[:, [names.index(name) for name in columns]].reshape(-1, 4, 4)
    rigid = is_rigid(poses)
    if not rigid.all():
        raise FileFormatError(f"{path}, line {rigid.argmin() + 2}: the pose is not rigid")
    return poses


def _numbers(path: Path, skip: int = 0) -> Floats:
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
    options: EthOptions,
    out: Path,
    **arguments: Unpack[RunArguments],
) -> BenchmarkResults:
    """Evaluate methods on the scenes at or below `root`; results go to `out`/eth.

    Args:
        root: Folder in the layout described above.
        methods: Methods to evaluate.
        options: Options of the protocol.
        out: Folder of the results.
        arguments: See `RunArguments`.
    """
    scenes = read_eth_scenes(root)
    published = {scene.name for scene in scenes} == set(SCENES)
    notes = [] if published else ["Not the four published scenes."]
    benchmark = PairBenchmark("eth", "eth", "ETH", scenes, lambda records: notes)
    return run_benchmark(benchmark, methods, options, out, **arguments)
