"""Save and restore the state of a training in one safetensors file. No pickle is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.optimizer_state import below, optimizer_tensors, restore_optimizer
from wsdesc.descriptor.pretrained import save_tensors
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.trainer import Trainer

_HEADER = "wsdesc-training"
_MAY_CHANGE = {"scans", "steps", "precision", "compile", "checkpoint_minutes", "validate_every"}


def save_checkpoint(path: Path, trainer: Trainer, step: int) -> None:
    """Write weights, both optimizers and the number of finished steps."""
    tensors = {f"model.{name}": tensor for name, tensor in trainer.model.state_dict().items()}
    for name, optimizer in trainer.optimizers.items():
        tensors |= {f"{name}.{key}": tensor for key, tensor in optimizer_tensors(optimizer).items()}
    header = json.dumps({"step": step, "options": trainer.options.model_dump(mode="json")})
    save_tensors(path, tensors, {_HEADER: header})


def load_checkpoint(path: Path, trainer: Trainer) -> int:
    """Restore the state of a training.

    Returns:
        The number of finished steps.

    Raises:
        FileFormatError: The file is no checkpoint or does not fit the model.
        InputError: It was saved with other options; the number of steps may differ.
    """
    header, tensors = _read(path)
    _check_options(path, header["options"], trainer.options)
    try:
        trainer.model.load_state_dict(below("model", tensors))
        for name, optimizer in trainer.optimizers.items():
            restore_optimizer(optimizer, below(name, tensors))
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
