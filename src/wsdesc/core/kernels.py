"""Compiled CPU kernels: numba without the GIL, cached on disk, run on plain threads.

A kernel works on a range of independent items, `kernel(start, stop, *arrays)`, and writes only what
belongs to its items. `run_in_chunks` spreads such ranges over threads. Each item is computed the same
way whichever thread takes it, so results do not depend on the number of threads, and kernels may be
called from several Python threads at once, which numba's own thread pool does not allow everywhere.
"""

from __future__ import annotations

import hashlib
import os
import sys
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


@cache
def cache_folder() -> Path | None:
    """Where compiled kernels are kept: the user's cache folder, else a temporary one, else nowhere."""
    for place in (_cache_of_the_user, _temporary_cache):
        try:
            folder = place()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
            if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
                continue  # what lies there is run: it must not be somebody else's
        except (OSError, RuntimeError):  # not writable, or there is no home
            continue
        return folder
    return None


def _cache_of_the_user() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "wsdesc"


def _temporary_cache() -> Path:
    user = getattr(os, "getuid", lambda: "user")()
    return Path(tempfile.gettempdir()) / f"wsdesc-{user}"


def _keep_triton_kernels() -> None:
    """Triton writes below the home folder; where that cannot be, it is shown ours."""
    home = os.path.expanduser("~")  # noqa: PTH111 - stays "~" where there is no home
    folder = cache_folder()
    if folder and "TRITON_CACHE_DIR" not in os.environ and not os.access(home, os.W_OK):
        os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")


@cache
def _sources() -> str:
    """A digest of what kernels are made of. Numba looks at a kernel's own file alone, but kernels call
    functions and use constants of others."""
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
    """Numba chooses the place when a function is decorated; other people's functions keep theirs."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder / f"kernels-{_sources()}")
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


_keep_triton_kernels()
_announced = threading.Event()


def _announce() -> None:
    if not _announced.is_set():
        _announced.set()
        kept = "kept for the next start" if cache_folder() else "no folder to keep them in"
        print(f"wsdesc: compiling CPU kernels, some seconds, {kept} …", file=sys.stderr, flush=True)


class Kernel:
    """A numba function that compiles on its first call and says so when that takes a while."""

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
        """The function itself, compiled for such arguments, whose calls cost less than finding that out."""
        signature = tuple(numba.typeof(a) for a in args)
        if signature not in self._ready:
            with self._lock:
                timer = threading.Timer(1.5, _announce)
                timer.start()
                try:
                    self.compiled.compile(signature)
                finally:
                    timer.cancel()
                self._ready.add(signature)
        return cast(Callable[..., Any], self.compiled)


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorate a CPU kernel that Python calls; `options` go to numba (`fastmath=True`, …)."""
    if function is None:
        return lambda f: Kernel(f, **options)
    return Kernel(function, **options)


def inline(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorate a helper that only kernels call; it is compiled, and cached, as part of them."""
    decorate = numba.njit(nogil=True, error_model="numpy", **options)
    return decorate if function is None else decorate(function)


@cache
def _threads(count: int, purpose: str) -> ThreadPoolExecutor:
    """Threads for chunks and for items are not the same, since an item waits for its chunks."""
    return ThreadPoolExecutor(count, thread_name_prefix=f"wsdesc-{purpose}")


if hasattr(os, "register_at_fork"):  # a forked process has the pool, but not its threads
    os.register_at_fork(after_in_child=_threads.cache_clear)


def run_in_chunks(compiled: Kernel, items: int, *args: Any, chunk: int = 64) -> None:
    """Call `compiled(start, stop, *args)` over [0, items) in chunks, on as many threads as torch uses."""
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
    """`function` of each item, on as many threads as torch uses: for work that leaves Python's lock alone.

    Not for functions that call it themselves: they would wait for the same threads.
    """
    count = torch.get_num_threads()
    if count == 1 or len(items) < 2:
        return [function(item) for item in items]
    return list(_threads(count, "items").map(function, items))
