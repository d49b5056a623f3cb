"""`wsdesc find`: files in, instances out, or one line that says what is wrong."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from object_scenes import VIEWPOINT, bracket, pose, sampled, scene
from wsdesc import read_points, write_points
from wsdesc.cli.app import app
from wsdesc.core.geometry import transform


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), prog_name="wsdesc")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("find")
    write_points(folder / "object.ply", sampled(bracket(), 0.0025))
    write_points(folder / "scene.ply", scene(pose(0.12, -0.15, yaw=0.9)))
    return folder


@pytest.mark.slow
def test_finds_and_writes(files):
    viewpoint = ",".join(map(str, VIEWPOINT))
    result = run(
        "find", files / "object.ply", files / "scene.ply", "--viewpoint", viewpoint, "--instances", "1",
        "-o", files / "found.json", "--aligned", files / "placed.ply",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "instance 1" in result.stdout
    assert "T_scene_object of instance 1" in result.stdout
    saved = json.loads((files / "found.json").read_text())
    T = np.array(saved["instances"][0]["T_scene_object"])
    placed = transform(read_points(files / "object.ply"), T)
    np.testing.assert_allclose(read_points(files / "placed.ply"), placed, atol=1e-5)


def test_object_larger_than_the_scene_is_one_line(files):
    result = run("find", files / "scene.ply", files / "object.ply")
    assert result.exit_code == 2
    assert "larger than the scene" in result.output
    assert len(result.output.strip().splitlines()) == 1


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
def test_instances_are_a_number_or_all(files, value):
    result = run("find", files / "object.ply", files / "scene.ply", "--instances", value)
    assert result.exit_code == 2
    assert 'instances: must be a whole number of at least 1, or "all", not ' in result.output


def test_missing_file_is_named(files):
    result = run("find", files / "none.ply", files / "scene.ply")
    assert result.exit_code == 2
    assert "none.ply: no such file" in result.output
