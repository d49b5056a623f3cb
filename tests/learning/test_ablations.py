"""The rows of the ablation table differ from the full model in what they say, and in nothing else."""

import numpy as np
import pytest
import torch
from benchmarks.report import published
from typer.testing import CliRunner

from wsdesc import WSDesc, write_points
from wsdesc.cli.app import app as cli
from wsdesc.datasets.synthetic import room_scans
from wsdesc.datasets.threedmatch import LogEntry, write_log
from wsdesc.evaluation.results import BenchmarkResults
from wsdesc.learning.ablations import FULL, ORACLE, SMOOTHNET, VARIANTS, folder_name, variant
from wsdesc.learning.options import TrainOptions, preset


def test_rows_are_those_of_the_paper():
    named = {row[0] for row in published.ABLATION}
    assert set(VARIANTS) - {FULL} == {name for name in named if name.startswith("w/")}


def test_full_changes_nothing():
    assert variant(FULL, TrainOptions(seed=3)) == TrainOptions(seed=3)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != FULL])
def test_a_row_changes_only_its_group(name):
    base, changed = TrainOptions(steps=7).model_dump(), variant(name, TrainOptions(steps=7)).model_dump()
    differ = {(group, key) for group in ("descriptor", "loss") for key in base[group]
              if base[group][key] != changed[group][key]}  # fmt: skip
    assert differ == {(group, key) for group, keys in VARIANTS[name].items() for key in keys}
    assert {k: v for k, v in base.items() if k not in ("descriptor", "loss")} == {
        k: v for k, v in changed.items() if k not in ("descriptor", "loss")
    }


def test_only_the_oracle_sees_poses():
    assert variant(ORACLE, TrainOptions()).oracle == "batch-hard"
    assert all(variant(name, TrainOptions()).oracle is None for name in VARIANTS)


def test_smoothnet_is_its_preset():
    assert variant(SMOOTHNET, TrainOptions()) == preset("smoothnet")


def test_folder_names_are_different_and_plain():
    names = [folder_name(name) for name in [*VARIANTS, ORACLE]]
    assert len(set(names)) == len(names)
    assert all("/" not in name and " " not in name for name in names)


def test_command_trains_rows_and_does_not_train_them_again(tmp_path):
    scans = tmp_path / "test" / "scans"
    scans.mkdir(parents=True)
    fragments = room_scans(5, 3)
    for k, fragment in enumerate(fragments):
        write_points(scans / f"cloud_bin_{k}.ply", fragment.points)
    first, second = (fragment.T_world_scan for fragment in fragments[:2])
    (tmp_path / "test" / "scans-evaluation").mkdir()
    truth = LogEntry(0, 1, len(fragments), np.linalg.inv(first) @ second)
    write_log(tmp_path / "test" / "scans-evaluation" / "gt.log", [truth])
    small = {"descriptor": {"width": 0.125, "resolution": 4}, "keypoints": 32, "compile": False}
    TrainOptions.read({**small, "data": {"hold_out": 0.0}}).save(tmp_path / "base.yaml")
    command = ["ablate", str(scans), "--config", str(tmp_path / "base.yaml"), "--steps", "2"]
    command += ["--only", "full", "--only", "w/o w_f", "--out", str(tmp_path / "runs")]
    trained = CliRunner().invoke(cli.app, command)
    assert trained.exit_code == 0, trained.output
    files = [tmp_path / "runs" / name / "model.safetensors" for name in ("full", "without-w_f")]
    models = [WSDesc.from_pretrained(file) for file in files]
    differ = [not torch.equal(a, b) for a, b in zip(*(m.parameters() for m in models), strict=True)]
    assert any(differ)
    before = [file.stat().st_mtime_ns for file in files]
    command += ["--test", str(tmp_path / "test"), "--keypoints", "50"]
    cut = CliRunner().invoke(cli.app, [*command, "--only", "w/o L_o", "--minutes", "0"])
    assert cut.exit_code == 0, cut.output
    assert "not finished: w/o L_o; go on with the same command" in cut.output
    for name in ("3dmatch", "3dmatch-rotated"):  # finished rows are evaluated
        results = BenchmarkResults.load(tmp_path / "runs" / "results" / name)
        assert [row[0] for row in results.tables[0].rows] == ["full", "w/o w_f"]
    again = CliRunner().invoke(cli.app, command)
    assert again.output.count("trained already") == 2
    assert [file.stat().st_mtime_ns for file in files] == before


def test_an_unknown_row_is_refused():
    result = CliRunner().invoke(cli.app, ["ablate", "--only", "w/o everything"])
    assert result.exit_code == 2
    assert "w/o LRF" in result.stderr
