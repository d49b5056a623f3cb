"""Two scans in, a pose out, and the truth about how far to trust it."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import wsdesc
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.datasets.synthetic import room_pair
from wsdesc.descriptor.description import Description
from wsdesc.evaluation.metrics import rotation_error_deg, translation_error
from wsdesc.registration.options import RegisterOptions
from wsdesc.registration.pipeline import register_described

FAST = {"keypoints": (700,)}


def moved(points, T):
    return points @ T[:3, :3].T + T[:3, 3]


def motion(seed, shift=3.0):
    rng = np.random.default_rng(seed)
    T = np.eye(4)
    T[:3, :3] = Rotation.random(random_state=rng).as_matrix()
    T[:3, 3] = rng.uniform(-shift, shift, 3)
    return T


def errors(T, T_true):
    return float(rotation_error_deg(T, T_true)), float(translation_error(T, T_true))


def farthest(T, T_true, points):
    """How far apart two motions put the same points, at most."""
    return np.linalg.norm(moved(points, T) - moved(points, T_true), axis=1).max()


@pytest.fixture(scope="module")
def pair():
    made = room_pair(11)
    T = motion(1)
    source = moved(made.source.astype(np.float64), np.linalg.inv(T))
    return source, made.target.astype(np.float64), made.T_target_source @ T


@pytest.fixture(scope="module")
def result(pair):
    return wsdesc.register(pair[0], pair[1], **FAST)


def test_finds_the_pose_and_trusts_it(pair, result):
    degrees, metres = errors(result.T_target_source, pair[2])
    assert degrees < 1
    assert metres < 0.03
    assert result.success
    assert result.confidence >= 0.8
    assert 0.2 < result.overlap <= 1
    assert 0 < result.rmse < result.resolution
    assert 3 <= result.inliers <= result.matches
    assert not result.warnings
    assert {"read", "describe", "match and solve", "verify and refine"} <= set(result.timings)


def test_same_input_same_bits(pair, result):
    again = wsdesc.register(pair[0], pair[1], **FAST)
    assert (again.T_target_source == result.T_target_source).all()
    assert again.confidence == result.confidence


def test_swapped_scans_give_the_inverse(pair, result):
    back = wsdesc.register(pair[1], pair[0], **FAST)
    apart = farthest(np.linalg.inv(back.T_target_source), result.T_target_source, pair[0])
    assert apart < 0.25 * result.resolution
    assert back.success


def test_moves_with_the_scans_even_far_away(pair, result):
    T_source, T_target = motion(5), motion(6)
    T_target[:3, 3] += [4.5e5, 5.4e6, 300.0]  # as in geographic coordinates
    T_source[:3, 3] -= [1e6, 0.0, 0.0]
    found = wsdesc.register(moved(pair[0], T_source), moved(pair[1], T_target), **FAST)
    T = np.linalg.inv(T_target) @ found.T_target_source @ T_source
    assert farthest(T, pair[2], pair[0]) < 0.08
    assert found.success


def test_order_of_points_does_not_matter(pair, result):
    rng = np.random.default_rng(0)
    found = wsdesc.register(rng.permutation(pair[0]), rng.permutation(pair[1]), **FAST)
    assert farthest(found.T_target_source, result.T_target_source, pair[0]) < 0.2 * result.resolution


@pytest.mark.parametrize("scale", [1000.0, 0.03])
def test_finds_the_unit(pair, result, scale):
    found = wsdesc.register(scale * pair[0], scale * pair[1], **FAST)
    assert found.resolution == pytest.approx(scale * result.resolution, rel=1e-3)
    T = found.T_target_source.copy()
    T[:3, 3] /= scale
    assert farthest(T, pair[2], pair[0]) < 0.06
    assert found.success


def test_scans_of_different_rooms_are_not_trusted(pair):
    other = room_pair(77).target
    found = wsdesc.register(pair[0], other, **FAST)
    assert not found.success
    assert found.confidence < 0.5


def test_identical_scans(pair):
    found = wsdesc.register(pair[0], pair[0], **FAST)
    assert farthest(found.T_target_source, np.eye(4), pair[0]) < 1e-3
    assert found.success
    assert found.overlap == pytest.approx(1)


def surface_of(kind, rng, count=8000):
    u, v = rng.uniform(-1, 1, (2, count))
    if kind == "plane":
        return np.stack([2 * u, 1.5 * v, 0 * u], axis=1)
    if kind == "cylinder":
        return np.stack([np.cos(np.pi * u), np.sin(np.pi * u), 2 * v], axis=1)
    normal = rng.normal(size=(count, 3))
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", ["plane", "cylinder", "sphere"])
def test_what_can_slide_or_turn_is_said_and_not_trusted(kind):
    rng = np.random.default_rng(3)
    one, two = (surface_of(kind, rng) + rng.normal(0, 0.002, (8000, 3)) for _ in range(2))
    found = wsdesc.register(moved(one, motion(2)), two, **FAST)
    assert not found.success
    assert found.confidence < 0.5
    assert any(word in " ".join(found.warnings) for word in ("slide", "turn", "no motion"))


def test_different_units_are_reported(pair):
    found = wsdesc.register(1000 * pair[0], pair[1], **FAST)
    assert not found.success
    assert "different units" in found.warnings[0]


def test_ransac_and_no_refinement_work_too(pair):
    rough = wsdesc.register(pair[0], pair[1], solver="ransac", refine=False, **FAST)
    assert farthest(rough.T_target_source, pair[2], pair[0]) < 0.3
    fine = wsdesc.register(pair[0], pair[1], solver="ransac", **FAST)
    assert fine.rmse < rough.rmse, "surfaces lie closer after refinement"
    assert errors(fine.T_target_source, pair[2])[0] < 1.0


@pytest.mark.parametrize(
    ("points", "says"),
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
def test_too_little_to_register_is_an_error_with_a_reason(pair, points, says):
    for scans in ((points, pair[1]), (pair[0], points)):
        with pytest.raises(InputError, match=says):
            wsdesc.register(*scans, **FAST)


def test_a_line_is_not_trusted(pair):
    line = np.linspace(0, 5, 4000)[:, None] * [1.0, 2.0, 0.5]
    assert not wsdesc.register(line, line, **FAST).success


def test_points_that_are_not_finite_are_left_out(pair, result):
    source = np.vstack([pair[0], [[np.nan, 0, 0], [0, np.inf, 0]]])
    found = wsdesc.register(source, pair[1], **FAST)
    np.testing.assert_array_equal(found.T_target_source, result.T_target_source)


def test_unknown_options_are_refused(pair):
    with pytest.raises(InputError, match="did you mean 'keypoints'"):
        wsdesc.register(pair[0], pair[1], keypoint=(100,))


@pytest.fixture(scope="module")
def described(pair, result):
    return [wsdesc.describe(cloud, keypoints=700, resolution=result.resolution) for cloud in pair[:2]]


class TestDescription:
    def test_is_in_the_coordinates_of_the_scan(self, pair, described):
        d = described[0]
        assert d.descriptors.shape == (700, 32)
        assert d.frames.shape == (700, 3, 3)
        near = np.linalg.norm(d.scan_keypoints[:50, None] - pair[0][None], axis=2).min(axis=1)
        assert near.max() < d.resolution

    def test_registers_as_the_whole_pipeline_does(self, described, result):
        found = register_described(*described)
        np.testing.assert_allclose(found.T_target_source, result.T_target_source, atol=1e-9)

    def test_comes_back_from_disk(self, described, tmp_path):
        described[0].save(tmp_path / "a.npz")
        back = Description.load(tmp_path / "a.npz")
        assert (back.descriptors == described[0].descriptors).all()
        np.testing.assert_array_equal(back.scan_keypoints, described[0].scan_keypoints)
        assert (back.resolution, back.model) == (described[0].resolution, described[0].model)

    def test_more_keypoints_leave_the_first_as_they_are(self, pair, described):
        few = wsdesc.describe(pair[0], keypoints=200, resolution=described[0].resolution)
        np.testing.assert_allclose(few.descriptors, described[0].descriptors[:200], atol=1e-5)

    def test_what_was_described_differently_is_not_compared(self, pair, described):
        other = wsdesc.describe(pair[1], keypoints=100, resolution=2 * described[0].resolution)
        with pytest.raises(InputError, match="different resolutions"):
            register_described(described[0], other)

    @pytest.mark.parametrize("content", [b"", b"PK nonsense", b"\x80\x04pickle"])
    def test_other_files_are_refused(self, tmp_path, content):
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(FileFormatError, match=r"a\.npz"):
            Description.load(tmp_path / "a.npz")


def test_more_keypoints_are_tried_only_where_the_first_do_not_convince(pair):
    asked = []

    class Watch:
        def __init__(self, name, total):
            asked.append((name, total))

        def __enter__(self):
            return lambda done: None

        def __exit__(self, *what):
            return None

    wsdesc.register(pair[0], pair[1], keypoints=(700, 800), progress=Watch)
    assert [total for name, total in asked if name == "describe"] == [1400]
    asked.clear()
    wsdesc.register(pair[0], room_pair(77).target, keypoints=(700, 800), progress=Watch)
    assert [total for name, total in asked if name == "describe"] == [1400, 200]


def test_defaults_are_documented_options():
    o = RegisterOptions()
    assert o.solver == "consensus"
    assert o.refine
    assert o.resolution is None


def test_a_description_that_was_cut_off_is_refused(described, tmp_path):
    described[0].save(tmp_path / "a.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    for length in (len(whole) // 2, len(whole) - 10):
        (tmp_path / "a.npz").write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match=r"a\.npz"):
            Description.load(tmp_path / "a.npz")


@pytest.mark.parametrize(("noise", "told_apart"), [(0.0, False), (0.009, None), (0.012, True)])
def test_a_room_that_is_there_twice(pair, noise, told_apart):
    """Beside the room stands its copy, a little worn: which one it is, or why that cannot be told."""
    source, target, T = pair
    copy = target + np.array([np.ptp(target[:, 0]) + 1, 0, 0])
    copy += np.random.default_rng(0).normal(0, noise, copy.shape)
    found = wsdesc.register(source, np.concatenate([target, copy]), keypoints=(1400,), resolution=0.025)
    assert found.success or any("second pose" in warning for warning in found.warnings)
    assert told_apart is None or found.success == told_apart
    if found.success:
        assert farthest(found.T_target_source, T, source) < 0.1
