"""Every command names the file of a scan that has too few points."""

import numpy as np
import pytest
from typer.testing import CliRunner

import wsdesc
from wsdesc.cli.app import app


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scans")
    scan = np.random.default_rng(0).uniform(size=(3000, 3))
    np.save(folder / "scan.npy", scan)
    np.save(folder / "few.npy", scan[:20])
    np.save(folder / "equal.npy", np.zeros((500, 3)))
    return folder


COMMANDS = [
    ("register", "FILE", "scan.npy"),
    ("register", "scan.npy", "FILE"),
    ("register", "FILE", "scan.npy", "--scale", "estimate"),
    ("describe", "FILE", "-o", "scan.npz"),
    ("find", "FILE", "scan.npy"),
]


@pytest.mark.parametrize("name", ["few.npy", "equal.npy"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_file_with_too_few_points_is_named(folder, monkeypatch, command, name):
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, [name if word == "FILE" else word for word in command])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert name in line
    assert "scan.npy" not in line


def test_wrong_resolution_names_the_file(folder):
    file = folder / "scan.npy"
    with pytest.raises(
        wsdesc.WSDescError, match=r"scan\.npy: 1 point is left at the resolution 100, at least 50"
    ):
        wsdesc.describe(file, resolution=100)


def test_scans_in_memory_are_named_by_their_role():
    points = np.random.default_rng(0).uniform(size=(3000, 3))
    with pytest.raises(wsdesc.WSDescError, match="target: 20 different points are left, at least 50"):
        wsdesc.register(points, points[:20])
