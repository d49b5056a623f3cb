"""Which implementation runs: plain torch everywhere, numba kernels on the CPU, triton kernels on CUDA."""

from __future__ import annotations

import ctypes
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from wsdesc.core.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BACKENDS = ("reference", "numba", "triton")


def check_device(name: str) -> None:
    """Refuse an unknown device, and CUDA without a driver, before torch is imported.

    Raises:
        InputError: The name is not auto, cpu, cuda or cuda:N, or no GPU driver is installed.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise InputError(f"unknown device {name!r}: choose cpu, cuda, or auto")
    if name.startswith("cuda") and not _has_gpu_driver():
        raise InputError("no CUDA device on this machine: choose device cpu")


def _has_gpu_driver() -> bool:
    """Return False only if no driver of NVIDIA or AMD (which torch also calls cuda) is installed."""
    if Path("/dev/kfd").exists():
        return True
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def choose_device(name: str) -> str:
    """Resolve "auto", and refuse a device that is unknown or absent."""
    check_device(name)
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda"):
        index = torch.device(name).index or 0
        if index >= torch.cuda.device_count():
            raise InputError(f"no device {name} on this machine: choose device cpu")
    return name


@cache
def has_triton() -> bool:
    """Whether triton kernels can run here: the package is there and a CUDA device of it too."""
    import torch

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
