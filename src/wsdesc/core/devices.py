"""Choose the device and the backend: plain torch anywhere, numba kernels on the CPU, triton kernels on CUDA.

Torch is imported only by the functions that need it, so that a wrong device name is reported at once.
"""

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
    """Raise an error for an unknown device, or CUDA without a driver; torch is not imported.

    Raises:
        InputError: The name is not auto, cpu, cuda or cuda:N, or no GPU driver is installed.
    """
    if re.fullmatch(r"mps(:\d+)?", name):  # the descriptor needs float64, which Apple's GPUs lack
        raise InputError(f"device {name!r} is not supported: choose cpu or cuda")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise InputError(f"unknown device {name!r}: choose cpu, cuda, or auto")
    if name.startswith("cuda") and not _has_gpu_driver():
        raise InputError("no CUDA device on this machine: choose device cpu")


def choose_device(name: str) -> str:
    """Resolve "auto" and return the name of an existing device.

    Raises:
        InputError: The device is unknown or does not exist.
    """
    check_device(name)
    if name == "cpu":
        return name
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if (torch.device(name).index or 0) >= torch.cuda.device_count():
        raise InputError(f"no device {name} on this machine: choose device cpu")
    return name


@cache
def has_triton() -> bool:
    """Return whether triton kernels can run: triton is installed and a CUDA device exists."""
    import torch

    return torch.cuda.is_available() and find_spec("triton") is not None


def default_backend(device: torch.device) -> str:
    """Return the backend that "auto" selects for tensors on a device."""
    if device.type == "cpu":
        return "numba"
    return "triton" if device.type == "cuda" and has_triton() else "reference"


def choose_backend(backend: str, points: Tensor) -> str:
    """Resolve "auto" and return the name of a backend that works on the device of the points.

    Raises:
        InputError: The backend is unknown or does not work on that device.
    """
    if backend == "auto":
        return default_backend(points.device)
    if backend not in BACKENDS:
        raise InputError(f"unknown backend {backend!r}: choose auto, {', '.join(BACKENDS)}")
    if backend == "numba" and points.device.type != "cpu":
        raise InputError(f"the numba backend needs points on the CPU, not on {points.device}")
    if backend == "triton" and not (points.device.type == "cuda" and has_triton()):
        installed = "is" if find_spec("triton") else "is not"
        raise InputError(
            "the triton backend needs triton and points on a CUDA device: "
            f"triton {installed} installed, the points are on {points.device}"
        )
    return backend


def _has_gpu_driver() -> bool:
    """Return False only if no driver of NVIDIA or AMD (which torch also calls cuda) is installed."""
    if Path("/dev/kfd").exists():
        return True
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
