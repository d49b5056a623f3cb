"""Folders of scans become training pairs; the log names what was read."""

from __future__ import annotations

import logging

import h5py
import numpy as np
import pytest
import torch

from tiny_training import write_scene
from wsdesc import WSDescError, write_points
from wsdesc.datasets.synthetic import room_scans
from wsdesc.evaluation.metrics import inlier_ratio
from wsdesc.learning.data import load_clouds, load_training_data, split_pairs
from wsdesc.learning.match_trainer import matches_by_pose
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.oracle import held_out_poses, read_cloud_pose, relative_pose
from wsdesc.learning.pair_graph import find_pairs
from wsdesc.learning.sources import RoomPairs, ShapePairs


@pytest.fixture(scope="module")
def scans():
    return room_scans(seed=3, count=4)


@pytest.fixture
def scene(tmp_path, scans):
    return write_scene(tmp_path / "scene", scans)


@pytest.fixture
def load(caplog):
    """Load training data; returns it with the logged messages."""

    def run(scans, **data):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="wsdesc.learning"):
            loaded = load_training_data(scans, TrainOptions.read({"data": data}), workers=1)
        return loaded, caplog.text

    return run


def test_neighbours_in_order_become_pairs_in_metres(load, scene, scans):
    data, messages = load([scene], window=2)
    assert [(p.i, p.j) for p in data.graph.pairs] == [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]
    assert "metres" in messages
    assert "5 pairs of 4 scans" in messages
    sizes = {len(cloud) for index in range(5) for cloud in data.source.pair(index)}
    assert all(0.5 * len(f.points) < max(sizes) for f in scans)


def test_millimetres_are_recognized(load, scene, scans, tmp_path):
    folder = tmp_path / "millimetres"
    folder.mkdir()
    for k, scan in enumerate(scans):
        write_points(folder / f"{k}.ply", scan.points * 1000)
    (millimetres, messages), (metres, _) = load([folder]), load([scene])
    assert "millimetres" in messages
    for index in range(3):
        a, b = millimetres.source.pair(index)[0], metres.source.pair(index)[0]
        assert len(a) == pytest.approx(len(b), rel=0.01)
        assert torch.allclose(a.std(0), b.std(0), rtol=0.01)


@pytest.mark.slow
def test_overlap_check_accepts_neighbours_and_rejects_another_room(load, scene):
    write_points(scene / "cloud_bin_4.ply", room_scans(seed=90, count=1)[0].points)
    data, messages = load([scene], pairs="both", window=1)
    accepted = {(p.i, p.j) for p in data.graph.pairs}
    assert (3, 4) not in accepted
    assert len(accepted & {(0, 1), (1, 2), (2, 3)}) >= 2
    assert "rejected by the overlap check" in messages


def test_unreadable_scan_is_named_and_skipped(load, scene):
    (scene / "cloud_bin_2.ply").write_bytes(b"ply\nformat ascii 1.0\n")
    data, messages = load([scene], window=1)
    assert "unreadable scans skipped (1): " in messages
    assert "cloud_bin_2.ply" in messages
    assert {(p.i, p.j) for p in data.graph.pairs} == {(0, 1)}


@pytest.mark.parametrize("mode", ["order", "overlap"])
def test_missing_or_single_scans_are_refused(load, tmp_path, scans, mode):
    empty, single = (tmp_path / name for name in ("empty", "single"))
    for folder in (empty, single):
        folder.mkdir()
    write_points(single / "0.ply", scans[0].points)
    for folder in (empty, single, tmp_path / "missing"):
        with pytest.raises(WSDescError, match=folder.name):
            load([folder], pairs=mode)


@pytest.mark.slow
def test_scans_without_overlap_are_refused(load, tmp_path):
    for seed in (50, 60):
        write_points(tmp_path / f"{seed}.ply", room_scans(seed, 1)[0].points)
    with pytest.raises(WSDescError, match="overlap"):
        load([tmp_path], pairs="overlap")


def test_shapes_give_partial_views(load, tmp_path):
    with h5py.File(tmp_path / "ply_data_train0.h5", "w") as file:
        file["data"] = np.random.default_rng(0).normal(size=(3, 256, 3)).astype(np.float32)
    data, messages = load([tmp_path])
    assert isinstance(data.source, ShapePairs)
    assert "3 shapes" in messages
    p, q = data.source.pair(0)
    assert p.shape == q.shape == (192, 3)
    assert torch.equal(p, data.source.pair(0)[0])


def test_no_scans_give_synthetic_rooms(load):
    data, messages = load([])
    assert isinstance(data.source, RoomPairs)
    assert "synthetic" in messages


def test_many_scans_are_held_out_whole():
    """No scan of a held-out pair is in a training pair. With few scans, pairs are held out, or none."""
    for lengths, window in (([40], 4), ([20, 24, 16, 25], 4), ([12, 12], 1)):
        graph = find_pairs([dict.fromkeys(range(n)) for n in lengths], "order", window=window)
        training, held_out = split_pairs([list(range(n)) for n in lengths], graph, 0.1, seed=0)
        held_out_scans = {scan for pair in held_out for scan in pair}
        assert held_out
        assert not held_out_scans & {scan for pair in training for scan in pair}
        assert 2 <= len(held_out_scans) <= round(0.1 * sum(lengths))
        assert len(training) > 0.75 * len(graph.pairs)
        assert split_pairs([list(range(n)) for n in lengths], graph, 0.1, seed=0) == (training, held_out)
    graph = find_pairs([dict.fromkeys(range(6))], "order", window=4)
    training, held_out = split_pairs([list(range(6))], graph, 0.1, seed=0)
    assert (len(training), len(held_out)) == (13, 1)
    graph = find_pairs([dict.fromkeys(range(40))], "order")
    assert split_pairs([list(range(40))], graph, 0, 0)[1] == []


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_poses_fit_the_loaded_clouds(load, tmp_path, six_scans, scale):
    """Poses include centring, downsampling and the unit of length: points coincide under them."""
    folder = write_scene(tmp_path / "scene", six_scans, scale)
    data, _ = load([folder], unit=scale)
    assert len(data.held_out_pairs) == 1
    poses = [read_cloud_pose(origin) for origin in data.origins]
    for i, j in [*data.training_pairs[:2], *data.held_out_pairs]:
        T_q_p = relative_pose(poses[i], poses[j])
        matches = matches_by_pose(data.clouds[i], data.clouds[j], T_q_p)
        moved = data.clouds[i].double().numpy() @ T_q_p[:3, :3].T + T_q_p[:3, 3]
        distances = np.linalg.norm(moved[matches[:, 0]] - data.clouds[j].numpy()[matches[:, 1]], axis=1)
        assert np.median(distances) < 0.02
        assert inlier_ratio(data.clouds[i], data.clouds[j], matches, T_q_p) == 1
        wrong = T_q_p.copy()
        wrong[:3, 3] += [0.2, 0, 0]
        assert inlier_ratio(data.clouds[i], data.clouds[j], matches, wrong) < 0.2
    (held_out_pose,) = held_out_poses(data)
    (i, j), (p, q) = data.held_out_pairs[0], data.held_out[0]
    assert p is data.clouds[i]
    assert q is data.clouds[j]
    assert np.array_equal(held_out_pose, relative_pose(poses[i], poses[j]))


def test_missing_and_unreadable_poses_are_none(load, scene):
    (scene / "cloud_bin_2.info.txt").write_text("nonsense")
    (scene / "cloud_bin_3.info.txt").unlink()
    data, _ = load([scene])
    assert [read_cloud_pose(origin) is None for origin in data.origins] == [False, False, True, True]


def test_one_scan_is_enough_without_pairs(tmp_path, scans):
    write_points(tmp_path / "0.ply", scans[0].points)
    (cloud,) = load_clouds([tmp_path], TrainOptions())
    assert abs(float(cloud.mean())) < 0.5
    assert len(cloud) > 0.5 * len(scans[0].points)
    (tmp_path / "0.ply").write_bytes(b"ply")
    with pytest.raises(WSDescError, match=r"0\.ply"):
        load_clouds([tmp_path], TrainOptions())
