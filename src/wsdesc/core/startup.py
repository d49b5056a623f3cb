"""Speed up the start of commands. This module imports neither torch nor numba."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread


def preload_torch() -> None:
    """Load torch's library in a thread, while this one imports other modules.

    Loading takes 0.2 s, in which Python's lock is free; the import of torch would keep it.
    """
    Thread(target=_load_library, name="wsdesc-preload").start()


def _load_library() -> None:
    torch = find_spec("torch")
    for folder in (torch and torch.submodule_search_locations) or ():
        with suppress(OSError):  # another system or build: the import of torch loads its libraries
            ctypes.CDLL(str(Path(folder) / "lib" / "libtorch_cpu.so"))


@contextmanager
def frozen_imports() -> Iterator[None]:
    """Import libraries whose objects live until the process ends; they are never searched for garbage.

    Python would search the objects of torch during the import, while numba compiles, and at exit.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
