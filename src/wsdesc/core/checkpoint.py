"""The state of an optimizer as tensors by name, so that safetensors files can hold it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer


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


def below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with `prefix.`, without it."""
    return {k.removeprefix(f"{prefix}."): t for k, t in tensors.items() if k.startswith(f"{prefix}.")}
