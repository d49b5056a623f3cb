"""Several processes share a training."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from tiny_training import tiny
from wsdesc.learning import distributed
from wsdesc.learning.prefetch import Prefetcher
from wsdesc.learning.trainer import Trainer

SHARED_PROGRAM = """
import torch
from wsdesc.learning import distributed
from wsdesc.learning.prefetch import Prefetcher
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.sources import ScanPairs
from wsdesc.learning.trainer import Trainer

torch.set_num_threads(1)
clouds = torch.load({clouds!r}, weights_only=True)
with distributed.process_group() as (rank, processes):
    trainer = Trainer(TrainOptions.load({options!r}))
    prefetcher = Prefetcher(ScanPairs(clouds, [(0, 1), (1, 0)], seed=0), trainer, rank, processes)
    trainer.gradients(prefetcher.take(0))
    distributed.average_gradients(trainer.model)
    if rank == 0:
        torch.save([p.grad for p in trainer.model.parameters()], {out!r})
"""


@pytest.mark.slow
def test_two_processes_have_the_gradients_of_one(source, tmp_path):
    tiny().save(tmp_path / "options.yaml")
    torch.save([c.contiguous() for c in source.clouds], tmp_path / "clouds.pt")
    program = tmp_path / "shared.py"
    program.write_text(
        SHARED_PROGRAM.format(
            clouds=str(tmp_path / "clouds.pt"),
            options=str(tmp_path / "options.yaml"),
            out=str(tmp_path / "gradients.pt"),
        )
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*torchrun, str(program)], check=True, capture_output=True, timeout=240, env=environment)
    shared = torch.load(tmp_path / "gradients.pt", weights_only=True)
    trainer = Trainer(tiny(pairs_per_step=2))
    trainer.gradients(Prefetcher(source, trainer).take(0))
    for parameter, gradient in zip(trainer.model.parameters(), shared, strict=True):
        scale = max(float(gradient.abs().max()), 1e-6)
        assert float((parameter.grad - gradient).abs().max()) < 1e-3 * scale + 1e-6


def test_ranks_take_different_pairs(source):
    trainer = Trainer(tiny())
    alone = Prefetcher(source, Trainer(tiny(pairs_per_step=2))).take(0)
    shared = [Prefetcher(source, trainer, rank, processes=2).take(0)[0] for rank in (0, 1)]
    for a, b in zip(alone, shared, strict=True):
        assert torch.equal(a.p.keypoints, b.p.keypoints)


def test_one_process_without_torchrun(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert distributed.is_main_process()
    with distributed.process_group() as group:
        assert group == (0, 1)
    monkeypatch.setenv("RANK", "1")
    assert not distributed.is_main_process()
