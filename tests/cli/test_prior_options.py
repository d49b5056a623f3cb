"""`wsdesc register` with what is known beforehand: files and directions in, one line for bad ones."""

import json

import numpy as np
import pytest
from tests.poses import perturbed
from typer.testing import CliRunner

from wsdesc import write_points
from wsdesc.cli.app import app
from wsdesc.core.geometry import inverse
from wsdesc.datasets.synthetic import room_scans


def run(*arguments):
    return CliRunner().invoke(app, ["register", *map(str, arguments)], prog_name="wsdesc")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two scans of a room, and an initial pose as text and in the JSON of a result."""
    folder = tmp_path_factory.mktemp("priors")
    a, b = room_scans(5, 2, resolution=0.05)
    write_points(folder / "a.ply", a.points.astype(np.float64))
    write_points(folder / "b.ply", b.points.astype(np.float64))
    T = inverse(b.T_world_scan) @ a.T_world_scan
    np.savetxt(folder / "initial.txt", perturbed(T, a.points, 3, 0.1, 0), fmt="%.6f")
    (folder / "initial.json").write_text(json.dumps({"T_target_source": T.tolist()}))
    np.savetxt(folder / "stretched.txt", np.diag([2.0, 1, 1, 1]))
    np.savetxt(folder / "up.txt", [scan.T_world_scan[2, :3] for scan in (a, b)])
    (folder / "words.txt").write_text("north by northwest\n")
    return folder


@pytest.mark.parametrize("name", ["initial.txt", "initial.json"])
def test_initial_pose_of_a_file_is_refined(folder, name):
    options = ("--initial", folder / name, "--search-radius", 0, "--max-angle", 0)
    done = run(folder / "a.ply", folder / "b.ply", *options)
    assert done.exit_code == 0, done.output
    assert "(success)" in done.stdout


def test_directions_of_both_scans_and_the_tilt(folder):
    ups = [",".join(map(str, up)) for up in np.loadtxt(folder / "up.txt")]
    options = ("--keypoints", 300, "--json")
    done = run(folder / "a.ply", folder / "b.ply", "--axis", ups[0], "--axis", ups[1], *options)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["tilt"] < 1e-5


def test_wrong_direction_is_no_success_and_says_why(folder):
    up = np.loadtxt(folder / "up.txt")[0]
    ups = (",".join(map(str, up)), ",".join(map(str, np.cross(up, [1, 2, 3]))))
    done = run(folder / "a.ply", folder / "b.ply", "--keypoints", 300, "--up", ups[0], "--up", ups[1])
    assert done.exit_code == 1
    assert "against up" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--initial", "missing.txt"), "missing.txt: cannot be read"),
        (("--initial", "stretched.txt"), "stretched.txt: contains no pose"),
        (("--initial", "words.txt"), "words.txt: contains no pose"),
        (("--search-radius", 1), "search_radius"),
        (("--initial", "initial.txt", "--search-radius", -1), "--search-radius"),
        (("--up", "0,0,0"), "up"),
        (("--up", "north"), "'north' is no direction"),
        (("--up", "1,2"), "up"),
        (("--up", "z", "--up", "z", "--up", "z"), "a direction is"),
        (("--up", "z", "--axis", "z"), "give one of them"),
        (("--overlap-at-least", 2), "--overlap-at-least"),
    ],
)
def test_bad_prior_is_one_line_and_exit_code_2(folder, monkeypatch, options, message):
    monkeypatch.chdir(folder)
    done = run("a.ply", "b.ply", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.output


def test_negative_axis_is_no_option(folder):
    done = run(folder / "a.ply", folder / "b.ply", "--up", "-z", "--keypoints", 2)
    assert "--keypoints" in done.stderr  # the only error
