"""`wsdesc add`, `remove` and `merge`, with simulated registrations."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from simulated_models import make_model, simulate, write_scan
from wsdesc import Reconstruction
from wsdesc.cli.app import app
from wsdesc.cli.grow import print_model
from wsdesc.core.folders import locked
from wsdesc.reconstruction.edge_result import MAY_REPEAT


def run(*arguments):
    """Run the command in this process."""
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def model(tmp_path, monkeypatch):
    """The folder of a model of three scans."""
    simulate(monkeypatch)
    (tmp_path / "scans").mkdir()
    make_model([write_scan(tmp_path / "scans", k) for k in (1, 2, 3)], tmp_path / "model")
    return tmp_path / "model"


def names_in(folder):
    return set(Reconstruction.load(folder).T_world_scan)


def test_scans_are_added_and_removed(model, tmp_path):
    (tmp_path / "today").mkdir()
    write_scan(tmp_path / "today", 4)
    before = json.loads((model / "poses.json").read_text())["scans"]["scan_2.ply"]["T_world_scan"]
    added = run("add", model, tmp_path / "today", "--fixed", "--json")
    assert added.exit_code == 0, added.output
    poses = json.loads(added.stdout)
    assert set(poses["scans"]) == {f"scan_{k}.ply" for k in (1, 2, 3, 4)}
    for row, expected in zip(poses["scans"]["scan_2.ply"]["T_world_scan"], before, strict=True):
        assert row == pytest.approx(expected, abs=1e-12)
    assert names_in(model) == set(poses["scans"])
    removed = run("remove", model, "scan_1.ply", "scan_4.ply")
    assert removed.exit_code == 0, removed.output
    assert "2 placed, 0 not placed" in removed.output
    assert names_in(model) == {"scan_2.ply", "scan_3.ply"}


def test_problems_of_added_scans_are_named(model, tmp_path):
    bad = write_scan(tmp_path, 902)
    copy = write_scan(tmp_path, 2, "copy.ply")
    shown = run("add", model, bad, copy)
    assert shown.exit_code == 1, shown.output
    assert "scan_902.ply was not placed: contradicts the other scans" in shown.output
    assert "copy.ply was left out: it equals scan_2.ply" in shown.output


def test_models_are_merged(model, tmp_path):
    files = [write_scan(tmp_path / "scans", k) for k in (4, 5)]
    make_model(files, tmp_path / "b")
    shown = run("merge", model, tmp_path / "b", "-o", tmp_path / "both")
    assert shown.exit_code == 0, shown.output
    assert names_in(tmp_path / "both") == {f"scan_{k}.ply" for k in range(1, 6)}
    assert names_in(model) == {f"scan_{k}.ply" for k in (1, 2, 3)}


def test_bad_input_is_one_line(model, tmp_path):
    new = write_scan(tmp_path, 4)
    for arguments, message in (
        (("add", tmp_path / "absent", new), "no such folder"),
        (("add", tmp_path / "scans", new), "no reconstruction in this folder"),
        (("add", model, tmp_path / "absent.ply"), "absent.ply"),
        (("add", model, new, "--voxel", "-1"), "--voxel"),
        (("remove", model, "scan_9.ply"), "no scan 'scan_9.ply'"),
        (("merge", model, "-o", tmp_path / "out"), "at least two models"),
    ):
        shown = run(*arguments)
        assert shown.exit_code == 2, shown.output
        assert message in shown.output
        assert "Traceback" not in shown.output
    assert not (tmp_path / "absent").exists()
    with locked(model):
        assert "uses this folder" in run("add", model, new).output
    (model / "model.npz").write_bytes(b"damaged")
    assert "model.npz: damaged" in run("add", model, new).output


@pytest.mark.parametrize("distinct", [False, True])
def test_scans_left_out_for_repetitive_structure_name_the_option(model, capsys, distinct):
    result = Reconstruction.load(model)
    rejected = [replace(edge, rejection=f"{MAY_REPEAT}: why") for edge in result.edges]
    state = replace(result.state, options=result.state.options.model_copy(update={"distinct": distinct}))
    result = replace(result, T_world_scan={}, components=[], edges=rejected, state=state)
    result = replace(result, not_placed={"scan_1.ply": f"{MAY_REPEAT}: why", "scan_9.ply": "broken"})
    print_model(result, [], as_json=False)
    hint = "1 scan was left out because parts of the place may be equal"
    assert (hint in capsys.readouterr().err) != distinct
