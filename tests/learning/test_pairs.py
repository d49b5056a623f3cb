"""`wsdesc.pairs`: overlapping scans by path, without poses."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import wsdesc
from tiny_training import write_scene
from wsdesc import WSDescError, write_points
from wsdesc.cli.app import app
from wsdesc.datasets.synthetic import room_scans
from wsdesc.learning.pair_graph import PairGraph


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return write_scene(tmp_path_factory.mktemp("pairs") / "scene", room_scans(3, 3, resolution=0.08))


def names(pairs):
    return [(pair.source.stem, pair.target.stem) for pair in pairs]


def test_neighbours_in_order(scene, tmp_path):
    pairs = wsdesc.pairs(scene, mode="order", window=1, out=tmp_path / "pairs.json")
    assert names(pairs) == [("cloud_bin_0", "cloud_bin_1"), ("cloud_bin_1", "cloud_bin_2")]
    assert pairs[0].overlap is None
    assert [(p.i, p.j) for p in PairGraph.load(tmp_path / "pairs.json").pairs] == [(0, 1), (1, 2)]


@pytest.mark.slow
def test_overlap_check_rejects_another_room(tmp_path):
    folder = write_scene(tmp_path / "scene", room_scans(3, 2))
    write_points(folder / "cloud_bin_2.ply", room_scans(seed=90, count=1)[0].points)
    (pair,) = wsdesc.pairs(folder, mode="overlap")
    assert names([pair]) == [("cloud_bin_0", "cloud_bin_1")]
    assert pair.overlap > 0.3
    assert pair.inliers >= 12


def test_command_lists_pairs(scene):
    done = CliRunner().invoke(app, ["pairs", str(scene), "--pairs", "order", "--window", "1"])
    assert done.exit_code == 0, done.output
    lines = [line for line in done.output.splitlines() if line.endswith("overlap not checked")]
    assert len(lines) == 2
    assert "cloud_bin_0.ply" in lines[0]


def test_wrong_arguments_are_refused(scene):
    with pytest.raises(WSDescError, match="scans"):
        wsdesc.pairs([])
    with pytest.raises(WSDescError, match=r"data\.pairs"):
        wsdesc.pairs(scene, mode="all")
