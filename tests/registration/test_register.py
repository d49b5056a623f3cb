"""Registration of two scans, from points to pose and confidence."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import wsdesc
from poses import random_pose
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.synthetic import room_pair, room_scans
from wsdesc.evaluation.metrics import rotation_error_deg, translation_error

FAST = {"keypoints": 300}
THOROUGH = {"keypoints": 700}


def distance(T, T_true, points):
    """Return the largest distance between points under two poses."""
    return np.linalg.norm(transform(points, T) - transform(points, T_true), axis=1).max()


@pytest.fixture(scope="module")
def pair():
    """Two coarse scans of a room in different frames, and the true pose."""
    a, b = room_scans(5, 2, resolution=0.05)
    T_own = random_pose(1)
    source = transform(a.points.astype(np.float64), inverse(T_own))
    T = inverse(b.T_world_scan) @ a.T_world_scan @ T_own
    return source, b.points.astype(np.float64), T


@pytest.fixture(scope="module")
def result(pair):
    return wsdesc.register(pair[0], pair[1], **FAST)


@pytest.fixture(scope="module")
def dense_pair():
    """The same at the usual resolution."""
    made = room_pair(11)
    T = random_pose(1)
    source = transform(made.source.astype(np.float64), inverse(T))
    return source, made.target.astype(np.float64), made.T_target_source @ T


def test_pose_is_right_and_confident(pair, result):
    assert rotation_error_deg(result.T_target_source, pair[2]) < 1
    assert translation_error(result.T_target_source, pair[2]) < 0.05
    assert result.success
    assert 0.9 <= result.confidence <= 1
    assert 0.2 < result.overlap <= 1
    assert 0 < result.rmse < result.resolution
    assert 3 <= result.inliers <= result.matches
    assert result.matched.pairs.shape == (result.matches, 2)
    assert result.matched.inlier.sum() == result.inliers
    assert result.warnings == []
    assert {"read", "prepare", "describe", "match and solve", "verify and refine"} <= set(result.timings)


def test_same_input_gives_the_same_bits(pair, result):
    again = wsdesc.register(pair[0], pair[1], **FAST)
    np.testing.assert_array_equal(again.T_target_source, result.T_target_source)
    assert again.confidence == result.confidence


def test_described_scans_give_the_same_pose(pair, result):
    source, target = (
        wsdesc.describe(cloud, keypoints=300, resolution=result.resolution) for cloud in pair[:2]
    )
    described = wsdesc.register_described(source, target)
    np.testing.assert_allclose(described.T_target_source, result.T_target_source, atol=1e-9)
    other = wsdesc.describe(pair[1], keypoints=20, resolution=2 * result.resolution)
    with pytest.raises(InputError, match="different resolutions"):
        wsdesc.register_described(source, other)


def test_files_give_the_same_pose(pair, result, tmp_path):
    for name, points in zip(("a.npy", "b.npy"), pair[:2], strict=True):
        np.save(tmp_path / name, points)
    loaded = wsdesc.register(tmp_path / "a.npy", str(tmp_path / "b.npy"), **FAST)
    np.testing.assert_array_equal(loaded.T_target_source, result.T_target_source)
    with pytest.raises(FileFormatError, match="missing"):
        wsdesc.register(tmp_path / "a.npy", tmp_path / "missing.ply")


def test_progress_hook_sees_the_second_round_only_without_success(pair, result):
    steps = []

    class Hook:
        def __init__(self, name, total):
            steps.append((name, total))

        def __enter__(self):
            return lambda items: None

        def __exit__(self, *error):
            return None

    wsdesc.register(pair[0], pair[1], keypoints=(300, 320), progress=Hook)
    assert [total for name, total in steps if name == "describe"] == [600]
    steps.clear()
    noise = np.random.default_rng(0).uniform(-1, 1, (3000, 3))
    wsdesc.register(pair[0], noise, keypoints=(60, 80), resolution=result.resolution, progress=Hook)
    assert [total for name, total in steps if name == "describe"] == [120, 40]


def test_failed_registration_says_what_to_try(pair, result):
    noise = np.random.default_rng(0).uniform(-1, 1, (3000, 3))
    failed = wsdesc.register(pair[0], noise, keypoints=60, resolution=result.resolution)
    assert not failed.success
    assert failed.warnings
    assert all(warning[0].isupper() and warning.endswith(".") for warning in failed.warnings)


def test_different_units_are_reported(pair):
    failed = wsdesc.register(1000 * pair[0], pair[1], **FAST)
    assert not failed.success
    assert failed.warnings[0].startswith("The scans seem to have different units")
    assert "(0.001 if the source is in millimetres and the target in metres; " in failed.warnings[0]
    assert wsdesc.register(1000 * pair[0], pair[1], scale=0.001, **FAST).success


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.zeros((0, 3)), "no points"),
        (np.zeros((1, 3)), "points are equal"),
        (np.zeros((50, 3)), "points are equal"),
        (np.eye(3)[:2], "points"),
        (np.random.default_rng(0).normal(size=(20, 3)), "points are left"),
        (np.full((9, 3), np.nan), "finite"),
        (np.zeros((9, 2)), "shape"),
    ],
)
def test_unusable_points_are_an_error(pair, points, message):
    for scans in ((points, pair[1]), (pair[0], points)):
        with pytest.raises(InputError, match=message):
            wsdesc.register(*scans, **FAST)


def test_points_that_are_not_finite_are_ignored(pair, result):
    source = np.vstack([pair[0], [[np.nan, 0, 0], [0, np.inf, 0]]])
    again = wsdesc.register(source, pair[1], **FAST)
    np.testing.assert_array_equal(again.T_target_source, result.T_target_source)


@pytest.mark.slow
def test_swapped_scans_give_the_inverse(pair, result):
    back = wsdesc.register(pair[1], pair[0], **FAST)
    assert distance(inverse(back.T_target_source), result.T_target_source, pair[0]) < 0.25 * result.resolution
    assert back.success


@pytest.mark.slow
def test_pose_follows_scans_that_are_moved_far_away(pair):
    T_source, T_target = random_pose(5), random_pose(6)
    T_target[:3, 3] += [4.5e5, 5.4e6, 300.0]  # as in geographic coordinates
    T_source[:3, 3] -= [1e6, 0.0, 0.0]
    moved = wsdesc.register(transform(pair[0], T_source), transform(pair[1], T_target), **FAST)
    T = inverse(T_target) @ moved.T_target_source @ T_source
    assert distance(T, pair[2], pair[0]) < 0.1
    assert moved.success


@pytest.mark.slow
def test_order_of_points_does_not_matter(pair, result):
    rng = np.random.default_rng(0)
    shuffled = wsdesc.register(rng.permutation(pair[0]), rng.permutation(pair[1]), **FAST)
    assert distance(shuffled.T_target_source, result.T_target_source, pair[0]) < 0.3 * result.resolution


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1000.0, 0.03])
def test_unit_does_not_matter(pair, result, scale):
    scaled = wsdesc.register(scale * pair[0], scale * pair[1], **FAST)
    assert scaled.resolution == pytest.approx(scale * result.resolution, rel=6e-3)  # three digits
    T = scaled.T_target_source.copy()
    T[:3, 3] /= scale
    assert distance(T, pair[2], pair[0]) < 0.1
    assert scaled.success


@pytest.mark.slow
def test_identical_scans(pair):
    same = wsdesc.register(pair[0], pair[0], **FAST)
    assert distance(same.T_target_source, np.eye(4), pair[0]) < 1e-3
    assert same.success
    assert same.overlap == pytest.approx(1)


@pytest.mark.slow
def test_scans_of_different_rooms_are_no_success(dense_pair):
    failed = wsdesc.register(dense_pair[0], room_pair(77).target, **THOROUGH)
    assert not failed.success
    assert failed.confidence < 0.5


@pytest.mark.slow
def test_ransac_and_no_refinement(dense_pair):
    source, target, T = dense_pair
    rough = wsdesc.register(source, target, solver="ransac", refine=False, **THOROUGH)
    assert distance(rough.T_target_source, T, source) < 0.3
    fine = wsdesc.register(source, target, solver="ransac", **THOROUGH)
    assert fine.rmse < rough.rmse, "refinement brings the surfaces closer"
    assert rotation_error_deg(fine.T_target_source, T) < 1.0


def surface_of(kind, rng, count=8000):
    u, v = rng.uniform(-1, 1, (2, count))
    if kind == "plane":
        return np.stack([2 * u, 1.5 * v, 0 * u], axis=1)
    if kind == "cylinder":
        return np.stack([np.cos(np.pi * u), np.sin(np.pi * u), 2 * v], axis=1)
    normal = rng.normal(size=(count, 3))
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plane", "cylinder", "sphere"])
def test_undetermined_poses_are_no_success_and_warned_of(kind):
    rng = np.random.default_rng(3)
    one, two = (surface_of(kind, rng) + rng.normal(0, 0.002, (8000, 3)) for _ in range(2))
    failed = wsdesc.register(transform(one, random_pose(2)), two, **THOROUGH)
    assert not failed.success
    assert failed.confidence < 0.5
    assert failed.warnings


@pytest.mark.slow
def test_line_is_no_success():
    line = np.linspace(0, 5, 4000)[:, None] * [1.0, 2.0, 0.5]
    assert not wsdesc.register(line, line, **THOROUGH).success


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.009, 0.012])
def test_room_next_to_a_noisy_copy_of_itself(dense_pair, noise):
    source, target, T = dense_pair
    copy = target + np.array([np.ptp(target[:, 0]) + 1, 0, 0])
    copy += np.random.default_rng(0).normal(0, noise, copy.shape)
    both = np.concatenate([target, copy])
    result = wsdesc.register(source, both, keypoints=1400, resolution=0.025)
    assert result.success or any("also plausible" in warning for warning in result.warnings)
    assert noise > 0 or not result.success
    if result.success:
        assert distance(result.T_target_source, T, source) < 0.1


def test_viewpoints_are_used_and_reported(pair, result, tmp_path):
    assert result.viewpoints == (None, None)  # fused from several views
    assert "viewpoints: source: unknown; target: unknown" in str(result)
    at = pair[1].mean(axis=0)
    given = wsdesc.register(pair[0], pair[1], source_viewpoint="none", target_viewpoint=at, **FAST)
    assert given.viewpoints[0] is None
    assert given.viewpoints[1].source == "given"
    np.testing.assert_array_equal(given.viewpoints[1].position, at)
    assert given.described[0].range_image is None
    assert given.described[1].range_image.known > 0
    given.save(tmp_path / "T.json")
    loaded = wsdesc.Registration.load(tmp_path / "T.json")
    assert loaded.viewpoints_text == given.viewpoints_text


@pytest.mark.parametrize("bad", [(1, 2), (0, 0, float("nan")), "here", 3.0, [(1, 2, 3)]])
def test_bad_viewpoints_are_refused(pair, bad):
    with pytest.raises(InputError, match=r"source_viewpoint: .*three finite numbers"):
        wsdesc.register(pair[0], pair[1], source_viewpoint=bad, **FAST)


def test_viewpoint_far_away_is_refused(pair):
    with pytest.raises(InputError, match=r"target_viewpoint is 1e\+09 away from the centre of a scan"):
        wsdesc.register(pair[0], pair[1], target_viewpoint=(1e9, 0, 0), **FAST)


def test_covariance_covers_the_error_and_moves_with_the_scans(pair, result):
    source, target, T = pair

    def squared_error(registration, truth):
        D = truth @ inverse(registration.T_target_source)
        centre = registration.covariance_centre
        v = transform(centre[None], D)[0] - centre
        error = np.concatenate([v, Rotation.from_matrix(D[:3, :3]).as_rotvec()])
        return error @ np.linalg.solve(registration.covariance, error)

    assert squared_error(result, T) < 25  # within the 99.97 % ellipsoid
    far = random_pose(3)
    far[:3, 3] += [450_000, 5_800_000, 100]
    moved = wsdesc.register(1000 * source, 1000 * transform(target, far), **FAST)
    far[:3, 3] *= 1000
    T = T.copy()
    T[:3, 3] *= 1000
    assert squared_error(moved, far @ T) < 25
    size = [np.sqrt(np.linalg.eigvalsh(r.covariance[k, k])[-1])
            for k in (np.s_[:3], np.s_[3:]) for r in (result, moved)]  # fmt: skip
    assert 0.5 < size[1] / size[0] / 1000 < 2
    assert 0.5 < size[3] / size[2] < 2


def test_float32_coordinates_far_from_the_origin_are_named():
    """Maps in metres have coordinates of millions: float32 rounds them to half a metre."""
    pair, utm = room_pair(3), np.array([448_123.0, 5_411_987.0, 312.0])
    scans = [np.asarray(points, np.float64) + utm for points in (pair.source, pair.target)]
    rounded = [points.astype(np.float32) for points in scans]
    result = wsdesc.register(*rounded, **FAST)
    assert not result.success
    assert any("source are rounded to multiples of 0.5" in warning for warning in result.warnings)
    assert any("target are rounded to multiples of 0.5" in warning for warning in result.warnings)
    for exact in (scans, [pair.source, pair.target]):
        assert not any("rounded" in text for text in wsdesc.register(*exact, **FAST).warnings)


def test_points_that_are_not_finite_are_counted(pair):
    broken = np.vstack([pair[0], np.full((3, 3), np.nan)])
    result = wsdesc.register(broken, pair[1], **FAST)
    assert result.warnings[-1] == "source: 3 points that are not finite were ignored."
    np.testing.assert_array_equal(
        result.T_target_source, wsdesc.register(pair[0], pair[1], **FAST).T_target_source
    )
