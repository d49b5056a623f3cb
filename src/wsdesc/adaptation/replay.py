"""Synthetic scenes that are replayed during an adaptation, to keep the quality on other scans.

Half of the scenes are rooms, the others are sites of all kinds, seen by all sensors. Separate processes make
them while the scans are reconstructed. Each scene is a file, so that a resumed adaptation finds it again.

    python -m wsdesc.adaptation.replay FOLDER SEED COUNT FIRST STEP
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from threading import Lock, Thread

import torch
from torch import Tensor

from wsdesc.core.folders import make_folder
from wsdesc.core.rng import generator_of
from wsdesc.descriptor.pretrained import save_tensors
from wsdesc.learning.synthetic_scenes import SceneScan, make_scene

_CHECKED_SHARE, _MIN_CHECKED = 1 / 6, 6  # last scenes of the pool, which only the check uses
_POLL = 0.2  # seconds
_THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class ReplayPool:
    """Scenes in a folder, made by processes of their own.

    Args:
        folder: Folder of the files.
        seed: Seed of the scenes.
        count: Number of scenes.
        workers: Number of processes; 0 makes each scene when it is needed.
    """

    def __init__(self, folder: Path, seed: int, count: int, workers: int = 0) -> None:
        self.folder, self.seed, self.count, self.workers = folder, seed, count, workers
        self._trained = max(1, count - max(_MIN_CHECKED, round(_CHECKED_SHARE * count)))  # first scenes
        self._processes: list[subprocess.Popen[bytes]] = []
        self._scenes: dict[int, list[SceneScan]] = {}  # one object per cloud: trainers cache by identity
        self._lock = Lock()

    def start(self) -> None:
        """Start the processes that make the missing scenes."""
        make_folder(self.folder)
        if all(self._path(index).is_file() for index in range(self.count)):
            return
        environment = os.environ | dict.fromkeys(_THREADS, "1") | {"CUDA_VISIBLE_DEVICES": ""}
        # A child started by `multiprocessing` would run the user's script again.
        paths = [str(Path(__file__).parents[2]), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        for first in range(self.workers):
            numbers = [self.seed, self.count, first, self.workers]
            command = [sys.executable, "-m", __name__, str(self.folder), *map(str, numbers)]
            quiet = subprocess.DEVNULL
            self._processes.append(
                subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)
            )

    def scene(self, index: int) -> list[SceneScan]:
        """Return a scene; wait for the process that makes it."""
        with self._lock:  # threads prepare several steps at once
            if index not in self._scenes:
                self._scenes[index] = self._load(index)
            return self._scenes[index]

    def pair(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw two successive scans of a scene that is not for the check."""
        index = int(torch.randint(self._trained, (1,), generator=generator))
        scans = self.scene(index)
        k = int(torch.randint(len(scans) - 1, (1,), generator=generator))
        return scans[k].points, scans[k + 1].points

    def checked_pairs(self) -> list[tuple[SceneScan, SceneScan]]:
        """Return the pairs of the scenes that only the check uses."""
        scenes = [self.scene(index) for index in range(self._trained, self.count)]
        return [(p, q) for scans in scenes for p, q in pairwise(scans)]

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
        self._processes = []

    def _path(self, index: int) -> Path:
        return _scene_path(self.folder, index)

    def _load(self, index: int) -> list[SceneScan]:
        process = self._processes[index % self.workers] if self._processes else None
        while process is not None and process.poll() is None and not self._path(index).is_file():
            time.sleep(_POLL)
        if not self._path(index).is_file():
            save_scene(self._path(index), make_scene(self.seed, index))
        return load_scene(self._path(index))


def _scene_path(folder: Path, index: int) -> Path:
    return folder / f"scene_{index:03d}.safetensors"


def save_scene(path: Path, scans: list[SceneScan]) -> None:
    """Write a scene as safetensors, which no command takes for a scan."""
    tensors = {f"points_{k}": scan.points for k, scan in enumerate(scans)}
    tensors |= {f"pose_{k}": torch.from_numpy(scan.T_world_local) for k, scan in enumerate(scans)}
    save_tensors(path, tensors, {})


def load_scene(path: Path) -> list[SceneScan]:
    """Read a scene that `save_scene` wrote."""
    from safetensors.torch import load_file

    tensors = load_file(str(path))
    return [SceneScan(tensors[f"points_{k}"], tensors[f"pose_{k}"].numpy()) for k in range(len(tensors) // 2)]


def replay_generator(seed: int, index: int) -> torch.Generator:
    """Return the generator that draws the replayed pair of a step."""
    return generator_of(seed, 22, index)


def main(arguments: list[str]) -> None:
    """Make every STEP-th scene from FIRST on, until the parent process closes the standard input."""

    def wait() -> None:
        sys.stdin.buffer.read()  # ends when the parent ends, also when it is killed
        os._exit(1)

    Thread(target=wait, daemon=True).start()
    torch.set_num_threads(1)
    folder = Path(arguments[0])
    seed, count, first, step = map(int, arguments[1:])
    for index in range(first, count, step):
        path = _scene_path(folder, index)
        if not path.is_file():
            save_scene(path, make_scene(seed, index))


if __name__ == "__main__":
    main(sys.argv[1:])
