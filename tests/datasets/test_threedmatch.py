"""Ground truth of scan pairs: the files of 3DMatch, and folders of any other scans."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.cloud.files import write_points
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import make_pose
from wsdesc.datasets.threedmatch import (
    InfoEntry,
    LogEntry,
    find_fragments,
    find_scenes,
    read_info,
    read_log,
    read_pairs,
    read_pose,
    write_info,
    write_log,
)

LOG = """0\t 1\t 12
1.0000000000 0.0000000000 0.0000000000 0.5000000000
0.0000000000 0.0000000000 -1.0000000000 -2.5e-1
0.0000000000 1.0000000000 0.0000000000 0
0.0000000000 0.0000000000 0.0000000000 1.0000000000
0\t 11\t 12
1 0 0 0
0 1 0 0
0 0 1 0
0 0 0 1
"""


def random_pose(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return make_pose(
        Rotation.random(random_state=seed).as_matrix(), rng.normal(size=3) * 10.0 ** rng.integers(-9, 7)
    )


def is_rigid(T: np.ndarray, atol: float) -> bool:
    R = T[:3, :3]
    return bool(np.allclose(R @ R.T, np.eye(3), atol=atol) and np.linalg.det(R) > 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create two scenes, the first with ground truth."""
    for scene in ("scene_10", "scene_2"):
        (tmp_path / scene).mkdir()
        for k in range(12):
            write_points(tmp_path / scene / f"cloud_bin_{k}.ply", np.eye(3))
        (tmp_path / scene / "cloud_bin_0.info.txt").write_text(
            "scene\t seq-01\t 0\n" + LOG.split("12\n")[1][:-4]
        )
        (tmp_path / scene / "thumbnail.png").write_bytes(b"")
    (tmp_path / "scene_2-evaluation").mkdir()
    (tmp_path / "scene_2-evaluation" / "gt.log").write_text(LOG)
    entries = [InfoEntry(i, j, 12, np.eye(6) * (j + 1)) for i, j in ((0, 11), (0, 5), (0, 1))]
    write_info(tmp_path / "scene_2-evaluation" / "gt.info", entries)
    return tmp_path


def test_read_a_published_log(tmp_path):
    (tmp_path / "gt.log").write_text(LOG)
    first, second = read_log(tmp_path / "gt.log")
    assert (first.i, first.j, first.n) == (0, 1, 12)
    assert first.T_i_j[:3, 3].tolist() == [0.5, -0.25, 0]
    assert first.T_i_j.dtype == np.float64
    assert second[:3] == (0, 11, 12)
    np.testing.assert_array_equal(second.T_i_j, np.eye(4))


def test_read_variants_of_a_log(tmp_path):
    path = tmp_path / "gt.log"
    for text in (
        LOG.replace("\n", "\r\n"),
        LOG.replace("\t", ""),
        "\n" + LOG.replace("\n0\t", "\n\n0\t"),
        LOG.rstrip(),
    ):
        path.write_bytes(text.encode())
        assert [entry[:3] for entry in read_log(path)] == [(0, 1, 12), (0, 11, 12)]
    path.write_text("")  # a result without pairs
    assert read_log(path) == []


def test_written_files_are_read_back_exactly(tmp_path):
    log = [LogEntry(i, i + 1, 60, random_pose(i)) for i in range(50)]
    write_log(tmp_path / "gt.log", log)
    for entry, again in zip(log, read_log(tmp_path / "gt.log"), strict=True):
        assert entry[:3] == again[:3]
        np.testing.assert_array_equal(entry.T_i_j, again.T_i_j)
    assert (tmp_path / "gt.log").read_text().startswith("0\t 1\t 60\n")
    info = [InfoEntry(i, i + 1, 60, np.random.default_rng(i).normal(size=(6, 6)) * 1e5) for i in range(50)]
    write_info(tmp_path / "gt.info", iter(info))
    for entry, again in zip(info, read_info(tmp_path / "gt.info"), strict=True):
        assert entry[:3] == again[:3]
        np.testing.assert_array_equal(entry.information, again.information)


def test_invalid_matrices_are_not_written(tmp_path):
    for matrix in (np.eye(3), np.full((4, 4), np.nan)):
        with pytest.raises(InputError, match="the pair 3 4 must be \\(4, 4\\) and finite"):
            write_log(tmp_path / "gt.log", [LogEntry(3, 4, 5, matrix)])
    assert not (tmp_path / "gt.log").exists()


@pytest.mark.parametrize(
    ("line", "text", "reported_line", "reason"),
    [
        (1, "0 1", 1, "not three whole numbers: '0 1'"),
        (6, "0 1.5 12", 6, "not three whole numbers"),
        (6, "-1 1 12", 6, "numbered from 0"),
        (3, "0 0 -1", 3, "not 4 finite numbers: '0 0 -1'"),
        (3, "0 0 -1 0 0", 3, "not 4 finite numbers"),
        (4, "0 0 one 0", 4, "not 4 finite numbers"),
        (8, "0 nan 1 0", 8, "not 4 finite numbers"),
        (10, "0 0 1 1", 10, "the last row"),
        (4, "", 5, None),  # one line too few: the error appears in a later line
        (10, "", 6, "4 rows of a matrix must follow, the file ends"),
    ],
)
def test_errors_in_a_log_name_file_and_line(tmp_path, line, text, reported_line, reason):
    lines = LOG.splitlines()
    lines[line - 1] = text
    (tmp_path / "gt.log").write_text("\n".join(lines))
    with pytest.raises(FileFormatError, match=reason) as caught:
        read_log(tmp_path / "gt.log")
    assert str(tmp_path / "gt.log") in str(caught.value)
    if reason is not None:
        assert f"gt.log, line {reported_line}: " in str(caught.value)


@pytest.mark.parametrize("read", [read_log, read_info, read_pose])
def test_files_that_are_not_text(tmp_path, read):
    with pytest.raises(FileFormatError, match="no such file"):
        read(tmp_path / "gt.log")
    (tmp_path / "gt.log").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(FileFormatError, match="cannot be read as text"):
        read(tmp_path / "gt.log")
    with pytest.raises(FileFormatError, match="cannot be read as text"):
        read(tmp_path)


def test_read_a_pose(tmp_path):
    path = tmp_path / "cloud_bin_0.info.txt"
    T = random_pose(0)
    rows = "\n".join(" ".join(map(repr, row)) for row in T.tolist())
    path.write_text(f"7-scenes redkitchen\t seq-01\t 0\n{rows}\n")
    np.testing.assert_array_equal(read_pose(path), T)
    path.write_text(f"scene\n{rows}\n0 0 0 1")
    with pytest.raises(FileFormatError, match="got 6 lines"):
        read_pose(path)
    path.write_text("scene\n" + rows.replace(rows.split()[5], "x"))
    with pytest.raises(FileFormatError, match=r"info\.txt, line 3: not 4 finite"):
        read_pose(path)


def test_scenes_and_fragments_are_sorted(root):
    scenes = find_scenes(root)
    assert [scene.name for scene in scenes] == ["scene_2", "scene_10"]
    for scene in scenes:
        assert list(scene.fragments) == list(range(12))
        assert [path.name for path in scene.fragments.values()] == [f"cloud_bin_{k}.ply" for k in range(12)]
    (only,) = find_scenes(root / "scene_10")
    assert (only.name, only.fragments) == ("scene_10", scenes[1].fragments)
    (root / "scene_2" / "cloud_bin_3.ply").unlink()
    assert 3 not in find_fragments(root / "scene_2")
    assert find_fragments(root / "scene_2")[4].name == "cloud_bin_4.ply"  # numbers, not positions


def test_ground_truth_of_a_scene(root):
    scene = find_scenes(root)[0]
    assert scene.find_truth() == root / "scene_2-evaluation" / "gt.log"
    assert [(entry.i, entry.j) for entry in scene.read_truth()] == [(0, 1), (0, 11)]
    with pytest.raises(FileFormatError, match=r"scene_2: .* expected .*scene_2-evaluation-lo.gt\.log"):
        scene.read_truth(low_overlap=True)


def test_ground_truth_beside_published_scenes(root):
    truth = root / "3DMatch" / "scene_10"
    truth.mkdir(parents=True)
    (truth / "gt.log").write_text(LOG)
    (scene,) = find_scenes(root / "scene_10")
    assert scene.find_truth() == (truth / "gt.log").resolve()


def write_scans(folder: Path, names: list[str]) -> None:
    folder.mkdir()
    for name in names:
        write_points(folder / name, np.eye(3))


def test_scans_of_any_name_with_a_log(tmp_path):
    write_scans(tmp_path / "yard", ["scan_10.ply", "scan_1.pcd", "scan_0.ply"])
    with pytest.raises(InputError, match=r"no scene found; .*gt\.log .*pairs\.txt"):
        find_scenes(tmp_path)
    (tmp_path / "yard" / "gt.log").write_text(LOG)
    (scene,) = find_scenes(tmp_path / "yard")
    assert {number: path.name for number, path in scene.fragments.items()} == {
        0: "scan_0.ply",
        1: "scan_1.pcd",
        10: "scan_10.ply",
    }
    assert [(entry.i, entry.j) for entry in scene.read_truth()] == [(0, 1), (0, 11)]
    assert [found.folder for found in find_scenes(tmp_path)] == [tmp_path / "yard"]


def test_pairs_by_file_name(tmp_path):
    write_scans(tmp_path / "yard", ["east wing.ply", "gate.xyz", "pond.ply"])
    rows = "\n".join(LOG.splitlines()[1:5])
    (tmp_path / "yard" / "pairs.txt").write_text(
        f'# two pairs\npond.ply gate.xyz\n{rows}\n\n"east wing.ply" pond.ply\n{rows}\n'
    )
    (scene,) = find_scenes(tmp_path)
    assert scene.find_truth().name == "pairs.txt"
    first, second = scene.read_truth()
    assert [scene.fragments[k].name for k in (first.i, first.j)] == ["pond.ply", "gate.xyz"]
    assert [scene.fragments[k].name for k in (second.i, second.j)] == ["east wing.ply", "pond.ply"]
    np.testing.assert_array_equal(first.T_i_j, read_log_text(tmp_path, LOG)[0].T_i_j)


def read_log_text(folder: Path, text: str) -> list[LogEntry]:
    (folder / "text.log").write_text(text)
    return read_log(folder / "text.log")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.ply\n", "line 1: not two file names: 'a.ply'"),
        ('"a.ply b.ply\n', "line 1: not two file names"),
        ("a.ply c.ply\n", "line 1: no scan 'c.ply' in the folder"),
        ("a.ply b.ply\n1 0 0 0\n", "line 1: 4 rows of a matrix must follow"),
        ("a.ply b.ply\n1 0 0 x\n1\n1\n1\n", "line 2: not 4 finite numbers"),
    ],
)
def test_errors_in_a_pairs_file(tmp_path, text, message):
    (tmp_path / "pairs.txt").write_text(text)
    with pytest.raises(FileFormatError, match=message) as caught:
        read_pairs(tmp_path / "pairs.txt", {0: tmp_path / "a.ply", 1: tmp_path / "b.ply"})
    assert str(tmp_path / "pairs.txt") in str(caught.value)


def test_folders_without_scenes(tmp_path):
    with pytest.raises(InputError, match="no scene found"):
        find_scenes(tmp_path)
    with pytest.raises(FileFormatError, match="no such folder"):
        find_scenes(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("folder", "scene", "fragments", "pairs", "low"),
    [
        ("indoor/test", "kitchen", 20, 119, 46),
        ("objects", "bunny", 10, 23, None),
        ("tls", "building", 13, 26, None),
    ],
)
def test_ground_truth_of_the_data_folder(data_folder, folder, scene, fragments, pairs, low):
    if not (data_folder / folder).is_dir():
        pytest.skip(f"the data folder has no {folder}")
    (only_scene,) = find_scenes(data_folder / folder)
    assert (only_scene.name, len(only_scene.fragments)) == (scene, fragments)
    counts = {False: pairs} if low is None else {False: pairs, True: low}
    for low_overlap, count in counts.items():
        log = only_scene.read_truth(low_overlap)
        info = {(e.i, e.j): e for e in read_info(only_scene.find_truth(low_overlap).with_name("gt.info"))}
        assert len(log) == count
        for entry in log:
            check_entry(entry, info[entry.i, entry.j], fragments)


def check_entry(log: LogEntry, info: InfoEntry, fragments: int) -> None:
    assert log[:3] == info[:3]
    assert 0 <= log.i < log.j < log.n == fragments
    assert is_rigid(log.T_i_j, 5e-4)  # the published poses of 7-Scenes are rounded
    assert np.allclose(info.information, info.information.T)
    assert np.linalg.eigvalsh(info.information).min() > 0


def test_poses_of_the_data_folder_are_rigid(data_folder):
    poses = sorted((data_folder / "indoor" / "train").glob("*/cloud_bin_*.info.txt"))
    assert len(poses) == 85
    assert all(is_rigid(read_pose(path), 1e-4) for path in poses)
