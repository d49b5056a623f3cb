"""Which implementation runs: plain torch everywhere, numba kernels on the CPU, triton kernels on CUDA."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from wsdesc.core.errors import InputError

BACKENDS = ("reference", "numba", "triton")


def choose_device(name: str) -> str:
    """Resolve "auto", and refuse a device that is not there."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise InputError(f"unknown device {name!r}: choose cpu, cuda, or auto") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError("there is no CUDA device here: choose --device cpu")
    return name


@cache
def has_triton() -> bool:
    """Whether triton kernels can run here: the package is there and a CUDA device of it too."""
    return torch.cuda.is_available() and find_spec("triton") is not None


def default_backend(device: torch.device) -> str:
    """What "auto" means for tensors on `device`."""
    if device.type == "cpu":
        return "numba"
    return "triton" if device.type == "cuda" and has_triton() else "reference"


def choose(backend: str, points: Tensor) -> str:
    """Resolve "auto" for `points` and refuse a backend that cannot work on their device."""
    if backend == "auto":
        return default_backend(points.device)
    if backend not in BACKENDS:
        raise InputError(f"unknown backend {backend!r}: choose auto, {', '.join(BACKENDS)}")
    if backend == "numba" and points.device.type != "cpu":
        raise InputError(f"the numba backend works on the CPU, but the points are on {points.device}")
    if backend == "triton" and not (points.device.type == "cuda" and has_triton()):
        raise InputError(
            f"the triton backend needs CUDA and triton; the points are on {points.device}, "
            f"triton {'is' if find_spec('triton') else 'is not'} installed"
        )
    return backend
