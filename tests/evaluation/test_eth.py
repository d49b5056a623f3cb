"""The ETH benchmark reads its published layouts and evaluates FMR."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wsdesc.cloud.files import read_points, write_points
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.datasets.threedmatch import read_log
from wsdesc.evaluation.eth import read_eth_scenes, run_eth
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.options import EthOptions


def make_eth(root: Path, scene_root: Path, name: str) -> Path:
    """Write a scene as published: scans as csv, poses and overlaps, no gt.log."""
    folder = root / name
    (folder / "csv_local").mkdir(parents=True)
    truth = {(e.i, e.j): e.T_i_j for e in read_log(scene_root / "room-evaluation" / "gt.log")}
    rows = ["poseId, timestamp, " + ", ".join(f"T{r}{c}" for r in range(4) for c in range(4))]
    for k in range(4):
        points = read_points(scene_root / "room" / f"cloud_bin_{k}.ply")
        attributes = {"timestamp": np.full(len(points), 1.5e9), "intensities": np.ones(len(points))}
        write_points(folder / "csv_local" / f"Hokuyo_{k}.csv", points, attributes)
        T_world_scan = np.eye(4) if k == 0 else truth[0, k]  # the world frame is that of scan 0
        rows.append(f"{k}, 1.5e9, " + ", ".join(map(repr, T_world_scan.ravel().tolist())))
    (folder / "pose_scanner_leica.csv").write_text("\n".join(rows))
    overlap = np.full((4, 4), 0.8)
    overlap[1, 2], overlap[2, 1] = 0.9, 0.29  # large in one direction only
    np.savetxt(folder / f"overlap_{name}.csv", overlap, delimiter=",")
    return folder


def test_pairs_are_derived_from_poses_and_overlaps(scene_root: Path, tmp_path: Path) -> None:
    make_eth(tmp_path / "eth", scene_root, "wood_autmn")
    (scene,) = read_eth_scenes(tmp_path / "eth")
    assert scene.name == "wood_autumn"
    truth = {(e.i, e.j): e.T_i_j for e in read_log(scene_root / "room-evaluation" / "gt.log")}
    assert [(p.i, p.j) for p in scene.pairs] == [pair for pair in truth if pair != (1, 2)]
    for pair in scene.pairs:
        np.testing.assert_allclose(pair.T_i_j, truth[pair.i, pair.j], atol=1e-9)


def test_pairs_are_read_from_a_log(scene_root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "eth" / "gazebo_summer"
    folder.mkdir(parents=True)
    for k in range(4):
        points = read_points(scene_root / "room" / f"cloud_bin_{k}.ply")
        write_points(folder / f"Hokuyo_{k}.ply", points)
    with pytest.raises(FileFormatError, match="no ground truth"):
        read_eth_scenes(tmp_path / "eth")
    (folder / "gt.log").write_text((scene_root / "room-evaluation" / "gt.log").read_text())
    (folder / "01_Keypoints").mkdir()
    (folder / "01_Keypoints" / "Hokuyo_2Keypoints.txt").write_text("0\n1\n")
    (scene,) = read_eth_scenes(tmp_path / "eth")
    assert len(scene.pairs) == 6
    assert list(scene.keypoints) == [2]


def test_benchmark_evaluates_every_scene(scene_root: Path, tmp_path: Path, exact_method: Method) -> None:
    for name in ("wood_summer", "gazebo_winter"):
        make_eth(tmp_path / "eth", scene_root, name)
    wrong = Method("wrong", lambda points, keypoints, unit: keypoints.sum(1, keepdim=True))
    options = EthOptions(keypoints=(300,), voxel=0)
    results = run_eth(tmp_path / "eth", [exact_method, wrong], options, tmp_path / "out")
    main, scenes = results.tables
    assert main.rows[0][:4] == ["exact", "8", "100.0 ± 0.0", "100.0 ± 0.0"]
    assert [row[:2] for row in scenes.rows[:2]] == [["exact", "gazebo_winter"], ["exact", "wood_summer"]]
    assert float(scenes.rows[2][5]) < 50
    assert results.notes[0] == "Not the four published scenes."


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("pose_scanner_leica.csv", "T33", "T44", "lacks the columns T33"),
        ("pose_scanner_leica.csv", "1.5e9", "x", "not rows of numbers"),
        ("overlap_s.csv", "\n", ",1\n", "poses"),
    ],
)
def test_damaged_files_are_named(
    scene_root: Path, tmp_path: Path, file: str, old: str, new: str, message: str
) -> None:
    path = make_eth(tmp_path / "eth", scene_root, "s") / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(FileFormatError, match=message):
        read_eth_scenes(tmp_path / "eth")


def test_folder_without_scenes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no scene found"):
        read_eth_scenes(tmp_path)
