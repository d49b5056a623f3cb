"""The rows of the ablation table differ from the full model only in their named part."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import wsdesc
from tiny_training import DESCRIPTOR
from wsdesc import WSDesc, WSDescError, write_points
from wsdesc.cli.app import app
from wsdesc.datasets.synthetic import room_scans
from wsdesc.datasets.threedmatch import LogEntry, write_log
from wsdesc.learning.ablations import FULL, ORACLE, SMOOTHNET, VARIANTS, folder_name, variant
from wsdesc.learning.options import TrainOptions, preset_options

PAPER_ROWS = ["w/o LLS", "w/ LP", "w/ GP", "w/o LRF", "w/o w", "w/o w_f", "w/o w_sm", "w/o L_o", "w/o L_c"]


def test_rows_are_those_of_the_paper():
    assert list(VARIANTS) == [FULL, *PAPER_ROWS]


def test_full_row_changes_nothing():
    assert variant(FULL, TrainOptions(seed=3)) == TrainOptions(seed=3)


@pytest.mark.parametrize("row", PAPER_ROWS)
def test_row_changes_only_its_options(row):
    base, changed = TrainOptions(steps=7).model_dump(), variant(row, TrainOptions(steps=7)).model_dump()
    differ = {
        (group, key)
        for group in ("descriptor", "loss")
        for key in base[group]
        if base[group][key] != changed[group][key]
    }
    assert differ == {(group, key) for group, keys in VARIANTS[row].items() for key in keys}
    for options in (base, changed):
        del options["descriptor"], options["loss"]
    assert base == changed


def test_only_the_oracle_uses_poses():
    assert variant(ORACLE, TrainOptions()).oracle == "batch-hard"
    assert all(variant(row, TrainOptions()).oracle is None for row in VARIANTS)
    assert variant(SMOOTHNET, TrainOptions()) == preset_options("smoothnet")


def test_folder_names_are_distinct_and_valid():
    names = [folder_name(row) for row in [*VARIANTS, ORACLE]]
    assert len(set(names)) == len(names)
    assert all("/" not in name and " " not in name for name in names)


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """Three coarse scans and the ground truth of one pair, in the layout of 3DMatch's test set."""
    root = tmp_path_factory.mktemp("ablation")
    (root / "scans").mkdir()
    scans = room_scans(5, 3, resolution=0.06)
    for k, scan in enumerate(scans):
        write_points(root / "scans" / f"cloud_bin_{k}.ply", scan.points)
    first, second = (scan.T_world_scan for scan in scans[:2])
    (root / "scans-evaluation").mkdir()
    truth = LogEntry(0, 1, len(scans), np.linalg.inv(first) @ second)
    write_log(root / "scans-evaluation" / "gt.log", [truth])
    return root


def small() -> TrainOptions:
    return TrainOptions.read(
        {
            "descriptor": DESCRIPTOR,
            "keypoints": 24,
            "data": {"hold_out": 0.0, "unit": 1.0, "min_coverage": 0.0},
        }
    )


def test_finished_rows_are_kept_and_stopped_ones_continue(scene, tmp_path):
    rows = ["full", "w/o w_f"]
    started = []
    stopped = wsdesc.ablate(
        scene / "scans", tmp_path, rows=rows, options=small(), steps=2, minutes=0, device="cpu"
    )
    assert [run.finished for run in stopped.values()] == [False, False]

    def on_row(row, folder):
        started.append(row)
        return lambda state: None

    runs = wsdesc.ablate(
        scene / "scans", tmp_path, rows=rows, options=small(), steps=2, device="cpu", on_row=on_row
    )
    assert started == list(runs) == rows
    models = [WSDesc.from_pretrained(run.folder) for run in runs.values()]
    assert any(not torch.equal(a, b) for a, b in zip(*(m.parameters() for m in models), strict=True))
    modified = [run.weights.stat().st_mtime_ns for run in runs.values()]
    again = wsdesc.ablate(
        scene / "scans", tmp_path, rows=rows, options=small(), steps=2, device="cpu", on_row=on_row
    )
    assert started == rows
    assert [run.weights.stat().st_mtime_ns for run in again.values()] == modified


@pytest.mark.slow
def test_command_evaluates_finished_rows(scene, tmp_path):
    small().save(tmp_path / "base.yaml")
    command = ["ablate", str(scene / "scans"), "--config", str(tmp_path / "base.yaml"), "--steps", "1"]
    command += ["--only", "full", "--out", str(tmp_path / "runs"), "--device", "cpu"]
    trained = CliRunner().invoke(app, command)
    assert trained.exit_code == 0, trained.output
    command += ["--only", "w/o w_f", "--test", str(scene), "--keypoints", "50", "--minutes", "0"]
    stopped = CliRunner().invoke(app, [*command, "--steps", "2"])
    assert stopped.exit_code == 0, stopped.output
    assert "not finished: w/o w_f; continue with the same command" in stopped.output
    assert (tmp_path / "runs" / "results").is_dir()


def test_unknown_row_is_refused(tmp_path):
    with pytest.raises(WSDescError, match="w/o LRF"):
        wsdesc.ablate(out=tmp_path, rows=["w/o everything"])
