"""Training as a whole: it learns, it stops and goes on, it keeps what it had, and processes can share it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from wsdesc import WSDesc, WSDescError
from wsdesc.core.errors import FileFormatError
from wsdesc.core.rng import generator_of, random_rotation
from wsdesc.learning.checkpoint import load_checkpoint, save_checkpoint
from wsdesc.learning.options import PRESETS, TrainOptions, preset
from wsdesc.learning.prefetch import Feed
from wsdesc.learning.run import read_log, train
from wsdesc.learning.sources import MixedPairs, RoomPairs, ScanPairs, drop_sparse
from wsdesc.learning.trainer import Trainer

TINY = {"descriptor": {"width": 0.0625, "support_start": 1.2, "resolution": 8}, "keypoints": 40}


def tiny(**more) -> TrainOptions:
    return TrainOptions.read({**TINY, **more})


@pytest.fixture(scope="module")
def source(room) -> ScanPairs:
    clouds = [drop_sparse(torch.as_tensor(c), 0.3, 0.45)[::4] for c in (room.source, room.target)]
    return ScanPairs(clouds, [(0, 1), (1, 0)], seed=0)


def bits(path: Path) -> bytes:
    return path.read_bytes()


def test_what_the_optimisers_know_lies_in_memory_as_the_weights_do(tmp_path):
    """Or fused steps on CUDA refuse it: convolutions have their channels last, files have not."""
    first, again = Trainer(tiny()), Trainer(tiny())
    for parameter in first.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    first._update(go_on=True)
    save_checkpoint(tmp_path / "state", first, 1)
    load_checkpoint(tmp_path / "state", again)
    for which, optimizer in again.optimizers.items():
        before = first.optimizers[which]
        for p, q in zip(optimizer.param_groups[0]["params"], before.param_groups[0]["params"], strict=True):
            assert optimizer.state[p]["exp_avg"].stride() == p.stride()
            assert all(
                torch.equal(optimizer.state[p][name], before.state[q][name]) for name in before.state[q]
            )


def test_a_run_leaves_weights_options_and_a_log(source, tmp_path):
    seen = []
    weights = train(tiny(steps=3), source, tmp_path / "run", watch=seen.append)
    assert [p.step for p in seen] == [1, 2, 3]
    model = WSDesc.from_pretrained(weights)
    assert model.options.width == 0.0625
    assert TrainOptions.load(tmp_path / "run" / "options.yaml") == tiny(steps=3)
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 3
    assert rows[-1]["support"] == pytest.approx(model.support.size.item())
    assert rows[-1]["support"] != 1.2


def test_stopping_and_going_on_changes_no_bit(source, tmp_path):
    whole = train(tiny(steps=6), source, tmp_path / "whole")
    assert train(tiny(steps=6), source, tmp_path / "parts", stop_after=0) is None
    parts = train(tiny(steps=6), source, tmp_path / "parts", resume=True)
    assert bits(whole) == bits(parts)


def test_a_second_training_in_the_folder_must_be_asked_for(source, tmp_path):
    train(tiny(steps=1), source, tmp_path)
    with pytest.raises(WSDescError, match="resume"):
        train(tiny(steps=1), source, tmp_path)


def test_a_checkpoint_of_another_configuration_is_refused(source, tmp_path):
    train(tiny(steps=1), source, tmp_path)
    with pytest.raises(WSDescError, match="learning_rate"):
        train(tiny(steps=2, learning_rate=0.1), source, tmp_path, resume=True)


def test_what_is_no_checkpoint_is_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    trainer = Trainer(tiny())
    for content in (b"", b"nonsense" * 100):
        path.write_bytes(content)
        with pytest.raises(WSDescError, match=r"checkpoint\.safetensors"):
            load_checkpoint(path, trainer)
    torch.save({"step": 1}, path)
    with pytest.raises(WSDescError, match=r"checkpoint\.safetensors"):
        load_checkpoint(path, trainer)


def test_a_full_disk_leaves_the_old_checkpoint(source, tmp_path, monkeypatch):
    trainer = Trainer(tiny())
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, trainer, 1)
    before = bits(path)

    def no_space(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", no_space)
    with pytest.raises(WSDescError, match="No space left"):
        save_checkpoint(path, trainer, 2)
    assert bits(path) == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_line_of_the_log_that_was_cut_off_is_forgotten(source, tmp_path):
    train(tiny(steps=2), source, tmp_path)
    log = tmp_path / "log.jsonl"
    rows = read_log(log)
    with log.open("a") as file:
        file.write('{"step": 1, "lo')
    assert read_log(log) == rows
    train(tiny(steps=3), source, tmp_path, resume=True)
    assert [row["step"] for row in read_log(log)] == [row["step"] for row in rows] + [3]
    log.write_text("nonsense\n")
    with pytest.raises(FileFormatError, match=r"log\.jsonl"):
        train(tiny(steps=4), source, tmp_path, resume=True)


KILLED = """
import sys, torch
from pathlib import Path
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.run import read_log, train
from wsdesc.learning.sources import ScanPairs

clouds = torch.load({clouds!r}, weights_only=True)
options = TrainOptions.load({options!r})
train(options, ScanPairs(clouds, [(0, 1), (1, 0)], seed=0), Path({out!r}), resume=True)
"""


def test_kill_9_loses_at_most_one_interval(source, tmp_path):
    options = tiny(steps=25, checkpoint_minutes=1e-3)
    options.save(tmp_path / "options.yaml")
    torch.save([c.contiguous() for c in source.clouds], tmp_path / "clouds.pt")
    out = tmp_path / "run"
    program = KILLED.format(
        clouds=str(tmp_path / "clouds.pt"), options=str(tmp_path / "options.yaml"), out=str(out)
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    patience = time.monotonic() + 60
    while not (out / "checkpoint.safetensors").exists():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < patience
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "model.safetensors").exists()
    finished = load_checkpoint(out / "checkpoint.safetensors", Trainer(options))
    assert 1 <= finished < 25
    resumed = train(options, source, out, resume=True)
    assert bits(resumed) == bits(train(options, source, tmp_path / "whole"))


def test_an_accident_is_skipped_and_counted(source, tmp_path):
    trainer = Trainer(tiny(skip_above=1e-9))
    before = {name: p.clone() for name, p in trainer.model.state_dict().items()}
    report = trainer.step(Feed(source, trainer).take(0))
    assert report.skipped
    assert all(torch.equal(p, before[name]) for name, p in trainer.model.state_dict().items())
    seen = []
    train(tiny(steps=2, skip_above=1e-9), source, tmp_path, watch=seen.append)
    assert seen[-1].skipped == 2


SHARED = """
import sys, torch
from wsdesc.learning import distributed
from wsdesc.learning.prefetch import Feed
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.sources import ScanPairs
from wsdesc.learning.trainer import Trainer

torch.set_num_threads(1)
clouds = torch.load({clouds!r}, weights_only=True)
with distributed.process_group() as (rank, processes):
    trainer = Trainer(TrainOptions.load({options!r}))
    feed = Feed(ScanPairs(clouds, [(0, 1), (1, 0)], seed=0), trainer, rank, processes)
    trainer.gradients(feed.take(0))
    distributed.average_gradients(trainer.model)
    if rank == 0:
        torch.save([p.grad for p in trainer.model.parameters()], {out!r})
"""


def test_two_processes_have_the_gradients_of_one(source, tmp_path):
    tiny().save(tmp_path / "options.yaml")
    torch.save([c.contiguous() for c in source.clouds], tmp_path / "clouds.pt")
    program = tmp_path / "shared.py"
    program.write_text(
        SHARED.format(
            clouds=str(tmp_path / "clouds.pt"),
            options=str(tmp_path / "options.yaml"),
            out=str(tmp_path / "gradients.pt"),
        )
    )
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(program),
    ]
    subprocess.run(
        command, check=True, capture_output=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    shared = torch.load(tmp_path / "gradients.pt", weights_only=True)
    trainer = Trainer(tiny(pairs_per_step=2))
    trainer.gradients(Feed(source, trainer).take(0))
    for ours, theirs in zip(trainer.model.parameters(), shared, strict=True):
        scale = max(float(theirs.abs().max()), 1e-6)
        assert float((ours.grad - theirs).abs().max()) < 1e-3 * scale + 1e-6


def test_sources_depend_on_the_number_alone(source):
    again = ScanPairs(source.clouds, source.pairs, seed=0)
    for number in (5, 0, 3):
        assert all(torch.equal(a, b) for a, b in zip(source.pair(number), again.pair(number), strict=True))
    turns = [{id(source.pair(2 * turn + k)[0]) for k in range(2)} for turn in range(3)]
    assert all(len(turn) == 2 for turn in turns), "each pair comes once in a round"


def test_synthetic_rooms_come_in_any_order_the_same(tmp_path):
    forth, back = (RoomPairs(3, rooms=2, pairs_per_room=2, share=0.45, workers=1) for _ in range(2))
    try:
        first = [forth.pair(n) for n in (0, 1)]
        second = [back.pair(n) for n in (1, 0)][::-1]
        for a, b in zip(first, second, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
        assert all(len(cloud) > 500 for pair in first for cloud in pair)
    finally:
        forth.close()
        back.close()


def test_mixing_keeps_the_shares(source):
    class Named:
        def __init__(self, name):
            self.name = name

        def pair(self, number):
            return self.name

        def close(self):
            self.closed = True

    a, b = Named("a"), Named("b")
    mixed = MixedPairs([a, b], [0.25, 0.75], seed=0)
    drawn = [mixed.pair(n) for n in range(2000)]
    assert 0.22 < drawn.count("a") / 2000 < 0.28
    mixed.close()
    assert a.closed
    assert b.closed


def test_sparse_points_go_whatever_the_density():
    flat = torch.rand(6000, 3) * torch.tensor([2.0, 2.0, 0.0])
    stray = torch.tensor([[10.0, 10.0, 10.0], [12.0, 0.0, 3.0]])
    for cloud in (flat, flat[:2000]):
        kept = drop_sparse(torch.cat([cloud, stray]), 0.3, 0.45)
        assert 0.8 * len(cloud) < len(kept) <= len(cloud)
        assert float((kept - kept.mean(0)).norm(dim=1).max()) < 2


def test_chance_is_reproducible_and_rotations_are_proper():
    turns = torch.stack([random_rotation(generator_of(0, n)) for n in range(200)])
    assert torch.equal(turns[7], random_rotation(generator_of(0, 7)))
    assert torch.allclose(turns.mT @ turns, torch.eye(3).expand(200, 3, 3), atol=1e-6)
    assert torch.allclose(torch.linalg.det(turns), torch.ones(200), atol=1e-6)
    assert float(turns.mean(0).abs().max()) < 0.15, "all directions alike"


def test_presets_are_the_papers():
    indoor, objects = preset("indoor"), preset("objects")
    assert (indoor.steps, indoor.keypoints, indoor.descriptor.support_start) == (16_000, 512, 1.5)
    assert (objects.steps, objects.keypoints, objects.descriptor.support_range) == (20_000, 128, (0.15, 0.75))
    assert (indoor.learning_rate, indoor.support_weight_decay, indoor.clip) == (1e-3, 0.002, 0.5)
    with pytest.raises(WSDescError, match="indoor"):
        preset("outdoor")
    assert set(PRESETS) >= {"indoor", "objects", "small"}


def test_options_say_what_is_wrong(tmp_path):
    path = tmp_path / "options.yaml"
    path.write_text("loss:\n  lamda_o: 1\n")
    with pytest.raises(WSDescError, match=r"options\.yaml.*loss\.lamda_o.*lambda_o"):
        TrainOptions.load(path)
    path.write_text("steps: -3\n")
    with pytest.raises(WSDescError, match="steps"):
        TrainOptions.load(path)
    path.write_text("[1, 2]")
    with pytest.raises(WSDescError, match="names and values"):
        TrainOptions.load(path)
    path.write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(WSDescError, match="YAML"):
        TrainOptions.load(path)
