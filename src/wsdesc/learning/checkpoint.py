"""Save and restore the state of a training in one safetensors file. No pickle is loaded."""

from __future__ import annotations

import json
from pathlib import Path

from wsdesc.core.checkpoint import optimizer_tensors, read_checkpoint, restore_optimizer, tensors_below
from wsdesc.core.errors import FileFormatError
from wsdesc.descriptor.pretrained import save_tensors
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
    saved = read_checkpoint(path, _HEADER, trainer.options, _MAY_CHANGE)
    try:
        trainer.model.load_state_dict(tensors_below("model", saved.tensors))
        for name, optimizer in trainer.optimizers.items():
            restore_optimizer(optimizer, tensors_below(name, saved.tensors))
    except (RuntimeError, KeyError, ValueError) as error:
        raise FileFormatError(f"{path}: does not fit this training: {error}") from error
    return saved.step
