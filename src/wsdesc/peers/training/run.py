"""Train a peer in a folder: steps, log, checkpoints and the final weights.

Files of a run's folder:

- `options.yaml`: options of the training, read again by a resumed run,
- `log.jsonl`: loss and speed, one JSON object per line,
- `checkpoint.safetensors`: network, optimizer, step and time,
- `<peer>.safetensors`: the trained weights; `--peer-weights RUN_FOLDER` uses this file.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from wsdesc.core.atomic import append_line, atomic_write
from wsdesc.core.checkpoint import optimizer_tensors, read_checkpoint, restore_optimizer, tensors_below
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.folders import make_folder, without_leftovers
from wsdesc.core.rng import generator_of
from wsdesc.descriptor.pretrained import save_tensors
from wsdesc.peers.base import PeerUnavailableError
from wsdesc.peers.training.options import PeerTrainOptions
from wsdesc.peers.training.task import PeerTask

OPTIONS_FILE, LOG_FILE, CHECKPOINT_FILE = "options.yaml", "log.jsonl", "checkpoint.safetensors"
WEIGHTS_HEADER = "wsdesc-peer"  # key of the configuration in the header of the weights

_CHECKPOINT_HEADER = "wsdesc-peer-training"
_LOG_EVERY = 50  # steps; the loss is read from the device this often
_MAY_CHANGE = {"scans", "steps", "precision", "checkpoint_minutes"}  # options of a resumed training


@dataclass(frozen=True)
class PeerProgress:
    """The state of a peer's training, after every 50th step and the last one."""

    step: int  # finished steps
    share: float  # finished share of the training, 0 … 1, of the steps or of the time
    loss: float  # mean since the last report
    samples_per_second: float  # since the start of this process
    seconds: float  # training time, including the time before a resumption


@dataclass(frozen=True)
class PeerRun:
    """The result of a training: its folder, weights and last figures."""

    folder: Path
    peer: str
    options: PeerTrainOptions
    weights: Path
    last: PeerProgress | None  # None if a finished training was resumed

    def summary(self) -> str:
        """Describe the run in two lines."""
        lines = [f"weights: {self.weights} (use: --peer {self.peer} --peer-weights {self.folder})"]
        if self.last is not None:
            lines.append(
                f"{self.last.step} steps, {self.last.samples_per_second:.0f} samples/s, "
                f"loss {self.last.loss:.4g}, {self.last.seconds:.0f} s"
            )
        return "\n".join(lines)


OptionsT = TypeVar("OptionsT", bound=PeerTrainOptions)


def trained_options(path: Path, kind: type[OptionsT]) -> OptionsT:
    """Read the options of a training from the header of its weights.

    Raises:
        PeerUnavailableError: The file was not written by a training of this peer.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            header = json.loads((file.metadata() or {})[WEIGHTS_HEADER])
        return kind.read(header["options"])
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, InputError) as error:
        raise PeerUnavailableError(f"{path}: its header has no options of a training ({error})") from error


PeerStepHook = Callable[[PeerProgress], None]


def run_peer_training(
    peer: str,
    make_task: Callable[[], PeerTask],
    options: PeerTrainOptions,
    out: Path,
    *,
    minutes: float | None = None,
    resume: bool = False,
    on_step: PeerStepHook = lambda progress: None,
) -> PeerRun:
    """Train in the folder `out`.

    The training ends after `options.steps` steps or `minutes`, whichever comes first; the learning rate falls
    to 0 towards that end. Without `minutes`, a resumed run on the CPU gives the same weights, bit for bit, as
    an uninterrupted one.

    Raises:
        InputError: `out` has a checkpoint and `resume` is False, the checkpoint has other options, or the
            loss is not finite.
        FileFormatError: The folder cannot be written or read.
    """
    checkpoint = out / CHECKPOINT_FILE
    with without_leftovers(out):
        make_folder(out)
        if checkpoint.exists() and not resume:
            raise InputError(
                f"{out}: contains a training; continue it with --resume (resume=True) or choose another "
                "folder"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            task = make_task()
    training = _Training(task, options, 60 * minutes if minutes is not None else math.inf)
    if checkpoint.exists():
        training.load(checkpoint)
    options.save(out / OPTIONS_FILE)
    _truncate_log(out / LOG_FILE, training.step)
    last = training.run(out, on_step)
    weights = out / f"{peer}.safetensors"
    tensors = {k: t.half() if t.dim() > 1 else t for k, t in task.inference_state().items()}
    configuration = {
        "peer": peer,
        "trained on": task.source,
        "steps": training.step,
        "seconds": round(training.seconds, 1),
        "options": options.model_dump(mode="json", exclude={"scans"}),
    }
    save_tensors(weights, tensors, {WEIGHTS_HEADER: json.dumps(configuration)})
    return PeerRun(out, peer, options, weights, last)


class _Training:
    """A task, its optimizer and its progress."""

    def __init__(self, task: PeerTask, options: PeerTrainOptions, budget: float) -> None:
        self.task, self.options, self.budget = task, options, budget
        self.optimizer = torch.optim.Adam(
            [p for p in task.network.parameters() if p.requires_grad],
            options.learning_rate,
            weight_decay=options.weight_decay,
            fused=task.device.type == "cuda",
        )
        self.step = 0
        self.seconds = 0.0

    @property
    def share(self) -> float:
        """Finished share of the training."""
        return min(1.0, max(self.step / self.options.steps, self.seconds / self.budget))

    def run(self, out: Path, on_step: PeerStepHook) -> PeerProgress | None:
        """Run the remaining steps; return the last report."""
        start = saved = time.monotonic()
        first, before = self.step, self.seconds
        total, counted = torch.zeros((), device=self.task.device), 0
        progress = None
        while self.share < 1.0:
            total += self._step()
            counted += 1
            now = time.monotonic()
            self.seconds = before + now - start
            save = self.share == 1.0 or now - saved > 60 * self.options.checkpoint_minutes
            if not (save or self.step % _LOG_EVERY == 0):
                continue
            loss = float(total) / counted
            if not math.isfinite(loss):
                raise InputError(
                    f"the loss is not finite at step {self.step}: lower learning_rate"
                    f" ({self.options.learning_rate:g}), or train with precision float32"
                )
            self.seconds = before + time.monotonic() - start
            speed = (self.step - first) * self.options.batch / max(time.monotonic() - start, 1e-9)
            progress = PeerProgress(self.step, self.share, loss, speed, self.seconds)
            row = {"step": self.step, "loss": loss, "samples_per_second": speed, "seconds": self.seconds}
            append_line(out / LOG_FILE, json.dumps(row))
            on_step(progress)
            total.zero_()
            counted = 0
            if save:
                self.save(out / CHECKPOINT_FILE)
                saved = time.monotonic()
        return progress

    def _step(self) -> torch.Tensor:
        """Run one step; return its loss () on the device."""
        o, device = self.options, self.task.device
        for group in self.optimizer.param_groups:
            group["lr"] = o.learning_rate * 0.5 * (1 + math.cos(math.pi * self.share))
        seed = generator_of(o.seed, self.step).initial_seed()
        generator = torch.Generator(device).manual_seed(seed)
        self.task.network.train()
        with torch.no_grad():
            batch = self.task.batch(generator)
        bf16 = device.type == "cuda" and o.precision == "bf16"
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            loss = self.task.loss(batch, generator)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.detach().float()

    def save(self, path: Path) -> None:
        tensors = {f"network.{name}": t for name, t in self.task.network.state_dict().items()}
        tensors |= {f"optimizer.{name}": t for name, t in optimizer_tensors(self.optimizer).items()}
        header = {
            "step": self.step,
            "seconds": self.seconds,
            "options": self.options.model_dump(mode="json"),
        }
        save_tensors(path, tensors, {_CHECKPOINT_HEADER: json.dumps(header)})

    def load(self, path: Path) -> None:
        """Restore a checkpoint.

        Raises:
            FileFormatError: The file is no checkpoint or does not fit the network.
            InputError: It was saved with other options.
        """
        saved = read_checkpoint(path, _CHECKPOINT_HEADER, self.options, _MAY_CHANGE)
        try:
            self.task.network.load_state_dict(tensors_below("network", saved.tensors))
            restore_optimizer(self.optimizer, tensors_below("optimizer", saved.tensors))
            self.step, self.seconds = saved.step, float(saved.header["seconds"])
        except (RuntimeError, KeyError, ValueError, TypeError) as error:
            raise FileFormatError(f"{path}: does not fit this training: {error}") from error


def _truncate_log(path: Path, step: int) -> None:
    """Remove rows after a step, which a resumed training writes again, and lines that were cut off."""
    rows = []
    with suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                rows += [line] if json.loads(line)["step"] <= step else []
    with atomic_write(path) as temporary:
        temporary.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
