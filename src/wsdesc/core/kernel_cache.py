"""The folder of compiled kernels. This module imports neither torch nor numba."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: two processes may compile the same kernel, which is harmless
    fcntl = None  # type: ignore[assignment]

COMPLETE = "complete"  # file beside the kernels: all kernels of `wsdesc register` are compiled


@cache
def cache_folder() -> Path | None:
    """Return the folder of compiled kernels: the user's cache, else a temporary folder, else None."""
    for choose in (_user_cache, _temporary_cache):
        try:
            folder = choose()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
            if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
                continue  # cached code is executed: never take that of another user
        except (OSError, RuntimeError):  # not writable, or no home folder
            continue
        return folder
    return None


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "wsdesc"


def _temporary_cache() -> Path:
    user = getattr(os, "getuid", lambda: "user")()
    return Path(tempfile.gettempdir()) / f"wsdesc-{user}"


@cache
def kernel_folder() -> Path | None:
    """Return the folder for kernels compiled from the current sources."""
    folder = cache_folder()
    return folder and folder / f"kernels-{_sources_digest()}"


def _sources_digest() -> str:
    """Hash the source files of all folders with kernels.

    Numba checks only the file of a kernel itself, but kernels use functions and constants of other files.
    """
    package = Path(__file__).parents[1]
    folders = {
        p.parent for p in package.rglob("*.py") if b"from wsdesc.core.kernels import" in p.read_bytes()
    }
    digest = hashlib.sha256()
    for path in sorted(p for folder in folders for p in folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def compile_lock(name: str, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a kernel between processes, so that only one compiles it and others load the result.

    Yields:
        Whether the lock is held; False only if `wait` is False and another process holds it.
    """
    folder = kernel_folder()
    if fcntl is None or folder is None:
        yield True
        return
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        file = (folder / f"{name}.lock").open("w")
    except OSError:  # the folder was removed, or the disk is full: compile without a lock
        yield True
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        except OSError:  # a file system without locks
            pass
        yield True
