"""Save and restore the state of a training in one safetensors file. No pickle is loaded."""

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
_MAY_CHANGE = {"scans", "steps", "precision", "compile", "checkpoint_minutes", "validate_every"}


def save_checkpoint(path: Path, trainer: Trainer, step: int) -> None:
    """Write weights, both optimizers and the number of finished steps."""
    tensors = {f"model.{name}": tensor for name, tensor in trainer.model.state_dict().items()}
    for name, optimizer in trainer.optimizers.items():
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"{name}.{index}.{key}": torch.as_tensor(value) for key, value in state.items()}
    header = json.dumps({"step": step, "options": trainer.options.model_dump(mode="json")})
    save_tensors(path, tensors, {_HEADER: header})


def load_checkpoint(path: Path, trainer: Trainer) -> int:
    """Restore the state of a training.

    Returns:
        The number of finished steps.

    Raises:
        FileFormatError: if the file is no checkpoint or does not fit the model.
        InputError: if it was saved with other options; the number of steps may differ.
    """
    header, tensors = _read(path)
    _check_options(path, header["options"], trainer.options)
    try:
        trainer.model.load_state_dict(_below("model", tensors))
        for name, optimizer in trainer.optimizers.items():
            _restore(optimizer, _below(name, tensors))
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
            raise ValueError("its header lacks options or step")
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise FileFormatError(f"{path}: not a training checkpoint ({error})") from error
    return header, tensors


def _check_options(path: Path, saved: dict[str, Any], options: TrainOptions) -> None:
    current = options.model_dump(mode="json")
    differ = [key for key in current if key not in _MAY_CHANGE and saved.get(key) != current[key]]
    if differ:
        raise InputError(f"{path}: saved with other options: {', '.join(differ)} differ")


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(f"{prefix}."): t for k, t in tensors.items() if k.startswith(f"{prefix}.")}


def _restore(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for parameter, values in optimizer.state.items():  # fused CUDA steps need the parameters' memory layout
        values |= {k: torch.empty_like(parameter).copy_(v) for k, v in values.items() if v.ndim}
