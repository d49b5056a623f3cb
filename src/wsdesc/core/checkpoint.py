"""Checkpoints of trainings: safetensors files with options and the number of steps in the header."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.options import Options


class Checkpoint(NamedTuple):
    """Content of a checkpoint."""

    step: int  # finished steps
    header: dict[str, Any]  # with step and options
    tensors: dict[str, Tensor]  # of the network and of the optimizers


def read_checkpoint(path: Path, key: str, options: Options, may_change: Collection[str]) -> Checkpoint:
    """Read a checkpoint, and compare its options with those of the training that continues.

    Args:
        path: The file.
        key: Key of the header that the training wrote.
        options: Options of the training.
        may_change: Names of the options that may differ.

    Raises:
        FileFormatError: The file is no checkpoint of this kind of training.
        InputError: It was saved with other options.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            header = json.loads((file.metadata() or {})[key])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        step, saved = header["step"], header["options"]
        if not (isinstance(saved, dict) and isinstance(step, int)):
            raise ValueError("its header lacks options or step")
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise FileFormatError(f"{path}: not a training checkpoint ({error})") from error
    current = options.model_dump(mode="json")
    differ = [name for name in current if name not in may_change and saved.get(name) != current[name]]
    if differ:
        raise InputError(
            f"{path}: saved with other options: {', '.join(differ)} differ; continue with the same options, "
            "or start a new training in another folder"
        )
    return Checkpoint(step, header, tensors)


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the state of all parameters, under the names `<index of the parameter>.<key>`."""
    return {
        f"{index}.{key}": torch.as_tensor(value)
        for index, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
    }


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load what `optimizer_tensors` returned into an optimizer of the same parameters.

    Raises:
        RuntimeError, KeyError or ValueError: The tensors belong to another optimizer.
    """
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for parameter, values in optimizer.state.items():  # fused CUDA steps need the parameters' memory layout
        values |= {k: torch.empty_like(parameter).copy_(v) for k, v in values.items() if v.ndim}


def tensors_below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with `prefix.`, under the rest of their names."""
    return {k.removeprefix(f"{prefix}."): t for k, t in tensors.items() if k.startswith(f"{prefix}.")}
