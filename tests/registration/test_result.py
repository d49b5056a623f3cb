"""Registration as an object: files, dictionaries and text."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc import AlternativePose, Registration
from wsdesc.cloud.viewpoint import Viewpoint
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import make_pose


@pytest.fixture
def result():
    T = make_pose(Rotation.from_rotvec([0.1, 1 / 3, -0.2]).as_matrix(), [4.5e5 + 1 / 3, -2.0, 0.1])
    warnings = ["A second pose fits nearly as well."]
    return Registration(T, True, 0.987654321, 0.5, 0.008, 40, 700, 0.025, warnings, {"read": 0.5})


def test_json_file_keeps_all_values(result, tmp_path):
    result.save(tmp_path / "a.json")
    loaded = Registration.load(tmp_path / "a.json")
    np.testing.assert_array_equal(loaded.T_target_source, result.T_target_source)
    assert loaded.to_dict() == result.to_dict()
    assert json.loads((tmp_path / "a.json").read_text()) == result.to_dict()


def test_files_of_both_scans_are_found_after_a_move(result, tmp_path, monkeypatch):
    before, after = tmp_path / "before", tmp_path / "after"
    (before / "scans").mkdir(parents=True)
    for name in ("a.ply", "b.e57"):
        (before / "scans" / name).touch()
    monkeypatch.chdir(before)
    result.of_files("scans/a.ply", Path("scans/b.e57#2")).save("result.json")
    before.rename(after)
    monkeypatch.chdir(tmp_path)
    loaded = Registration.load("after/result.json")
    assert loaded.files == (Path("after/scans/a.ply"), Path("after/scans/b.e57#2"))
    assert loaded.inverse().files == loaded.files[::-1]
    result.of_files(np.zeros((9, 3)), "b.ply").save("result.json")
    assert Registration.load("result.json").files == (None, Path("b.ply"))


def test_infinite_rmse_survives_a_file(tmp_path):
    Registration(np.eye(4), False, 0.0, 0.0, float("inf"), 0, 0, 0.025).save(tmp_path / "a.json")
    assert Registration.load(tmp_path / "a.json").rmse == float("inf")


def test_text_file_has_the_matrix_only(result, tmp_path):
    result.save(tmp_path / "a.txt")
    np.testing.assert_allclose(np.loadtxt(tmp_path / "a.txt"), result.T_target_source, rtol=1e-11)


def test_other_extensions_are_refused(result, tmp_path):
    with pytest.raises(FileFormatError, match=r"a\.png: .*\.json or \.txt"):
        result.save(tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"T_target_source": [[1]]}',
        "1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n",
        "\xff",
    ],
)
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text, encoding="latin-1")
    with pytest.raises(FileFormatError, match=r"a\.json"):
        Registration.load(tmp_path / "a.json")


def test_invalid_pose_is_refused(result, tmp_path):
    values = result.to_dict()
    values["T_target_source"][0][0] = 2.0
    (tmp_path / "a.json").write_text(json.dumps(values))
    with pytest.raises(FileFormatError, match=r"a\.json"):
        Registration.load(tmp_path / "a.json")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileFormatError, match=r"missing\.json: cannot be read"):
        Registration.load(tmp_path / "missing.json")


def test_text_is_a_few_lines(result):
    text = str(result)
    assert "success, confidence 0.988" in text
    assert "warning: A second pose" in text
    assert len(text.splitlines()) <= 12
    assert repr(result) == "Registration(success=True, confidence=0.988, overlap=0.50, rmse=0.008)"


@pytest.mark.parametrize("success", [True, False])
def test_truth_is_refused(result, success):
    with pytest.raises(TypeError, match=r"truth of a Registration is ambiguous: write `result.success`"):
        bool(replace(result, success=success))
    assert result is not None


def test_text_matrix_is_exact(result, tmp_path):
    result.save(tmp_path / "a.txt")
    lines = (tmp_path / "a.txt").read_text().splitlines()
    assert [len(line.split(" ")) for line in lines] == [4, 4, 4, 4]
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "a.txt"), result.T_target_source)
    assert lines[3] == "0.0 0.0 0.0 1.0"


def test_parts_of_the_pose(result):
    T = result.T_target_source
    np.testing.assert_array_equal(result.rotation, T[:3, :3])
    np.testing.assert_array_equal(result.translation, T[:3, 3])
    x, y, z, w = result.quaternion
    assert w >= 0
    np.testing.assert_array_equal(result.quaternion_wxyz, [w, x, y, z])
    np.testing.assert_allclose(Rotation.from_quat([x, y, z, w]).as_matrix(), T[:3, :3], atol=1e-12)
    roll, pitch, yaw = result.euler(degrees=False)
    about = [
        Rotation.from_rotvec(angle * axis) for angle, axis in zip((roll, pitch, yaw), np.eye(3), strict=True)
    ]
    np.testing.assert_allclose((about[2] * about[1] * about[0]).as_matrix(), T[:3, :3], atol=1e-12)
    np.testing.assert_allclose(result.euler("ZYX"), np.degrees([yaw, pitch, roll]))
    result.rotation[:] = 0  # a copy
    assert result.rotation.any()


@pytest.mark.parametrize("order", ["abc", "xY", "", "xyzx", 3, None])
def test_invalid_orders_of_angles_are_refused(result, order):
    with pytest.raises(InputError, match="order must be three axes"):
        result.euler(order)


def test_apply_moves_scans(result):
    points = np.random.default_rng(0).normal(size=(10, 5)).astype(np.float32)
    moved = result.apply(points)
    T = result.T_target_source
    assert moved.dtype == np.float32
    np.testing.assert_allclose(moved[:, :3], points[:, :3] @ T[:3, :3].T + T[:3, 3], atol=0.04)
    np.testing.assert_array_equal(moved[:, 3:], points[:, 3:])
    back = result.inverse().apply(result.apply(points.astype(float)))
    np.testing.assert_allclose(back, points, atol=1e-9)


def test_inverse_swaps_the_scans(result):
    alternative = AlternativePose(result.T_target_source, 0.2, 0.4, 0.01, 0.3)
    viewpoints = (Viewpoint(np.zeros(3), "given"), None)
    result = replace(
        result,
        overlap_target=0.7,
        scale=2.0,
        scale_deviation=0.4,
        alternatives=[alternative],
        viewpoints=viewpoints,
    )
    swapped = result.inverse()
    np.testing.assert_allclose(swapped.T_target_source @ result.T_target_source, np.eye(4), atol=1e-9)
    assert (swapped.overlap, swapped.overlap_target) == (0.7, 0.5)
    assert (swapped.scale, swapped.scale_deviation) == (0.5, 0.1)
    assert [viewpoint and viewpoint.source for viewpoint in swapped.viewpoints] == [None, "given"]
    assert (swapped.confidence, swapped.success, swapped.rmse) == (result.confidence, True, result.rmse)
    other = swapped.alternatives[0]
    np.testing.assert_allclose(other.T_target_source, swapped.T_target_source)
    assert (other.overlap, other.overlap_target, other.probability) == (0.3, 0.4, 0.2)
    assert swapped.inverse().to_dict()["overlap"] == 0.5


def test_unknown_overlap_survives_a_file(result, tmp_path):
    swapped = result.inverse()  # results of earlier versions have no overlap of the target
    assert "overlap unknown" in str(swapped)
    swapped.save(tmp_path / "a.json")
    loaded = Registration.load(tmp_path / "a.json")
    assert math.isnan(loaded.overlap)
    assert loaded.inverse().overlap == 0.5


def test_inverse_knows_every_field():
    """A new field of a registration must be inverted, swapped, or named here as the same for both orders."""
    same = {"success", "confidence", "inliers", "matches", "warnings", "timings"}
    same |= {"evidence", "tilt"}  # swapping the scans hardly changes the evidence
    changed = {"T_target_source", "overlap", "overlap_target", "scale", "scale_deviation", "alternatives"}
    changed |= {"viewpoints", "information", "described", "matched", "files"}
    changed |= {"covariance", "covariance_centre", "rmse", "resolution"}  # of similarities
    assert {field.name for field in fields(Registration)} == same | changed


def test_covariance_survives_a_file_and_moves_to_other_points(result, tmp_path):
    with pytest.raises(InputError, match="no covariance"):
        result.covariance_at((0, 0, 0))
    root = np.random.default_rng(0).normal(size=(6, 6))
    centre = np.array([4.5e5, 5.8e6, 100.0])
    with_covariance = replace(result, covariance=root @ root.T, covariance_centre=centre)
    with_covariance.save(tmp_path / "a.json")
    loaded = Registration.load(tmp_path / "a.json")
    np.testing.assert_array_equal(loaded.covariance, with_covariance.covariance)
    np.testing.assert_array_equal(loaded.covariance_centre, centre)
    np.testing.assert_array_equal(loaded.covariance_at(centre), loaded.covariance)
    moved = loaded.covariance_at(centre + np.array([0, 0, 2]))
    np.testing.assert_array_equal(moved[3:, 3:], loaded.covariance[3:, 3:])
    a, b = loaded.covariance[0, 0], loaded.covariance[4, 4]
    np.testing.assert_allclose(moved[0, 0], a + 4 * b + 4 * loaded.covariance[0, 4])  # v + ω × (0, 0, 2)
    with pytest.raises(InputError, match="three finite numbers"):
        loaded.covariance_at((0, 0, np.nan))


def test_covariance_of_the_inverse_is_about_the_same_place(result):
    root = np.random.default_rng(0).normal(size=(6, 6))
    centre = np.array([1.0, 2.0, 3.0])
    forth = replace(result, covariance=root @ root.T, covariance_centre=centre)
    back = forth.inverse()
    np.testing.assert_allclose(result.apply(back.covariance_centre[None])[0], centre, atol=1e-9)
    R = forth.T_target_source[:3, :3]
    np.testing.assert_allclose(R @ back.covariance[:3, 3:] @ R.T, forth.covariance[:3, 3:], atol=1e-12)
    np.testing.assert_allclose(back.inverse().covariance, forth.covariance, atol=1e-9)


def test_text_gives_standard_deviations(result):
    assert "deviation" not in str(result)
    covariance = np.diag([1e-6, 4e-6, 1e-8, 1e-8, 1e-8, np.radians(0.03) ** 2])
    text = str(replace(result, covariance=covariance, covariance_centre=np.zeros(3)))
    assert "deviation ± 0.03°, ± 0.002 at the overlap" in text


@pytest.mark.parametrize("values", [3, [[1]], "x", [[float("nan")] * 6] * 6])
def test_invalid_covariance_is_refused(result, tmp_path, values):
    (tmp_path / "a.json").write_text(json.dumps(result.to_dict() | {"covariance": values}))
    with pytest.raises(FileFormatError, match=r"a\.json"):
        Registration.load(tmp_path / "a.json")
