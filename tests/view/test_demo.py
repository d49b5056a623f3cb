"""The demo: its pose is right, its files are complete, and a wrong pose is reported."""

import numpy as np
import pytest
from typer.testing import CliRunner

from wsdesc import Registration, read_points
from wsdesc.cli.app import app
from wsdesc.core.geometry import make_pose, transform
from wsdesc.view import demo


@pytest.fixture(scope="module")
def pair(room):
    return demo.displace(room, 0)


def run_with_pose(monkeypatch, folder, room, T):
    """Run the command with a given room; instead of a registration, T is the result."""
    result = Registration(T, True, 1.0, 0.5, 0.01, 10, 100, 0.025)
    monkeypatch.setattr(demo, "room_pair", lambda seed: room)
    monkeypatch.setattr(demo, "register", lambda source, target, **options: result)
    return CliRunner().invoke(app, ["demo", "--out", str(folder)])


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty") / "demo"
    return CliRunner().invoke(app, ["demo", "--out", str(folder)]), folder


@pytest.mark.slow
def test_demo_prints_a_success(first_run):
    result, _ = first_run
    assert result.exit_code == 0, result.output
    for part in ("points", "inliers", "confidence", "describe", "success: the pose is right", "written:"):
        assert part in result.output
    assert "NO" not in result.output


@pytest.mark.slow
def test_demo_writes_its_files(first_run, pair):
    _, folder = first_run
    assert {path.name for path in folder.iterdir()} == set(demo.FILES)
    assert (folder / "before_after.png").read_bytes().startswith(b"\x89PNG")
    source, target, aligned = (read_points(folder / f"{n}.ply") for n in ("source", "target", "aligned"))
    T = np.loadtxt(folder / "T_target_source.txt")
    np.testing.assert_allclose(transform(source, T), aligned, atol=1e-4)
    np.testing.assert_array_equal(target.astype(np.float32), pair.target)
    # Independent of the printed error: the points are where the true pose puts them.
    assert np.linalg.norm(aligned - transform(source, pair.T_target_source), axis=1).max() < 0.1


def test_source_is_displaced_and_the_true_pose_adapted(pair, room):
    degrees, metres = demo.pose_error(np.eye(4), pair.T_target_source)
    assert degrees > 20
    assert metres > 0.5
    expected = transform(room.source, room.T_target_source)
    np.testing.assert_allclose(transform(pair.source, pair.T_target_source), expected, atol=1e-5)


def test_right_pose_exits_with_0(tmp_path, monkeypatch, room, pair):
    result = run_with_pose(monkeypatch, tmp_path, room, pair.T_target_source)
    assert result.exit_code == 0, result.output
    assert "success: the pose is right" in result.output
    assert {path.name for path in tmp_path.iterdir()} == set(demo.FILES)


def test_wrong_pose_exits_with_1(tmp_path, monkeypatch, room):
    result = run_with_pose(monkeypatch, tmp_path, room, np.eye(4))
    assert result.exit_code == 1
    assert "NO success: the pose is wrong" in result.output


def test_pose_error():
    T = make_pose([[0, -1, 0], [1, 0, 0], [0, 0, 1]], [3, 4, 0])
    assert demo.pose_error(T, np.eye(4)) == pytest.approx((90, 5))
