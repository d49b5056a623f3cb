"""Registration with what is known beforehand: right priors keep right poses, wrong ones give no success."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from tests.poses import largest_difference, perturbed

import wsdesc
from wsdesc.alignment.confidence import confidences
from wsdesc.cloud.local_frame import in_local_frames, in_scan_frames
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse, make_pose, transform
from wsdesc.datasets.synthetic import room_scans
from wsdesc.registration.options import RegisterOptions

FAST = {"keypoints": 300}
HERE = {"search_radius": 0, "max_angle": 0}  # refinement only
UTM = np.array([431_250.0, 5_411_800.0, 320.0])


@pytest.fixture(scope="module")
def scans():
    """Two coarse scans of a room with up in each of them, and the true pose. The target is georeferenced."""
    a, b = room_scans(5, 2, resolution=0.05)
    T = inverse(b.T_world_scan) @ a.T_world_scan
    T[:3, 3] += UTM
    up = tuple(scan.T_world_scan[2, :3] for scan in (a, b))
    return a.points.astype(np.float64), b.points.astype(np.float64) + UTM, T, up


@pytest.fixture(scope="module")
def described(scans):
    return [wsdesc.describe(points, resolution=0.05, keypoints=300) for points in scans[:2]]


def is_right(result, scans):
    return largest_difference(scans[0], result.T_target_source, scans[2]) < 0.1


def right_priors(scans):
    source, _, T, up = scans
    guess = perturbed(T, source, 6, 0.2, 0)
    return {
        "initial": {"initial": guess},
        "near": {"initial": guess, "search_radius": 0.4, "max_angle": 10},
        "far": {"initial": perturbed(T, source, 60, 1.5, 1), "search_radius": 2, "max_angle": 70},
        "refinement only": {"initial": perturbed(T, source, 3, 0.1, 2), **HERE},
        "up": {"up": up},
        "rough up": {"up": (up[0] + [0.03, 0, 0.03], 7 * up[1])},
        "axis": {"axis": up},
        "overlap": {"overlap_at_least": 0.2},
        "everything": {
            "initial": guess,
            "search_radius": 1,
            "max_angle": 30,
            "up": up,
            "overlap_at_least": 0.2,
        },
    }


NAMES = ["initial", "near", "far", "refinement only", "up", "rough up", "axis", "overlap", "everything"]


@pytest.mark.parametrize("name", NAMES)
def test_right_prior_keeps_the_right_pose(scans, described, name):
    result = wsdesc.register(*described, **right_priors(scans)[name])
    assert is_right(result, scans)
    assert result.success, (result.confidence, result.warnings)


def wrong_priors(scans):
    source, _, T, up = scans
    return {
        "far": {"initial": perturbed(T, source, 5, 1.5, 0), "search_radius": 0.5, "max_angle": 10},
        "rotated": {"initial": perturbed(T, source, 90, 0, 0), "search_radius": 1.0, "max_angle": 20},
        "refinement only": {"initial": perturbed(T, source, 40, 0.8, 0), **HERE},
        "up": {"up": (up[0], -up[1])},
        "axis": {"axis": (up[0], np.cross(up[1], [1.0, 0, 0]))},
        "overlap": {"overlap_at_least": 0.99},
    }


@pytest.mark.parametrize("name", ["far", "rotated", "refinement only", "up", "axis", "overlap"])
def test_wrong_prior_gives_no_success_and_names_the_contradiction(scans, described, name):
    prior = wrong_priors(scans)[name]
    result = wsdesc.register(*described, **prior)
    assert not result.success
    text = " ".join(result.warnings)
    assert "The best pose without" in text
    assert next(iter(prior)) in text
    expected = {"far": "from initial", "up": "tilts by", "axis": "tilts by", "overlap": "has an overlap of"}
    assert expected.get(name, "") in text


def test_guess_with_narrow_limits_raises_the_confidence(scans):
    """Hardly any wrong pose is within narrow limits: less evidence suffices than without a guess."""
    source, target, T, _ = scans
    part = source[source[:, 0] < np.quantile(source[:, 0], 0.45)]
    result = wsdesc.register(part, target, initial=perturbed(T, part, 3, 0.1, 2), **HERE)
    assert result.success
    assert is_right(result, scans)
    assert result.confidence > confidences([result.evidence])[0]


def test_refinement_alone_describes_nothing(scans):
    source, target, T, _ = scans
    result = wsdesc.register(source, target, initial=perturbed(T, source, 3, 0.1, 2), **HERE)
    assert result.success
    assert is_right(result, scans)
    assert result.matches == result.inliers == 0
    assert len(result.described[0].descriptors) == 0
    assert result.timings["describe"] < 0.5


def test_good_guess_saves_the_description(scans):
    source, target, T, _ = scans
    guess = perturbed(T, source, 4, 0.1, 3)
    result = wsdesc.register(source, target, initial=guess, search_radius=0.2, max_angle=10)
    assert result.success
    assert is_right(result, scans)
    assert result.matches == 0


def test_axis_leaves_no_tilt_and_up_reports_it(scans, described):
    *_, up = scans
    level = wsdesc.register(*described, axis=up)
    assert level.tilt < 1e-6
    np.testing.assert_allclose(level.rotation @ up[0], up[1], atol=1e-9)
    tilting = wsdesc.register(*described, up=up)
    angle = np.degrees(np.arccos(np.clip(up[1] @ tilting.rotation @ up[0], -1, 1)))
    assert tilting.tilt == pytest.approx(angle, abs=1e-5)
    assert wsdesc.register(*described).tilt is None


def test_scans_that_cannot_touch_end_at_once(scans, described):
    source, target, T, _ = scans
    local = T.copy()
    local[:3, 3] -= UTM  # forgets that the target is georeferenced
    result = wsdesc.register(source, target, initial=local, search_radius=2, max_angle=20)
    assert not result.success
    assert "apart" in result.warnings[0]
    assert "describe" not in result.timings
    again = wsdesc.register(*described, initial=local, search_radius=2, max_angle=20)
    assert again.warnings == result.warnings


def test_guess_and_up_that_contradict_each_other_end_at_once(scans, described):
    _, _, T, up = scans
    across = np.cross(up[1], [1.0, 2.0, 3.0])
    result = wsdesc.register(*described, initial=T, search_radius=1, max_angle=20, up=(up[0], across))
    assert not result.success
    assert "initial tilts by 90.0° against up" in result.warnings[0]
    wide = wsdesc.register(*described, initial=T, search_radius=1, max_angle=90, up=(up[0], across))
    assert "initial tilts" not in wide.warnings[0]


def test_only_allowed_candidates_share_the_probability(scans, described):
    """A prior never makes room for a pose that it excludes, also among the alternatives."""
    prior = right_priors(scans)["far"]
    result = wsdesc.register(*described, **prior)
    middle = described[0].T_scan_local[:3, 3][None]
    for pose in [result, *result.alternatives]:
        moved = transform(middle, pose.T_target_source) - transform(middle, prior["initial"])
        assert np.linalg.norm(moved) <= 2 + 8 * result.resolution
    assert result.confidence + sum(pose.probability for pose in result.alternatives) <= 1 + 1e-9


def test_same_prior_gives_the_same_bits(scans, described):
    results = [wsdesc.register(*described, **right_priors(scans)["everything"]) for _ in range(2)]
    np.testing.assert_array_equal(results[0].T_target_source, results[1].T_target_source)
    assert results[0].confidence == results[1].confidence


def test_directions_have_several_forms():
    for form in ("z", "Z", (0, 0, 2), [0.0, 0.0, 1e-200], np.array([0, 0, 5])):
        assert RegisterOptions.read({"up": form}).up == ((0, 0, 1), (0, 0, 1))
    assert RegisterOptions.read({"axis": ("-y", (0, 3, 4))}).axis == ((0, -1, 0), (0, 0.6, 0.8))


def test_initial_pose_may_be_a_result_or_its_file(scans, described, tmp_path):
    result = wsdesc.register(*described)
    result.save(tmp_path / "T.json")
    result.save(tmp_path / "T.txt")
    expected = RegisterOptions.read({"initial": result.T_target_source}).initial
    for form in (result, tmp_path / "T.json", str(tmp_path / "T.txt")):
        assert RegisterOptions.read({"initial": form}).initial == expected
    assert is_right(wsdesc.register(*described, initial=result, **HERE), scans)


RIGID = np.eye(4).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial": np.diag([2.0, 1, 1, 1])}, "initial.*rigid"),
        ({"initial": np.diag([1.0, 1, -1, 1])}, "initial.*rigid"),
        ({"initial": np.full((4, 4), np.nan)}, "initial.*NaN"),
        ({"initial": np.eye(3)}, "initial.*4 × 4"),
        ({"initial": "T.txt"}, "initial: T.txt: cannot be read"),
        ({"initial": RIGID, "search_radius": -1}, "search_radius"),
        ({"initial": RIGID, "search_radius": float("nan")}, "search_radius"),
        ({"initial": RIGID, "max_angle": -1}, "max_angle"),
        ({"initial": RIGID, "max_angle": 181}, "max_angle"),
        ({"search_radius": 1}, "search_radius.*initial"),
        ({"max_angle": 1}, "max_angle.*initial"),
        ({"up": (0, 0, 0)}, "up.*not all zero"),
        ({"up": (0, 0, float("nan"))}, "up.*three numbers"),
        ({"up": "w"}, "up.*'w'"),
        ({"up": ("z", "z", "z", "z")}, "up.*source and target"),
        ({"up": 3}, "up.*direction"),
        ({"axis": ("z", (0, 0))}, "axis.*three numbers"),
        ({"up": "z", "axis": "z"}, "axis.*one of them"),
        ({"up": "z", "max_tilt": 0}, "max_tilt"),
        ({"overlap_at_least": 1.5}, "overlap_at_least"),
        ({"overlap_at_least": float("nan")}, "overlap_at_least"),
        ({"init": RIGID}, "did you mean 'initial'"),
    ],
)
def test_bad_prior_is_refused_before_any_work(options, message):
    with pytest.raises(InputError, match=message):
        wsdesc.register("missing.ply", "missing.ply", **options)


def test_local_pose_and_scan_pose_are_inverse_also_for_large_coordinates():
    rng = np.random.default_rng(0)
    frames = []
    for _ in range(2):
        T = make_pose(Rotation.random(random_state=rng).as_matrix(), UTM + rng.uniform(-100, 100, 3))
        frames.append(T)
    local = make_pose(Rotation.random(random_state=rng).as_matrix(), rng.uniform(-5, 5, 3))
    given = in_scan_frames(local, *frames)
    np.testing.assert_allclose(in_local_frames(given, *frames), local, atol=1e-8)
    rounded = given.copy()  # a file with six digits: the middle stays where the matrix puts it
    rounded[:3, :3] = np.round(given[:3, :3], 6)
    T = in_local_frames(rounded, *frames)
    np.testing.assert_allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-12)
    middle = transform(frames[0][:3, 3][None], rounded)[0]
    np.testing.assert_allclose(transform(T[None, :3, 3], frames[1])[0], middle, atol=1e-8)
