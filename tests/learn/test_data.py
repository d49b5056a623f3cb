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
from wsdesc.datasets.synthetic import make_fragments
from wsdesc.learn.data import gather
from wsdesc.learn.options import TrainOptions
from wsdesc.learn.sources import RoomPairs, ShapePairs


@pytest.fixture(scope="module")
def fragments():
    return make_fragments(seed=3, count=4)


@pytest.fixture
def scene(tmp_path, fragments):
    """The layout of 3DMatch's training set: fragments and, beside them, their poses."""
    folder = tmp_path / "scene"
    folder.mkdir()
    for k, fragment in enumerate(fragments):
        write_points(folder / f"cloud_bin_{k}.ply", fragment.points)
        pose = "\n".join(" ".join(f"{x:.6f}" for x in row) for row in fragment.T_world_fragment)
        (folder / f"cloud_bin_{k}.info.txt").write_text(f"scene\t seq-01\t {k}\n{pose}\n")
    return folder


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
    write_points(scene / "cloud_bin_4.ply", make_fragments(seed=90, count=1)[0].points)
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
        write_points(apart / f"{seed}.ply", make_fragments(seed, 1)[0].points)
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


OPTIONS = {
    "descriptor": {"width": 0.0625, "resolution": 8, "support_start": 1.2},
    "keypoints": 32,
    "steps": 3,
}


def run(folder, out, tmp_path, *more):
    (tmp_path / "options.yaml").write_text(yaml.safe_dump(OPTIONS))
    command = [sys.executable, "-m", "wsdesc", "train", str(folder), "--out", str(out)]
    command += ["--config", str(tmp_path / "options.yaml"), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_poses_change_nothing_in_a_training(scene, tmp_path):
    """Ground truth beside the scans is shuffled, then deleted: the weights have the same bits."""
    first = run(scene, tmp_path / "a", tmp_path)
    assert first.returncode == 0, first.stderr
    poses = sorted(scene.glob("*.info.txt"))
    texts = [p.read_text() for p in poses]
    for path, text in zip(poses, texts[1:] + texts[:1], strict=True):
        path.write_text(text)
    run(scene, tmp_path / "b", tmp_path)
    for path in poses:
        path.unlink()
    run(scene, tmp_path / "c", tmp_path)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] == weights[2]
    graph = json.loads((tmp_path / "a" / "pairs.json").read_text())
    assert len(graph["pairs"]) == 6


def test_the_command_says_what_is_wrong_in_one_line(tmp_path):
    for arguments in (["nowhere"], [str(tmp_path)], ["--preset", "outdoor"], ["--config", "missing.yaml"]):
        command = [sys.executable, "-m", "wsdesc", "train", *arguments, "--out", str(tmp_path / "out")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
