"""Let several processes compute on one GPU at the same time, by NVIDIA's Multi-Process Service (MPS).

Without it, processes that share a GPU take turns, and each turn waits for the GPU to change between them. MPS
comes with the driver and needs no privileges. The service that is started here belongs to one executor: other
programs do not see it, and it ends with this process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_CONTROL = "nvidia-cuda-mps-control"
_FOLDER = "CUDA_MPS_PIPE_DIRECTORY"
_SYSTEM_FOLDER = Path(tempfile.gettempdir(), "nvidia-mps")  # of a service that serves all programs
_SECONDS = 20  # limit for each answer of the service

# Waits until this process closes its end of the pipe, or dies.
_QUIT_AT_END = f"read -r _; echo quit | {_CONTROL}"

# Fails if processes cannot use the GPU through the service, as in some containers.
_PROBE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
failed = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
failed = failed or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
raise SystemExit(1 if failed else 0)
"""


class GpuSharing:
    """A running service.

    Attributes:
        environment: Variables of processes that use the service, to be set before they use the GPU.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environment = {_FOLDER: str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
        environment = {**os.environ, **self.environment}
        _run([_CONTROL, "-d"], environment)  # returns when the service is ready
        self._watcher = subprocess.Popen(
            ["sh", "-c", _QUIT_AT_END], env=environment, stdin=subprocess.PIPE, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _run([sys.executable, "-c", _PROBE], environment)
        except (OSError, subprocess.SubprocessError):
            self.close()
            raise

    def close(self) -> None:
        """End the service, after the processes that use it."""
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        try:
            self._watcher.wait(_SECONDS)
        except subprocess.TimeoutExpired:  # a process still uses the service, which then ends with it
            return
        shutil.rmtree(self._folder, ignore_errors=True)


def share_gpu() -> GpuSharing | None:
    """Start a service; None if there is none, if it does not work, or if one serves all programs already."""
    if shutil.which(_CONTROL) is None or _FOLDER in os.environ or _SYSTEM_FOLDER.exists():
        return None
    folder = Path(tempfile.mkdtemp(prefix="wsdesc-mps-"))
    try:
        return GpuSharing(folder)
    except (OSError, subprocess.SubprocessError):  # processes take turns instead
        shutil.rmtree(folder, ignore_errors=True)
        return None


def _run(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(command, env=environment, check=True, timeout=_SECONDS, capture_output=True)
