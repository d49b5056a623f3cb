"""Tiny trainings, benchmarks and reconstructions for the fault injection of `benchmarks/faults.py`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np

from wsdesc import register, write_points
from wsdesc.datasets.synthetic import room_scans
from wsdesc.datasets.threedmatch import LogEntry, write_log
from wsdesc.learning.options import TrainOptions

_ROOM = 3  # seed


def prepare(folder: Path) -> None:
    """Write scans of a synthetic room, their ground truth, and the options of a tiny training."""
    scans = room_scans(_ROOM, 3, resolution=0.08)
    scene = folder / "data" / "room"
    scene.mkdir(parents=True)
    for number, scan in enumerate(scans):
        write_points(scene / f"cloud_bin_{number}.ply", scan.points)
    poses = [scan.T_world_scan for scan in scans]
    truth = [LogEntry(i, j, 3, np.linalg.inv(poses[i]) @ poses[j]) for i, j in combinations(range(3), 2)]
    (folder / "data" / "room-evaluation").mkdir()
    write_log(folder / "data" / "room-evaluation" / "gt.log", truth)
    TrainOptions.read(
        {
            "descriptor": {"width": 0.0625, "resolution": 8, "support_start": 1.2},
            "data": {"unit": 1.0, "min_coverage": 0.0},
            "steps": 12,
            "keypoints": 24,
            "checkpoint_minutes": 1e-4,  # after each step
        }
    ).save(folder / "tiny.yaml")


def warm_up(folder: Path) -> None:
    """Load libraries and compile kernels in this process, so that forked commands start at once.

    No gradient is computed: torch refuses to compute another one in a fork.
    """
    import matplotlib.pyplot  # noqa: F401

    import wsdesc.cli.app
    import wsdesc.evaluation.own_pairs
    import wsdesc.reconstruction.pipeline  # noqa: F401
    from wsdesc.core.rng import generator_of
    from wsdesc.learning.data import load_training_data
    from wsdesc.learning.trainer import Trainer

    scans = sorted((folder / "data" / "room").glob("*.ply"))
    for solver in ("consensus", "ransac"):
        register(scans[0], scans[1], keypoints=(50,), solver=solver)
    trainer = Trainer(TrainOptions.load(folder / "tiny.yaml"))
    pairs = load_training_data([folder / "data" / "room"], trainer.options).source
    trainer.model.voxels(trainer.prepare(*pairs.pair(0), generator_of(0, 0, 0)).p)


def _train(folder: Path, out: Path) -> list[str]:
    scans = folder / "data" / "room"
    return ["train", str(scans), "--config", str(folder / "tiny.yaml"), "--out", str(out), "--resume"]


def _benchmark(folder: Path, out: Path) -> list[str]:
    options = ["--unit", "1", "--voxel", "0.08", "--keypoints", "60"]
    return ["benchmark", "pairs", str(folder / "data"), "--model", "indoor-fast", "--out", str(out), *options]


def _reconstruct(folder: Path, out: Path) -> list[str]:
    return ["reconstruct", str(folder / "data" / "room"), "--out", str(out), "--keypoints", "100"]


COMMANDS: dict[str, Callable[[Path, Path], list[str]]] = {
    "train": _train,
    "benchmark": _benchmark,
    "reconstruct": _reconstruct,
}
