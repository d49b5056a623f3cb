"""Checkpoints: complete, never half written, refused if damaged."""

from __future__ import annotations

import pytest
import torch

from tiny_training import tiny
from wsdesc import WSDescError
from wsdesc.learning.checkpoint import load_checkpoint, save_checkpoint
from wsdesc.learning.trainer import Trainer


def test_optimizer_state_has_the_memory_layout_of_the_weights(tmp_path):
    """Fused CUDA steps refuse other layouts: convolutions are channels-last, files are not."""
    first, restored = Trainer(tiny()), Trainer(tiny())
    for parameter in first.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    first._update(update=True)
    save_checkpoint(tmp_path / "state", first, 1)
    load_checkpoint(tmp_path / "state", restored)
    for name, optimizer in restored.optimizers.items():
        before = first.optimizers[name]
        for p, q in zip(optimizer.param_groups[0]["params"], before.param_groups[0]["params"], strict=True):
            assert optimizer.state[p]["exp_avg"].stride() == p.stride()
            assert all(torch.equal(optimizer.state[p][key], before.state[q][key]) for key in before.state[q])


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    trainer = Trainer(tiny())
    for content in (b"", b"nonsense" * 100):
        path.write_bytes(content)
        with pytest.raises(WSDescError, match=r"checkpoint\.safetensors"):
            load_checkpoint(path, trainer)
    torch.save({"step": 1}, path)
    with pytest.raises(WSDescError, match=r"checkpoint\.safetensors"):
        load_checkpoint(path, trainer)


def test_full_disk_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    trainer = Trainer(tiny())
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, trainer, 1)
    before = path.read_bytes()

    def no_space(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", no_space)
    with pytest.raises(WSDescError, match="No space left"):
        save_checkpoint(path, trainer, 2)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
