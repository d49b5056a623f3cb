"""Compile the kernels of `wsdesc register` in further processes.

Numba compiles one function at a time per process. So helper processes compile, too, at the first start after
an installation. They go from the last step of a registration to the first, while the main process imports
libraries and compiles what it needs. Each kernel has a lock, so no two processes compile it. If a helper
fails, the main process compiles the kernel itself. This module imports neither torch nor numba.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from wsdesc.core.kernel_cache import COMPLETE, compile_lock, kernel_folder
from wsdesc.core.startup import frozen_imports

if TYPE_CHECKING:
    from wsdesc.core.kernels import Kernel

_MAX_HELPERS = 3
# The order in which helpers compile: the slowest kernel first, then from the last step to the first.
_ORDER = ("descriptor.voxelize", "alignment", "descriptor", "core", "cloud")


def start_helpers() -> None:
    """Start helper processes if kernels of `wsdesc register` are missing in the cache."""
    folder = kernel_folder()
    helpers = min(_MAX_HELPERS, _usable_cores() - 1)
    if folder is None or helpers < 1 or (folder / COMPLETE).exists():
        return
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for _ in range(helpers):
        try:
            subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import compile_all; compile_all()"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return


def _usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def kernels_to_compile() -> list[Kernel]:
    """List the kernels of `wsdesc register` with declared types."""
    import wsdesc.descriptor.lrf.cpu  # these two are imported on first use otherwise
    import wsdesc.descriptor.voxelize.cpu
    import wsdesc.registration.pipeline  # noqa: F401
    from wsdesc.core.kernels import declared_kernels

    return declared_kernels()


def compile_all() -> None:
    """Compile the kernels with declared types that are neither cached nor being compiled elsewhere."""
    names = [f"wsdesc.{package}." for package in _ORDER]
    with frozen_imports():
        kernels = kernels_to_compile()
    latest_first = sorted(kernels, key=lambda kernel: kernel.name, reverse=True)
    ordered = sorted(latest_first, key=lambda kernel: [not kernel.name.startswith(name) for name in names])
    for kernel in ordered:
        with compile_lock(kernel.name, wait=False) as held:
            if held:
                with suppress(Exception):  # the main process meets the same error, and can report it
                    kernel.compile_declared()
    for kernel in ordered:  # those that other processes compile
        with compile_lock(kernel.name):
            pass
    folder = kernel_folder()
    if folder is not None:
        (folder / COMPLETE).touch()
