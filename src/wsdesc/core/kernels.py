"""Compiled CPU kernels: numba functions that release the GIL, are cached on disk and run on plain threads.

A kernel `kernel(start, stop, *arrays)` computes a range of independent items and writes only their results.
`run_in_chunks` distributes such ranges over threads. No result depends on the number of threads. Kernels may
be called from several Python threads at once, which numba's own thread pool does not support everywhere.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import numba
import torch
from numba.core import event

logger = logging.getLogger(__name__)

_NOTICE_SECONDS = 1.5  # compile time after which a notice is logged


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


def _redirect_triton_cache() -> None:
    """Let triton use our cache folder if the home folder, its default, cannot be written."""
    home = os.path.expanduser("~")  # noqa: PTH111 - stays "~" without a home folder
    folder = cache_folder()
    if folder and "TRITON_CACHE_DIR" not in os.environ and not os.access(home, os.W_OK):
        os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")


@cache
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
def _numba_cache_in(folder: Path) -> Iterator[None]:
    """Set numba's cache folder, which it reads when it decorates a function, for our functions only."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder / f"kernels-{_sources_digest()}")
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


_redirect_triton_cache()
_notice_given = threading.Event()


def _log_notice() -> None:
    """Log once per process that kernels are being compiled.

    The level is WARNING, so that Python's default handler shows it on stderr if logging is not configured.
    """
    if not _notice_given.is_set():
        _notice_given.set()
        kept = "kept for the next start" if cache_folder() else "not kept, as no cache folder can be written"
        logger.warning("wsdesc: compiling CPU kernels: takes several seconds, %s …", kept)


class _CompileListener(event.Listener):  # type: ignore[misc]  # numba has no types
    """Starts a timer for the notice when numba starts to compile; loading from the cache starts none."""

    def __init__(self) -> None:
        self.timer = threading.Timer(_NOTICE_SECONDS, _log_notice)

    def on_start(self, event: Any) -> None:
        if self.timer.ident is None:
            self.timer.start()

    def on_end(self, event: Any) -> None:
        """Do nothing: compilations nest, and the caller cancels the timer after the outermost one."""


class Kernel:
    """A numba function that compiles on its first call and logs a notice if that takes long."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        folder = cache_folder()
        options = {"nogil": True, "cache": folder is not None, "error_model": "numpy", **options}
        if folder is None:
            self.compiled = numba.njit(**options)(function)
        else:
            with _numba_cache_in(folder):
                self.compiled = numba.njit(**options)(function)
        self._lock = threading.Lock()
        self._ready: set[tuple[Any, ...]] = set()
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *args: Any) -> Any:
        return self.ready_for(*args)(*args)

    def ready_for(self, *args: Any) -> Callable[..., Any]:
        """Return the function compiled for such arguments; calling it directly saves the type lookup."""
        signature = tuple(numba.typeof(a) for a in args)
        if signature not in self._ready:
            with self._lock:
                listener = _CompileListener()
                try:
                    with event.install_listener("numba:compile", listener):
                        self.compiled.compile(signature)
                finally:
                    listener.timer.cancel()
                self._ready.add(signature)
        return cast(Callable[..., Any], self.compiled)


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorate a CPU kernel that Python calls; options such as `fastmath=True` go to numba."""
    if function is None:
        return lambda f: Kernel(f, **options)
    return Kernel(function, **options)


def inline(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorate a helper that only kernels call; it is compiled and cached as part of them."""
    decorate = numba.njit(nogil=True, error_model="numpy", **options)
    return decorate if function is None else decorate(function)


@cache
def _threads(count: int, purpose: str) -> ThreadPoolExecutor:
    """Return a pool of threads; chunks and items need different pools, as an item waits for its chunks."""
    return ThreadPoolExecutor(count, thread_name_prefix=f"wsdesc-{purpose}")


if hasattr(os, "register_at_fork"):  # a forked process inherits the pools without their threads
    os.register_at_fork(after_in_child=_threads.cache_clear)


def run_in_chunks(compiled: Kernel, items: int, *args: Any, chunk: int = 64) -> None:
    """Call `compiled(start, stop, *args)` over [0, items) in chunks, on as many threads as torch uses.

    Args:
        compiled: the kernel.
        items: number of items.
        args: further arguments of the kernel.
        chunk: items per call.
    """
    count = torch.get_num_threads()
    bounds = [(start, min(start + chunk, items)) for start in range(0, items, chunk)]
    if not bounds:
        return
    run = compiled.ready_for(*bounds[0], *args)
    if count == 1 or len(bounds) == 1:
        for start, stop in bounds:
            run(start, stop, *args)
        return
    futures = [_threads(count, "chunks").submit(run, start, stop, *args) for start, stop in bounds]
    for future in futures:
        future.result()


def run_each(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return `function(item)` of each item, computed on as many threads as torch uses.

    The function should release the GIL. It must not call `run_each`: both would wait for the same threads.
    """
    count = torch.get_num_threads()
    if count == 1 or len(items) < 2:
        return [function(item) for item in items]
    return list(_threads(count, "items").map(function, items))
