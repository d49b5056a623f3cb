"""Alternatives: other plausible poses of a pair, in Python, in files and in the command."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import wsdesc
from poses import pose_of
from wsdesc import AlternativePose, Registration
from wsdesc.cli.app import app
from wsdesc.core.errors import FileFormatError
from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.synthetic import room_scans
from wsdesc.registration.pose_file import read_pose


@pytest.fixture
def result():
    first = Registration(pose_of([0, 0, 1], [1, 2, 3]), False, 0.6, 0.5, 0.008, 40, 700, 0.025)
    others = [
        AlternativePose(pose_of([0, 0, -2], [4e5, 1 / 3, 0]), 0.3, 0.4, 0.009),
        AlternativePose(pose_of([1, 0, 0], [0, 0, 1]), 0.05, 0.0, float("inf")),
    ]
    return replace(first, alternatives=others)


@pytest.fixture(scope="module")
def symmetric():
    """A room and a copy of it, turned by half a turn: two poses fit equally well."""
    scan = room_scans(5, 1, resolution=0.05)[0].points.astype(np.float64)
    centre = [scan[:, 0].max() + 0.2, *scan[:, 1:].mean(axis=0)]
    both = np.concatenate([scan, (scan - centre) * [-1, -1, 1] + centre])
    rng = np.random.default_rng(0)
    source, target = (both + rng.normal(0, 0.003, both.shape) for _ in range(2))
    T = pose_of([0.3, 1.0, 0.2], [1, 2, 3])
    half_turn = pose_of([0, 0, np.pi], [2 * centre[0], 2 * centre[1], 0])
    return transform(source, inverse(T)), target, (T, half_turn @ T)


@pytest.mark.slow
def test_symmetric_scene_has_the_other_pose_as_an_alternative(symmetric):
    source, target, truths = symmetric
    result = wsdesc.register(source, target, keypoints=300)
    assert not result.success
    assert result.alternatives
    probabilities = [result.confidence, *(other.probability for other in result.alternatives)]
    assert sum(probabilities) <= 1 + 1e-9
    assert probabilities[1:] == sorted(probabilities[1:], reverse=True)
    assert min(probabilities) >= 0.01
    poses = [result.T_target_source, result.alternatives[0].T_target_source]
    for T in truths:
        errors = [np.linalg.norm(transform(source, T) - transform(source, x), axis=1).max() for x in poses]
        assert min(errors) < 0.05
    assert f"probability {result.alternatives[0].probability:.2f}, see --all" in result.warnings[0]


@pytest.mark.slow
def test_room_without_symmetry_has_no_likely_alternative():
    a, b = room_scans(5, 2, resolution=0.05)
    result = wsdesc.register(a.points, b.points, keypoints=300)
    assert result.success
    assert sum(other.probability for other in result.alternatives) <= 1 - result.confidence + 1e-9


def test_json_file_keeps_alternatives(result, tmp_path):
    result.save(tmp_path / "a.json")
    loaded = Registration.load(tmp_path / "a.json")
    assert loaded.to_dict() == result.to_dict()
    assert loaded.alternatives[1].rmse == float("inf")
    for a, b in zip(loaded.alternatives, result.alternatives, strict=True):
        np.testing.assert_array_equal(a.T_target_source, b.T_target_source)


def test_json_files_of_earlier_versions_have_no_alternatives(result, tmp_path):
    values = {key: value for key, value in result.to_dict().items() if key != "alternatives"}
    (tmp_path / "a.json").write_text(json.dumps(values))
    assert Registration.load(tmp_path / "a.json").alternatives == []


@pytest.mark.parametrize("values", [3, [3], [{}], [{"T_target_source": [[1]], "probability": 1}]])
def test_invalid_alternatives_are_refused(result, tmp_path, values):
    (tmp_path / "a.json").write_text(json.dumps(result.to_dict() | {"alternatives": values}))
    with pytest.raises(FileFormatError, match=r"a\.json"):
        Registration.load(tmp_path / "a.json")


def test_text_file_has_all_poses_on_request(result, tmp_path):
    result.save(tmp_path / "all.txt", all_poses=True)
    matrices = np.loadtxt(tmp_path / "all.txt").reshape(-1, 4, 4)
    expected = [result.T_target_source, *(other.T_target_source for other in result.alternatives)]
    np.testing.assert_allclose(matrices, expected, rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(read_pose(tmp_path / "all.txt"), result.T_target_source, rtol=1e-11)
    assert "# probability 0.300" in (tmp_path / "all.txt").read_text()


def test_text_of_an_alternative_is_one_line():
    text = "AlternativePose(probability=0.020, overlap=0.10, rmse=0.03)"
    assert repr(AlternativePose(np.eye(4), 0.02, 0.1, 0.03)) == text


def test_text_names_the_probabilities(result):
    assert "2 other plausible poses: 0.30, 0.05" in str(result)
    assert "1 other plausible pose: 0.30" in str(replace(result, alternatives=result.alternatives[:1]))
    assert "plausible" not in str(replace(result, alternatives=[]))


def test_command_prints_all_poses_on_request(result, tmp_path, monkeypatch):
    monkeypatch.setattr("wsdesc.registration.pipeline.register", lambda *scans, **options: result)
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, np.random.default_rng(0).uniform(size=(100, 3)))
    scans = [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]

    def run(*options):
        return CliRunner().invoke(app, ["register", *scans, *map(str, options)], prog_name="wsdesc")

    assert "pose 2" not in run().stdout
    text = run("--all", "--force", "-o", tmp_path / "T.txt").stdout
    assert "pose 2: probability 0.300, overlap 40% of the source, rmse 0.009" in text
    assert "400000.000000" in text
    assert "pose 3: probability 0.050" in text
    assert len(np.loadtxt(tmp_path / "T.txt")) == 12
    assert len(json.loads(run("--json").stdout)["alternatives"]) == 2
