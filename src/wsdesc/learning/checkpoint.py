"""The state of a training on disk: one safetensors file, whole or absent. No pickle is ever loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.descriptor.pretrained import save_tensors
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.trainer import Trainer

_HEADER = "wsdesc-training"


def save_checkpoint(path: Path, trainer: Trainer, step: int) -> None:
    """Write weights, both optimisers and the number of finished steps."""
    tensors = {f"model.{name}": tensor for name, tensor in trainer.model.state_dict().items()}
    for which, optimizer in trainer.optimizers.items():
        for number, state in optimizer.state_dict()["state"].items():
            tensors |= {f"{which}.{number}.{name}": torch.as_tensor(value) for name, value in state.items()}
    header = json.dumps({"step": step, "options": trainer.options.model_dump(mode="json")})
    save_tensors(path, tensors, {_HEADER: header})


def load_checkpoint(path: Path, trainer: Trainer) -> int:
    """Bring `trainer` to the state at `path`; returns how many steps it has behind it.

    A checkpoint of another configuration is refused, naming what differs; more steps may be asked for.
    """
    header, tensors = _read(path)
    _compare(path, header["options"], trainer.options)
    try:
        trainer.model.load_state_dict(_below("model", tensors))
        for which, optimizer in trainer.optimizers.items():
            _restore(optimizer, _below(which, tensors))
    except (RuntimeError, KeyError, ValueError) as error:
        raise FileFormatError(f"{path}: does not fit this training: {error}") from error
    return int(header["step"])


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            header = json.loads((file.metadata() or {})[_HEADER])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not (isinstance(header["options"], dict) and isinstance(header["step"], int)):
            raise ValueError("its header does not say options and steps")
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise FileFormatError(f"{path}: not a checkpoint of a training ({error})") from error
    return header, tensors


def _compare(path: Path, saved: dict[str, Any], options: TrainOptions) -> None:
    now = options.model_dump(mode="json")
    may_change = {"steps", "precision", "compile", "checkpoint_minutes", "validate_every"}
    differ = [key for key in now if key not in may_change and saved.get(key) != now[key]]
    if differ:
        raise InputError(f"{path} was made with another configuration: {', '.join(differ)} differ")


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(f"{prefix}."): t for k, t in tensors.items() if k.startswith(f"{prefix}.")}


def _restore(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    whole = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, key = name.split(".", 1)
        state.setdefault(int(number), {})[key] = tensor
    optimizer.load_state_dict({**whole, "state": state})
    for parameter, known in optimizer.state.items():  # fused steps on CUDA need both in the same order
        known |= {k: torch.empty_like(parameter).copy_(v) for k, v in known.items() if v.ndim}
