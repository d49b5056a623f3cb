"""Train peers on the same scans as the descriptors of this package; `wsdesc train --peer` on the shell.

from wsdesc.peers import descriptor
from wsdesc.peers.training import train_peer

train_peer("ppf-foldnet", "scans/", "run", minutes=10)
features = descriptor("ppf-foldnet", weights="run")(points, keypoints)
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch

from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.core.file_parts import as_path, training_paths
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.peers.training.clouds import TrainingClouds, read_clouds
from wsdesc.peers.training.options import PeerTrainOptions
from wsdesc.peers.training.run import (
    CHECKPOINT_FILE,
    OPTIONS_FILE,
    PeerProgress,
    PeerRun,
    PeerStepHook,
    run_peer_training,
)
from wsdesc.peers.training.task import PeerTask

__all__ = [
    "CHECKPOINT_FILE",
    "PeerProgress",
    "PeerRun",
    "PeerStepHook",
    "PeerTask",
    "PeerTrainOptions",
    "TrainingClouds",
    "read_clouds",
    "task_of",
    "train_peer",
    "trainable",
]

_TASKS = {  # peer: module of wsdesc.peers and class of its PeerTask
    "ppf-foldnet": ("ppf_foldnet", "PpfFoldNetTask"),
    "3dmatch": ("threedmatch", "ThreeDMatchTask"),
    "dcp": ("pose_training", "DcpTask"),
    "rpmnet": ("pose_training", "RpmNetTask"),
    "deepgmr": ("pose_training", "DeepGmrTask"),
    "arl": ("pose_training", "ArlTask"),
    "prnet": ("pose_training", "PrNetTask"),
    "omnet": ("pose_training", "OmNetTask"),
    "capsulenet": ("capsulenet", "CapsuleNetTask"),
    "s2cnn-512": ("s2cnn", "S2CnnTask"),
    "s2cnn-32": ("s2cnn", "S2Cnn32Task"),
}


def trainable() -> list[str]:
    """List the names of the peers that can be trained here."""
    return list(_TASKS)


def task_of(peer: str) -> type[PeerTask]:
    """Return the task class of a peer.

    Raises:
        InputError: No trainable peer has this name.
    """
    if not isinstance(peer, str) or peer not in _TASKS:
        raise InputError(f"peer {peer!r} cannot be trained: choose {', '.join(_TASKS)}")
    module, name = _TASKS[peer]
    return cast(type[PeerTask], getattr(import_module(f"wsdesc.peers.{module}"), name))


def train_peer(
    peer: str,
    scans: str | Path | Sequence[str | Path] | None = None,
    out: str | Path | None = None,
    *,
    options: PeerTrainOptions | str | Path | None = None,
    steps: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    minutes: float | None = None,
    resume: bool = False,
    progress: ProgressHook = no_progress,
    on_step: PeerStepHook = lambda progress: None,
) -> PeerRun:
    """Train a peer on scans. Poses beside the scans are read only for `3dmatch`, a supervised peer.

    The folder `out` receives the options, a log, checkpoints and the weights as `<peer>.safetensors`.
    `peers.descriptor(peer, weights=out)` and `--peer-weights` accept the folder. Arguments that are None
    keep the value of `options`.

    Args:
        peer: Name of the peer; `trainable()` lists them.
        scans: Folders or files of scans, or of ModelNet40.
        out: Folder of the run; by default runs/<peer>.
        options: Options of this peer (`task_of(peer).options_type`) or a YAML file of them.
        steps: Number of training steps.
        seed: Seed of all random choices.
        device: "cpu", "cuda" or "auto".
        minutes: Time after which the training ends, before `steps`. The learning rate falls to 0 until then.
        resume: Continue the run in `out` with its own options and scans; arguments given here replace them.
        progress: Hook for reading the scans.
        on_step: Called with a `PeerProgress` after every 50th step and after the last one.

    Returns:
        The finished run, with the path of the weights.

    Raises:
        InputError: An option is invalid, no scan is large enough, the folder contains another training, or
            the loss is not finite.
        FileFormatError: A file cannot be read or written.
    """
    task_type = task_of(peer)
    if minutes is not None and not minutes > 0:
        raise InputError(f"minutes must be above 0, not {minutes:g}")
    out = Path("runs") / peer if out is None else as_path(out, "out")
    changes = {"scans": tuple(map(str, training_paths(scans))) or None, "steps": steps, "seed": seed}
    resolved = _options(task_type, options, out if resume else None, changes)
    if not resolved.scans:
        raise InputError("no scans were given: name folders or files of scans")
    chosen = torch.device(choose_device(device))

    def make_task() -> PeerTask:
        clouds = read_clouds(resolved.scans, resolved.unit, poses=task_type.needs_poses, progress=progress)
        return task_type(resolved, clouds, chosen)

    return run_peer_training(peer, make_task, resolved, out, minutes=minutes, resume=resume, on_step=on_step)


def _options(
    task_type: type[PeerTask],
    options: PeerTrainOptions | str | Path | None,
    resumed: Path | None,
    changes: dict[str, Any],
) -> PeerTrainOptions:
    """Combine options, a YAML file, or those of a run to resume with changes; None keeps a value."""
    given = {name: value for name, value in changes.items() if value is not None}
    kind = task_type.options_type
    if options is None and resumed is not None:
        options = resumed / OPTIONS_FILE
        if not options.is_file():
            raise InputError(f"{resumed}: no training to resume, {OPTIONS_FILE} is missing")
    if options is None:
        return kind.read(given)
    if isinstance(options, PeerTrainOptions):
        if not isinstance(options, kind):
            raise InputError(f"options must be {kind.__name__}, not {type(options).__name__}")
        return kind.read({**options.model_dump(), **given})
    return kind.load(options, **given)
