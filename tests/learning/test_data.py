"""From a folder to a training: what a user's scans become, and what is said about them."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml

from wsdesc import WSDescError, write_points
from wsdesc.cli.train import train as command
from wsdesc.datasets.synthetic import room_scans
from wsdesc.evaluation.metrics import inlier_ratio
from wsdesc.learning.data import divide, gather, gather_clouds
from wsdesc.learning.match_trainer import coincident
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.oracle import held_out_motions, motion, pose_of
from wsdesc.learning.pairs import find_pairs
from wsdesc.learning.sources import RoomPairs, ShapePairs


@pytest.fixture(scope="module")
def fragments():
    return room_scans(seed=3, count=4)


@pytest.fixture(scope="module")
def six():
    return room_scans(seed=3, count=6)


def write_scene(folder, fragments, scale=1.0):
    """The layout of 3DMatch's training set: fragments and, beside them, their poses."""
    folder.mkdir()
    for k, fragment in enumerate(fragments):
        write_points(folder / f"cloud_bin_{k}.ply", fragment.points * scale)
        T = fragment.T_world_scan.copy()
        T[:3, 3] *= scale
        pose = "\n".join(" ".join(f"{x:.6f}" for x in row) for row in T)
        (folder / f"cloud_bin_{k}.info.txt").write_text(f"scene\t seq-01\t {k}\n{pose}\n")
    return folder


@pytest.fixture
def scene(tmp_path, fragments):
    return write_scene(tmp_path / "scene", fragments)


def heard(places, **data):
    said = []
    gathered = gather(places, TrainOptions.read({"data": data}), say=said.append, workers=1)
    return gathered, " ".join(said)


def test_neighbours_in_order_become_pairs_in_metres(scene, fragments):
    data, said = heard([scene], window=2)
    assert [(p.i, p.j) for p in data.graph.pairs] == [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]
    assert "look like metres" in said
    assert "5 pairs of 4 scans" in said
    sizes = {len(cloud) for number in range(5) for cloud in data.source.pair(number)}
    assert all(0.5 * len(f.points) < max(sizes) for f in fragments)


def test_millimetres_are_found_and_said_aloud(scene, fragments, tmp_path):
    folder = tmp_path / "millimetres"
    folder.mkdir()
    for k, fragment in enumerate(fragments):
        write_points(folder / f"{k}.ply", fragment.points * 1000)
    (there, said), (metres, _) = heard([folder]), heard([scene])
    assert "millimetres" in said
    for number in range(3):
        a, b = there.source.pair(number)[0], metres.source.pair(number)[0]
        assert len(a) == pytest.approx(len(b), rel=0.01)
        assert torch.allclose(a.std(0), b.std(0), rtol=0.01)


def test_the_overlap_check_confirms_neighbours_and_refuses_strangers(scene, tmp_path):
    write_points(scene / "cloud_bin_4.ply", room_scans(seed=90, count=1)[0].points)
    data, said = heard([scene], pairs="both", window=1)
    kept = {(p.i, p.j) for p in data.graph.pairs}
    assert (3, 4) not in kept
    assert len(kept & {(0, 1), (1, 2), (2, 3)}) >= 2
    assert "left out" in said


def test_a_broken_scan_is_named_and_the_rest_goes_on(scene):
    (scene / "cloud_bin_2.ply").write_bytes(b"ply\nformat ascii 1.0\n")
    data, said = heard([scene], window=1)
    assert "1 scans left out" in said
    assert "cloud_bin_2.ply" in said
    assert {(p.i, p.j) for p in data.graph.pairs} == {(0, 1)}


@pytest.mark.parametrize("mode", ["order", "overlap"])
def test_places_that_cannot_be_learned_from(tmp_path, fragments, mode):
    empty, single, apart = (tmp_path / name for name in ("empty", "single", "apart"))
    for folder in (empty, single, apart):
        folder.mkdir()
    write_points(single / "0.ply", fragments[0].points)
    for seed in (50, 60):
        write_points(apart / f"{seed}.ply", room_scans(seed, 1)[0].points)
    for folder, reason in ((empty, "no scans"), (single, "one scan"), (tmp_path / "missing", "no such")):
        with pytest.raises(WSDescError, match=reason):
            heard([folder], pairs=mode)
    if mode == "overlap":
        with pytest.raises(WSDescError, match="overlap"):
            heard([apart], pairs=mode)


def test_shapes_and_nothing_at_all(tmp_path):
    import h5py

    folder = tmp_path / "shapes"
    folder.mkdir()
    with h5py.File(folder / "ply_data_train0.h5", "w") as file:
        file["data"] = np.random.default_rng(0).normal(size=(3, 256, 3)).astype(np.float32)
    data, said = heard([folder])
    assert isinstance(data.source, ShapePairs)
    assert "3 shapes" in said
    p, q = data.source.pair(0)
    assert p.shape == q.shape == (192, 3)
    again = data.source.pair(0)
    assert torch.equal(p, again[0])
    nothing, said = heard([])
    assert isinstance(nothing.source, RoomPairs)
    assert "synthetic" in said


def test_many_scans_are_held_out_whole():
    """No scan of a held-out pair is in a learning pair; of few scans, pairs are held out, or none."""
    for lengths, window in (([40], 4), ([20, 24, 16, 25], 4), ([12, 12], 1)):
        graph = find_pairs([dict.fromkeys(range(n)) for n in lengths], "order", window=window)
        learning, aside = divide([list(range(n)) for n in lengths], graph, 0.1, seed=0)
        looked_at = {scan for pair in aside for scan in pair}
        assert aside
        assert not looked_at & {scan for pair in learning for scan in pair}
        assert 2 <= len(looked_at) <= round(0.1 * sum(lengths))
        assert len(learning) > 0.75 * len(graph.pairs)
        assert divide([list(range(n)) for n in lengths], graph, 0.1, seed=0) == (learning, aside)
    graph = find_pairs([dict.fromkeys(range(6))], "order", window=4)
    learning, aside = divide([list(range(6))], graph, 0.1, seed=0)
    assert (len(learning), len(aside)) == (13, 1)
    assert divide([list(range(40))], find_pairs([dict.fromkeys(range(40))], "order"), 0, 0)[1] == []


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_poses_fit_the_clouds_that_data_became(tmp_path, six, scale):
    """Centring, thinning and another unit of length are in the motions: true matches lie on each other."""
    folder = write_scene(tmp_path / "scene", six, scale)
    data, _ = heard([folder], unit=scale)
    assert len(data.aside) == 1
    poses = [pose_of(origin) for origin in data.origins]
    for i, j in [*data.learning[:4], *data.aside]:
        T_q_p = motion(poses[i], poses[j])
        matches = coincident(data.clouds[i], data.clouds[j], T_q_p)
        moved = data.clouds[i].double().numpy() @ T_q_p[:3, :3].T + T_q_p[:3, 3]
        apart = np.linalg.norm(moved[matches[:, 0]] - data.clouds[j].numpy()[matches[:, 1]], axis=1)
        assert np.median(apart) < 0.02
        assert inlier_ratio(data.clouds[i], data.clouds[j], matches, T_q_p) == 1
        wrong = T_q_p.copy()
        wrong[:3, 3] += [0.2, 0, 0]
        assert inlier_ratio(data.clouds[i], data.clouds[j], matches, wrong) < 0.2
    (known,) = held_out_motions(data)
    (i, j), (p, q) = data.aside[0], data.held_out[0]
    assert p is data.clouds[i]
    assert q is data.clouds[j]
    assert np.array_equal(known, motion(poses[i], poses[j]))


def test_a_pose_that_cannot_be_read_is_none(tmp_path, six):
    folder = write_scene(tmp_path / "scene", six)
    (folder / "cloud_bin_2.info.txt").write_text("nonsense")
    (folder / "cloud_bin_3.info.txt").unlink()
    data, _ = heard([folder])
    assert [pose_of(origin) is None for origin in data.origins] == [False, False, True, True, False, False]


def test_clouds_alone_need_no_second_scan(tmp_path, fragments):
    write_points(tmp_path / "0.ply", fragments[0].points)
    (cloud,) = gather_clouds([tmp_path], TrainOptions())
    assert abs(float(cloud.mean())) < 0.5
    assert len(cloud) > 0.5 * len(fragments[0].points)
    (tmp_path / "0.ply").write_bytes(b"ply")
    with pytest.raises(WSDescError, match=r"0\.ply"):
        gather_clouds([tmp_path], TrainOptions())


OPTIONS = {
    "descriptor": {"width": 0.0625, "resolution": 8, "support_start": 1.2},
    "data": {"hold_out": 0.4},
    "keypoints": 128,
    "steps": 3,
    "validate_every": 2,
}


def run(folder, out, tmp_path, **more):
    (tmp_path / "options.yaml").write_text(yaml.safe_dump(OPTIONS))
    command([folder], out, config=tmp_path / "options.yaml", device="cpu", **more)


def test_poses_change_nothing_in_a_training(tmp_path, six, capsys):
    """Ground truth beside the scans is shuffled, then deleted: weights, held-out pairs and what is measured
    without poses have the same bits; only figures of the poses change, then vanish."""
    scene = write_scene(tmp_path / "scene", six)
    run(scene, tmp_path / "a", tmp_path)
    assert "8 pairs to learn from, 6 held out, of scans that other pairs have" in capsys.readouterr().out
    poses = sorted(scene.glob("*.info.txt"))
    texts = [p.read_text() for p in poses]
    for path, text in zip(poses, texts[1::2] + texts[::2], strict=True):
        path.write_text(text)
    run(scene, tmp_path / "b", tmp_path)
    for path in poses:
        path.unlink()
    run(scene, tmp_path / "c", tmp_path)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] == weights[2]
    graph = json.loads((tmp_path / "a" / "pairs.json").read_text())
    assert len(graph["pairs"]) == 14
    logs = [logged(tmp_path / name / "log.jsonl") for name in "abc"]
    rigid = [[{k: v for k, v in row.items() if k not in TRUTH} for row in log] for log in logs]
    assert rigid[0] == rigid[1] == rigid[2]
    assert [row["step"] for row in logs[0] if "held_out_loss" in row] == [2, 3]
    truth = [[{k: row[k] for k in TRUTH & set(row)} for row in log if "held_out_loss" in row] for log in logs]
    assert all(set(row) == TRUTH for row in truth[0] + truth[1])
    assert truth[0] != truth[1]
    assert truth[2] == [{}, {}]


TRUTH = {"held_out_inlier_ratio", "held_out_recall_005", "held_out_recall_02"}


def logged(path):
    """Rows of a log without what the clock says."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("pairs_per_second", "waiting")} for row in rows]


def test_the_command_learns_from_poses_where_it_is_told(tmp_path, six):
    scene = write_scene(tmp_path / "scene", six)
    run(scene, tmp_path / "a", tmp_path, oracle=True, oracle_loss="infonce", steps=1)
    assert TrainOptions.load(tmp_path / "a" / "options.yaml").oracle == "infonce"
    start = str(tmp_path / "a" / "model.safetensors")
    run(scene, tmp_path / "b", tmp_path, start=start, steps=1)
    assert TrainOptions.load(tmp_path / "b" / "options.yaml").start == start
    for path in scene.glob("*.info.txt"):
        path.unlink()
    with pytest.raises(WSDescError, match="poses"):
        run(scene, tmp_path / "c", tmp_path, oracle=True)


def test_the_command_says_what_is_wrong_in_one_line(tmp_path):
    for arguments in (["nowhere"], [str(tmp_path)], ["--preset", "outdoor"], ["--config", "missing.yaml"]):
        line = [sys.executable, "-m", "wsdesc", "train", *arguments, "--out", str(tmp_path / "out")]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
