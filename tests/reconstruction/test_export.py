"""Files of a reconstruction."""

import json

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc import read_points, write_points
from wsdesc.cloud.merge import VoxelMerge
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import make_pose
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.known import KnownResult
from wsdesc.reconstruction.result import Reconstruction

NAMES = ["a.ply", "b.ply", "c|d.ply"]


def pose(seed):
    return make_pose(Rotation.random(random_state=seed).as_matrix(), [1 / 3, seed, -7.25])


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Two placed scans, one that is not placed, and one that is unreadable."""
    folder = tmp_path_factory.mktemp("scans")
    rng = np.random.default_rng(0)
    paths = {name: folder / name for name in NAMES}
    for path in paths.values():
        write_points(path, rng.uniform(size=(200, 3)))
    paths["bad.ply"] = folder / "bad.ply"
    edges = [
        EdgeResult("a.ply", "b.ply", pose(1), 0.97, 0.5, 0, 2000, None, 1.5),
        EdgeResult("a.ply", "c|d.ply", pose(2), 0.2, 0.1, 1, 4000, "confidence below 0.3", None),
        EdgeResult("b.ply", "c|d.ply", None, 0.0, 0.0, 0, 4000, "no alignment found", None),
    ]
    return Reconstruction(
        T_world_scan={"a.ply": np.eye(4), "b.ply": pose(1)},
        components=[["a.ply", "b.ply"]],
        not_placed={"c|d.ply": "no overlap", "bad.ply": "unreadable"},
        edges=edges,
        resolution=0.025,
        paths=paths,
        covariances={"a.ply": np.zeros((6, 6)), "b.ply": np.diag([1e-6, 2e-6, 3e-6, 1e-8, 1e-8, 2e-8])},
        known=[
            KnownResult("control", "b.ply", "P1", 0.004, 0.0, 0.8, None),
            KnownResult("pose", "a.ply", "", 6.0, 90.0, 60.0, "60 standard deviations from the poses"),
        ],
    )


def test_save_writes_all_files_and_removes_old_clouds(result, tmp_path):
    (tmp_path / "merged_2.ply").write_text("of an earlier run")
    (tmp_path / "merged_mine.ply").write_text("of the user")
    files = result.save(tmp_path, voxel=0.1)
    texts = ["poses.json", "poses.tum", "poses.g2o", "graph.json", "report.md", "report.html"]
    expected = [*texts, "merged.ply"]
    assert [path.name for path in files] == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*expected, "merged_mine.ply"])


def test_load_returns_what_was_saved(result, tmp_path):
    result.save(tmp_path)
    loaded = Reconstruction.load(tmp_path)
    assert loaded.to_dict() == result.to_dict()
    assert [edge.to_dict() for edge in loaded.edges] == [edge.to_dict() for edge in result.edges]
    assert loaded.known == result.known
    np.testing.assert_array_equal(loaded.covariances["b.ply"], result.covariances["b.ply"])
    assert (loaded.paths, loaded.complete) == (result.paths, False)
    np.testing.assert_array_equal(loaded.T_world_scan["b.ply"], pose(1))


def test_tum_file_has_position_and_quaternion(result, tmp_path):
    result.save(tmp_path)
    rows = np.loadtxt(tmp_path / "poses.tum")  # (2, 8)
    np.testing.assert_allclose(rows[1, 1:4], pose(1)[:3, 3], atol=1e-6)
    np.testing.assert_allclose(Rotation.from_quat(rows[1, 4:]).as_matrix(), pose(1)[:3, :3], atol=1e-9)


def test_report_names_all_scans(result, tmp_path):
    result.save(tmp_path)
    report = (tmp_path / "report.md").read_text()
    assert "2 of 4 scans were placed" in report
    assert all(text in report for text in ("a.ply", "b.ply", r"c\|d.ply", "bad.ply", "accepted", "rejected"))


def test_merged_cloud_is_the_sum_of_moved_scans(result, tmp_path):
    result.save(tmp_path, voxel=0.1)
    merged = VoxelMerge(0.1)
    for name in result.components[0]:
        merged.add(read_points(result.paths[name]), result.T_world_scan[name])
    np.testing.assert_array_equal(read_points(tmp_path / "merged.ply"), merged.points)


def test_several_components_have_several_clouds(result, tmp_path):
    paths = {name: result.paths[name] for name in ("a.ply", "b.ply")}
    poses = dict.fromkeys(paths, np.eye(4))
    files = Reconstruction(poses, [["a.ply"], ["b.ply"]], {}, [], 0.025, paths).save(tmp_path)
    assert [path.name for path in files[6:]] == ["merged.ply", "merged_2.ply"]


def test_scan_that_is_gone_is_an_error_with_advice(result, tmp_path):
    gone = Reconstruction({"x": np.eye(4)}, [["x"]], {}, [], 0.1, {"x": tmp_path / "x.npy"})
    with pytest.raises(InputError, match="`out`"):
        gone.save(tmp_path)
    assert not (tmp_path / "poses.json").exists()


@pytest.mark.parametrize("voxel", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_voxel_size(result, tmp_path, voxel):
    with pytest.raises(InputError, match="voxel"):
        result.save(tmp_path, voxel=voxel)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"scans": 3}', "{" * 100_000, '{"scans": {"a": {"T_world_scan": [[1]]}}}']
)
def test_damaged_files_are_refused(result, tmp_path, text):
    result.save(tmp_path)
    (tmp_path / "poses.json").write_text(text)
    with pytest.raises(FileFormatError, match=str(tmp_path)):
        Reconstruction.load(tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileFormatError, match="no reconstruction in this folder"):
        Reconstruction.load(tmp_path)


def test_text_of_an_edge_is_one_line(result):
    text = "EdgeResult('a.ply', 'c|d.ply', accepted=False, confidence=0.200, overlap=0.10)"
    assert repr(result.edges[1]) == text


def test_text_is_a_few_lines(result):
    assert "2 scans placed, 2 not placed" in str(result)
    assert "1 of 3 accepted" in str(result)
    assert len(str(result).splitlines()) <= 6
    assert "\n" not in repr(result)
    assert json.dumps(result.to_dict())
