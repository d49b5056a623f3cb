"""What stands in a folder of scenes, and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from wsdesc.cloud.files import read_points, write_points
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.datasets.threedmatch import read_log
from wsdesc.evaluation.eth import eth_table, read_eth_scenes, run_eth
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.pairwise import PairwiseOptions
from wsdesc.evaluation.scenes import read_test_scenes


class TestThreeDMatch:
    def test_pairs_with_their_truth(self, scene_root: Path) -> None:
        (scene,) = read_test_scenes(scene_root)
        assert (scene.name, len(scene.pairs), scene.left_out) == ("room", 6, 0)
        assert scene.remark() is None
        assert all(pair.information is not None for pair in scene.pairs)
        (alone,) = read_test_scenes(scene_root / "room")
        assert alone.digest == scene.digest

    def test_low_overlap_is_another_folder(self, scene_root: Path) -> None:
        with pytest.raises(FileFormatError, match=r"room-evaluation-lo.gt\.log"):
            read_test_scenes(scene_root, low_overlap=True)
        folder = scene_root / "room-evaluation-lo"
        folder.mkdir()
        text = (scene_root / "room-evaluation" / "gt.log").read_text().splitlines()
        (folder / "gt.log").write_text("\n".join(text[:5]))
        (scene,) = read_test_scenes(scene_root, low_overlap=True)
        assert len(scene.pairs) == 1
        assert scene.pairs[0].information is None  # no gt.info: R1 is not judged

    @pytest.mark.parametrize("place", ["", ".."])
    def test_low_overlap_as_published(self, scene_root: Path, place: str) -> None:
        folder = scene_root / place / "3DLoMatch" / "room"
        folder.mkdir(parents=True)
        text = (scene_root / "room-evaluation" / "gt.log").read_text().splitlines()
        (folder / "gt.log").write_text("\n".join(text[5:15]))
        (scene,) = read_test_scenes(scene_root, low_overlap=True)
        assert [(pair.i, pair.j) for pair in scene.pairs] == [(0, 2), (0, 3)]
        (usual,) = read_test_scenes(scene_root)
        assert len(usual.pairs) == 6

    def test_a_root_without_scenes(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no scene found"):
            read_test_scenes(tmp_path)
        with pytest.raises(FileFormatError, match="no such folder"):
            read_test_scenes(tmp_path / "nowhere")

    def test_a_scene_without_truth(self, scene_root: Path) -> None:
        (scene_root / "room-evaluation" / "gt.log").unlink()
        with pytest.raises(FileFormatError, match=r"no ground truth; expected .*gt\.log"):
            read_test_scenes(scene_root)

    @pytest.mark.parametrize(("line", "text"), [(1, "0 one 4"), (3, "1 2 3"), (12, "nan 0 0 0")])
    def test_a_malformed_log_names_the_line(self, scene_root: Path, line: int, text: str) -> None:
        path = scene_root / "room-evaluation" / "gt.log"
        lines = path.read_text().splitlines()
        lines[line - 1] = text
        path.write_text("\n".join(lines))
        with pytest.raises(FileFormatError, match=rf"gt\.log, line {line}:"):
            read_test_scenes(scene_root)

    def test_a_pair_without_information(self, scene_root: Path) -> None:
        path = scene_root / "room-evaluation" / "gt.info"
        path.write_text("\n".join(path.read_text().splitlines()[:-7]))
        with pytest.raises(FileFormatError, match="lacks the pair 2 3"):
            read_test_scenes(scene_root)

    def test_a_missing_fragment_costs_its_pairs_and_is_named(self, scene_root: Path) -> None:
        (whole,) = read_test_scenes(scene_root)
        (scene_root / "room" / "cloud_bin_2.ply").unlink()
        (scene,) = read_test_scenes(scene_root)
        assert [(pair.i, pair.j) for pair in scene.pairs] == [(0, 1), (0, 3), (1, 3)]
        assert scene.remark() == "room: fragment is missing (cloud_bin_2.ply); 3 pairs left out"
        assert scene.digest == whole.digest  # once it is there, the run goes on
        for number in (0, 1):
            (scene_root / "room" / f"cloud_bin_{number}.ply").unlink()
        with pytest.raises(FileFormatError, match="no pair whose fragments are there"):
            read_test_scenes(scene_root)


def make_eth(root: Path, scene_root: Path, name: str) -> Path:
    """A scene as the data set was published: scans as csv, poses and overlaps, no gt.log."""
    folder = root / name
    (folder / "csv_local").mkdir(parents=True)
    truth = {(e.i, e.j): e.T_i_j for e in read_log(scene_root / "room-evaluation" / "gt.log")}
    rows = ["poseId, timestamp, " + ", ".join(f"T{r}{c}" for r in range(4) for c in range(4))]
    for k in range(4):
        points = read_points(scene_root / "room" / f"cloud_bin_{k}.ply")
        attributes = {"timestamp": np.full(len(points), 1.5e9), "intensities": np.ones(len(points))}
        write_points(folder / "csv_local" / f"Hokuyo_{k}.csv", points, attributes)
        T_world_scan = np.eye(4) if k == 0 else truth[0, k]  # the world is the frame of the first
        rows.append(f"{k}, 1.5e9, " + ", ".join(map(repr, T_world_scan.ravel().tolist())))
    (folder / "pose_scanner_leica.csv").write_text("\n".join(rows))
    overlap = np.full((4, 4), 0.8)
    overlap[1, 2], overlap[2, 1] = 0.9, 0.29  # seen from one side alone
    np.savetxt(folder / f"overlap_{name}.csv", overlap, delimiter=",")
    return folder


class TestEth:
    options = PairwiseOptions(keypoints=(300,), voxel=0)

    def test_poses_and_overlaps_give_the_pairs(self, scene_root: Path, tmp_path: Path) -> None:
        make_eth(tmp_path / "eth", scene_root, "wood_autmn")
        (scene,) = read_eth_scenes(tmp_path / "eth")
        assert scene.name == "wood_autumn"
        truth = {(e.i, e.j): e.T_i_j for e in read_log(scene_root / "room-evaluation" / "gt.log")}
        assert [(p.i, p.j) for p in scene.pairs] == [pair for pair in truth if pair != (1, 2)]
        for pair in scene.pairs:
            np.testing.assert_allclose(pair.T_i_j, truth[pair.i, pair.j], atol=1e-9)

    def test_a_log_is_as_good(self, scene_root: Path, tmp_path: Path) -> None:
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

    def test_the_whole_benchmark(self, scene_root: Path, tmp_path: Path, right: Method) -> None:
        for name in ("wood_summer", "gazebo_winter"):
            make_eth(tmp_path / "eth", scene_root, name)
        wrong = Method("wrong", lambda points, keys, unit: keys.sum(1, keepdim=True))
        report = run_eth(tmp_path / "eth", [right, wrong], self.options, tmp_path / "out")
        table = report.tables[0]
        assert table.header[1:4] == ["gazebo_winter", "wood_summer", "mean"]  # in the paper's order
        assert table.rows[0][:4] == ["right", "100.0", "100.0", "100.0 ± 0.0"]
        assert table.rows[1][0] == "wrong"
        assert float(table.rows[1][1]) < 50
        assert any(row[0] == "WSDesc, paper" and row[-1].endswith("/ 86.1") for row in table.rows)
        assert "Not the four published scenes" in report.remarks[0]

    def test_a_model_stands_beside_the_paper(self, scene_root: Path, tmp_path: Path, right: Method) -> None:
        make_eth(tmp_path / "eth", scene_root, "wood_summer")
        run_eth(tmp_path / "eth", [right], self.options, tmp_path / "out")
        lines = (tmp_path / "out" / "eth" / "right.jsonl").read_text().splitlines()
        table = eth_table({"right": [json.loads(line) for line in lines[1:]]}, ["right"])
        assert table.rows[0][-1] == "78.3 / 77.2 / 95.2 / 93.9 / 86.1"
        assert not any(row[0] == "WSDesc, paper" for row in table.rows)

    @pytest.mark.parametrize(
        ("file", "old", "new", "message"),
        [
            ("pose_scanner_leica.csv", "T33", "T44", "lacks the columns T33"),
            ("pose_scanner_leica.csv", "1.5e9", "x", "not rows of numbers"),
            ("overlap_s.csv", "\n", ",1\n", "poses"),
        ],
    )
    def test_damage_is_named(
        self, scene_root: Path, tmp_path: Path, file: str, old: str, new: str, message: str
    ) -> None:
        path = make_eth(tmp_path / "eth", scene_root, "s") / file
        path.write_text(path.read_text().replace(old, new))
        with pytest.raises(FileFormatError, match=message):
            read_eth_scenes(tmp_path / "eth")

    def test_a_root_without_scenes(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no scene here"):
            read_eth_scenes(tmp_path)
