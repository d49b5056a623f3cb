"""The demonstration: right by default, honest about it, the same every time."""

import numpy as np
import pytest
from typer.testing import CliRunner

from wsdesc import Registration, read_points
from wsdesc.cli.app import app as cli
from wsdesc.datasets.synthetic import room_pair
from wsdesc.view import demo


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty") / "demo"
    return CliRunner().invoke(cli.app, ["demo", "--out", str(folder)]), folder


def test_succeeds_and_says_so(first_run):
    result, _ = first_run
    assert result.exit_code == 0, result.output
    for part in ("points", "displaced by", "agree", "confidence", "describe", "registered: "):
        assert part in result.output
    assert "NOT" not in result.output


def test_writes_what_it_promises(first_run):
    _, folder = first_run
    assert {path.name for path in folder.iterdir()} == set(demo.FILES)
    assert (folder / "before_after.png").read_bytes().startswith(b"\x89PNG")
    source, target, aligned = (read_points(folder / f"{n}.ply") for n in ("source", "target", "aligned"))
    T = np.loadtxt(folder / "T_target_source.txt")
    np.testing.assert_allclose(demo.move(source, T), aligned, atol=1e-4)
    pair = room_pair(0)
    np.testing.assert_array_equal(target.astype(np.float32), pair.target)
    # What the printed error claims, without trusting the report: points land where the truth has them.
    true_places = demo.move(pair.source, pair.T_target_source)
    assert np.linalg.norm(aligned - true_places, axis=1).max() < 0.1


def test_before_really_is_misaligned():
    pair = demo.displaced(room_pair(0), 0)
    degrees, metres = demo.pose_error(np.eye(4), pair.T_target_source)
    assert degrees > 20
    assert metres > 0.5


def test_displacing_keeps_the_truth():
    pair = room_pair(3)
    moved = demo.displaced(pair, 3)
    expected = demo.move(pair.source, pair.T_target_source)
    np.testing.assert_allclose(demo.move(moved.source, moved.T_target_source), expected, atol=1e-5)


def test_a_wrong_pose_is_admitted(tmp_path, monkeypatch):
    def lost(source, target, **options):
        return Registration(np.eye(4), True, 1.0, 0.5, 0.01, 10, 100, 0.025)

    monkeypatch.setattr(demo, "register", lost)
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "NOT registered" in result.output


def test_pose_error():
    T = np.eye(4)
    T[:3, :3] = [[0, -1, 0], [1, 0, 0], [0, 0, 1]]
    T[:3, 3] = [3, 4, 0]
    assert demo.pose_error(T, np.eye(4)) == pytest.approx((90, 5))
