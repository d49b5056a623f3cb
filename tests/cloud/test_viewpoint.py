"""Detection of the viewpoint: single scans have one, merged, fused and shifted clouds have none."""

from functools import cache

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.cloud.clean import clean_cloud
from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.files import read_cloud
from wsdesc.cloud.viewpoint import Viewpoint, check_viewpoint
from wsdesc.cloud.viewpoint_detection import detect_viewpoint, view_filled
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import room_scans
from wsdesc.datasets.synthetic.floor import floor_scans


@cache
def scan(seed: int = 1) -> np.ndarray:
    return floor_scans(seed, 2)[0].points


def test_terrestrial_scan_has_its_viewpoint_at_the_origin():
    assert detect_viewpoint(scan())


def test_rotated_and_scaled_scan():
    R = Rotation.random(random_state=2).as_matrix()
    assert detect_viewpoint(1000 * scan() @ R.T)


def test_local_coordinates():
    offset = np.array([3.0, -2.0, 1.0])
    assert detect_viewpoint(scan() + offset, offset)
    assert not detect_viewpoint(scan() + offset)


@pytest.mark.parametrize("shift", [(2.0, 1.0, 0.0), (0.0, 0.0, 5.0), (5e5, 4e6, 100.0)])
def test_shifted_scan_has_none(shift):
    assert not detect_viewpoint(scan().astype(np.float64) + shift)


def test_merged_scans_have_none():
    a, b = floor_scans(1, 2)
    T = np.linalg.inv(a.T_world_scan) @ b.T_world_scan
    assert not detect_viewpoint(np.concatenate([a.points, b.points @ T[:3, :3].T + T[:3, 3]]))


def test_fused_fragment_has_none():
    assert not any(detect_viewpoint(s.points) for s in room_scans(0, 2))


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((10, 3)),
        np.array([[1.0, 2, 3]]),
        np.tile([1.0, 0, 0], (1000, 1)),
        np.random.default_rng(0).normal(size=(5000, 3)),
        np.random.default_rng(0).uniform(size=(5000, 3)) * [1, 1, 0],
    ],
)
def test_degenerate_points_have_none(points):
    assert not detect_viewpoint(points)


def test_closed_shell_has_none():
    points = np.random.default_rng(0).normal(size=(30_000, 3))
    assert not detect_viewpoint(points / np.abs(points).max(axis=1, keepdims=True))  # a cube seen from inside


@pytest.mark.parametrize("bad", [(1, 2), (1, 2, np.nan), "here", None, (np.inf, 0, 0), [[1, 2, 3]]])
def test_check_viewpoint_refuses(bad):
    with pytest.raises(InputError, match="source_viewpoint must be three"):
        check_viewpoint(bad, "source_viewpoint")


def write_pcd(path, points, viewpoint):
    header = ["VERSION 0.7", "FIELDS x y z", "SIZE 8 8 8", "TYPE F F F", "COUNT 1 1 1"]
    header += [f"WIDTH {len(points)}", "HEIGHT 1", f"VIEWPOINT {viewpoint}", f"POINTS {len(points)}"]
    path.write_bytes("\n".join([*header, "DATA binary", ""]).encode() + points.astype("<f8").tobytes())


@pytest.mark.parametrize(
    ("line", "expected"), [("1 2 3 1 0 0 0", [1, 2, 3]), ("0 0 0 1 0 0 0", None), ("nan 0 0 1 0 0 0", None)]
)
def test_pcd_states_the_viewpoint(tmp_path, line, expected):
    write_pcd(tmp_path / "a.pcd", np.eye(3), line)
    viewpoint = read_cloud(tmp_path / "a.pcd").viewpoint
    assert (viewpoint is None) == (expected is None)
    if expected is not None:
        np.testing.assert_array_equal(viewpoint, expected)


def test_ptx_states_the_viewpoint(tmp_path):
    header = "1\n2\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n1 0 0 0\n0 1 0 0\n0 0 1 0\n5 6 7 1\n"
    station = header + "1 2 3 0.5\n2 3 4 0.5\n"
    (tmp_path / "one.ptx").write_text(station)
    (tmp_path / "two.ptx").write_text(2 * station)
    np.testing.assert_array_equal(read_cloud(tmp_path / "one.ptx").viewpoint, [5, 6, 7])
    assert read_cloud(tmp_path / "two.ptx").viewpoint is None
    np.testing.assert_array_equal(read_cloud(tmp_path / "two.ptx#2").viewpoint, [5, 6, 7])


def test_e57_states_the_viewpoint(tmp_path):
    pye57 = pytest.importorskip("pye57")
    data = {f"cartesian{axis}": np.array([1.0, 2.0, 4.0]) for axis in "XYZ"}
    for name, stations in (("one.e57", 1), ("two.e57", 2)):
        with pye57.E57(str(tmp_path / name), mode="w") as file:
            for _ in range(stations):
                file.write_scan_raw(
                    data, rotation=np.array([1.0, 0, 0, 0]), translation=np.array([5.0, 6, 7])
                )
    np.testing.assert_array_equal(read_cloud(tmp_path / "one.e57").viewpoint, [5, 6, 7])
    assert read_cloud(tmp_path / "two.e57").viewpoint is None


def test_transformed_cloud_moves_its_viewpoint():
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = Rotation.from_euler("z", 90, degrees=True).as_matrix(), (0, 0, 1)
    moved = Cloud(np.eye(3), viewpoint=np.array([1.0, 2, 3])).transformed(T)
    np.testing.assert_allclose(moved.viewpoint, [-2, 1, 4])
    assert Cloud(np.eye(3)).transformed(T).viewpoint is None


def test_viewpoint_of_the_file_is_used_if_the_points_agree(tmp_path):
    at = np.array([100.0, 200.0, 50.0])
    write_pcd(tmp_path / "right.pcd", scan() + at, "100 200 50 1 0 0 0")
    write_pcd(tmp_path / "wrong.pcd", scan(), "7 3 9 1 0 0 0")
    write_pcd(tmp_path / "none.pcd", scan() + at, "7 3 9 1 0 0 0")
    viewpoints = {
        name: clean_cloud(read_cloud(tmp_path / name)).viewpoint for name in ("right.pcd", "wrong.pcd")
    }
    assert viewpoints["right.pcd"].source == "file"
    np.testing.assert_array_equal(viewpoints["right.pcd"].position, at)
    assert viewpoints["wrong.pcd"].source == "detected"
    assert not viewpoints["wrong.pcd"].position.any()
    assert clean_cloud(read_cloud(tmp_path / "none.pcd")).viewpoint is None


def test_given_viewpoints():
    cloud = Cloud(scan().astype(np.float64))
    cleaned = clean_cloud(cloud, (0.5, 0, 0))
    assert cleaned.viewpoint.source == "given"
    T = cleaned.T_scan_local
    np.testing.assert_allclose(T[:3, :3] @ cleaned.local_viewpoint + T[:3, 3], [0.5, 0, 0], atol=1e-9)
    assert clean_cloud(cloud, "none").viewpoint is None
    assert clean_cloud(cloud, "none").local_viewpoint is None
    with pytest.raises(InputError, match=r"target_viewpoint is 1e\+09 away"):
        clean_cloud(cloud, (1e9, 0, 0), "target_viewpoint")
    with pytest.raises(InputError, match="viewpoint must be three"):
        clean_cloud(cloud, (1, 2, np.nan))


def test_detection_does_not_depend_on_the_axes():
    for seed in range(3):
        R = Rotation.random(random_state=seed).as_matrix()
        assert clean_cloud(Cloud(scan() @ R.T.astype(np.float64))).viewpoint is not None


def test_text():
    assert str(Viewpoint(np.zeros(3), "detected")) == "detected at the origin"
    assert str(Viewpoint(np.array([1.0, 2.5, -3.0]), "file")) == "file at (1, 2.5, -3)"


def test_rays_fill_the_view_of_a_camera():
    rng = np.random.default_rng(0)
    image = rng.uniform(-1, 1, (20_000, 2)) * [0.6, 0.4]
    points = np.c_[image, np.ones(len(image))] * rng.uniform(1, 3, (len(image), 1))
    assert view_filled(points.astype(np.float32)) == pytest.approx(1, abs=0.1)
    turned = points @ Rotation.random(random_state=2).as_matrix().T
    assert view_filled(turned.astype(np.float32)) == pytest.approx(1, abs=0.1)


def test_corridors_seen_from_above_leave_gaps():
    rng = np.random.default_rng(0)
    first, second = rng.uniform(-1, 1, (2, 9000, 3)) * [10, 1, 0.05]
    floor = np.concatenate([first, second[:, [1, 0, 2]]]) - [0, 0, 20]
    assert view_filled(floor.astype(np.float32)) < 0.6
    assert not detect_viewpoint(floor)
