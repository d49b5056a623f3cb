"""`wsdesc map` and `wsdesc locate`: results, and bad input that is refused before the work starts."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from wsdesc import write_points
from wsdesc.cli.app import app
from wsdesc.core.geometry import transform
from wsdesc.datasets.synthetic import room_scans


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.slow
def test_a_map_is_built_and_a_scan_located(tmp_path):
    *mapped, query = room_scans(3, 4, resolution=0.05)
    scans = tmp_path / "scans"
    scans.mkdir()
    for number, scan in enumerate(mapped):
        write_points(scans / f"{number}.ply", transform(scan.points.astype(np.float64), scan.T_world_scan))
    write_points(tmp_path / "query.ply", query.points)
    built = run("map", scans, "-o", tmp_path / "site.map", "--resolution", "0.06", "--json")
    assert built.exit_code == 0, built.output
    assert json.loads(built.stdout)["scans"] == 3
    again = run("map", scans, "-o", tmp_path / "site.map", "--resolution", "0.06")
    assert again.exit_code == 0
    assert "keypoints" in again.stdout
    out = tmp_path / "T.json"
    located = run("locate", tmp_path / "query.ply", tmp_path / "site.map", "-o", out)
    assert located.exit_code == 0, located.output
    assert "T_map_scan" in located.stdout
    T = np.array(json.loads(out.read_text())["T_map_scan"])
    assert np.abs(transform(query.points, T) - transform(query.points, query.T_world_scan)).max() < 0.06
    write_points(tmp_path / "stranger.ply", room_scans(77, 1, resolution=0.05)[0].points)
    stranger = run("locate", tmp_path / "stranger.ply", tmp_path / "site.map", "-o", tmp_path / "T.txt")
    assert stranger.exit_code == 1
    assert not (tmp_path / "T.txt").exists()


def test_bad_input_is_one_line_and_exit_code_2(tmp_path):
    write_points(tmp_path / "scan.ply", np.random.default_rng(0).normal(size=(200, 3)))
    (tmp_path / "empty").mkdir()
    scan = tmp_path / "scan.ply"
    for arguments, message in [
        (("map", tmp_path / "none", "-o", tmp_path / "m"), "no such file or folder"),
        (("map", tmp_path / "empty", "-o", tmp_path / "m"), "no scans"),
        (("map", scan, "-o", scan), "it is a file"),
        (("map", scan, "-o", tmp_path / "m", "--resolution", "-1"), "resolution"),
        (("map", scan, "-o", tmp_path / "m", "--resolution", "100"), "scan.ply: too few points"),
        (("map", scan, "-o", tmp_path / "m", "--model", "none"), "none"),
        (("locate", scan, tmp_path / "m"), "no such map"),
        (("locate", scan, scan), "scan.ply: is a file; a map is a folder"),
        (("locate", tmp_path / "none.ply", tmp_path / "m"), "no such file"),
        (("locate", scan, tmp_path / "m", "-o", tmp_path / "T.ply"), "must end in"),
        (("locate", scan, tmp_path / "m", "--viewpoint", "1,2"), "viewpoint"),
    ]:
        done = run(*arguments)
        assert done.exit_code == 2, (arguments, done.output)
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()
