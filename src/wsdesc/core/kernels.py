"""Compiled CPU kernels: numba functions that release the GIL, are cached on disk and run on plain threads.

A kernel `kernel(start, stop, *arrays)` computes a range of independent items and writes only their results.
`run_in_chunks` distributes such ranges over threads. No result depends on the number of threads. Kernels may
be called from several Python threads at once, which numba's own thread pool does not support everywhere.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numba
import torch
from numba.core import event, sigutils
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys

from wsdesc.core.kernel_cache import cache_folder, compile_lock, kernel_folder

logger = logging.getLogger(__name__)

_NOTICE_SECONDS = 1.5  # compile time of a process after which a notice is logged


def _redirect_triton_cache() -> None:
    """Let triton use our cache folder if the home folder, its default, cannot be written."""
    home = os.path.expanduser("~")  # noqa: PTH111 - stays "~" without a home folder
    folder = cache_folder()
    if folder and "TRITON_CACHE_DIR" not in os.environ and not os.access(home, os.W_OK):
        os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")


@contextmanager
def _numba_cache_in(folder: Path) -> Iterator[None]:
    """Set numba's cache folder, which it reads when it decorates a function, for our functions only."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)
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

    seconds = 0.0  # of compiling so far, by all listeners

    def __init__(self) -> None:
        self.timer = threading.Timer(max(_NOTICE_SECONDS - self.seconds, 0.0), _log_notice)
        self.begin: float | None = None

    def on_start(self, event: Any) -> None:
        if self.begin is None:
            self.begin = perf_counter()
            self.timer.start()

    def on_end(self, event: Any) -> None:
        """Do nothing: compilations nest, and the caller calls `stop` after the outermost one."""

    def stop(self) -> None:
        """Stop the timer and add the time since it was started."""
        self.timer.cancel()
        if self.begin is not None:
            _CompileListener.seconds += perf_counter() - self.begin


class _KernelCache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """Numba's cache, without the import of all that numba can compile: loading a kernel needs none of it.

    The import takes 0.4 s. Numba does it in any case before it compiles.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)  # the memory of arrays that kernels allocate
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


class Kernel:
    """A numba function that compiles on its first call and logs a notice if that takes long."""

    def __init__(self, function: Callable[..., Any], types: str | None = None, **options: Any) -> None:
        folder = kernel_folder()
        options = {"nogil": True, "error_model": "numpy", **options}
        options["no_cfunc_wrapper"] = True  # nothing calls it, and it takes time to compile
        self.compiled = numba.njit(**options)(function)
        if folder is not None:
            with _numba_cache_in(folder):
                self.compiled._cache = _KernelCache(function)
        self.compiled._compile_for_args = self._compile_for  # numba calls it for new types of arguments
        self._lock = threading.Lock()
        self._types = types
        self.name = f"{function.__module__}.{function.__qualname__}"
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        if types is not None:
            _declared.append(self)

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)

    def _compile_for(self, *args: Any) -> Any:
        """Compile for such arguments, or load the result from the cache, and return the function."""
        signature = tuple(numba.typeof(a) for a in args)
        with self._lock:
            listener = _CompileListener()
            try:
                with event.install_listener("numba:compile", listener), compile_lock(self.name):
                    return self.compiled.compile(signature)
            finally:
                listener.stop()

    def compile_declared(self) -> None:
        """Compile for the declared types of arguments, or load the result from the cache."""
        types, _ = sigutils.normalize_signature(f"({self._types})")
        self.compiled.compile(types)  # the text itself would be another key in the cache


_declared: list[Kernel] = []


def declared_kernels() -> list[Kernel]:
    """List the imported kernels whose types of arguments are declared."""
    return list(_declared)


def kernel(function: Callable[..., Any] | None = None, *, types: str | None = None, **options: Any) -> Any:
    """Decorate a CPU kernel that Python calls.

    Args:
        function: The kernel.
        types: Types of the arguments in `wsdesc register`, in numba's notation, if helper processes should
            compile it at the first start; see `compile_ahead`. Other types are compiled when they occur.
        options: Go to numba, such as `fastmath=True`.
    """
    if function is None:
        return lambda f: Kernel(f, types, **options)
    return Kernel(function, types, **options)


def inline(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorate a helper that only kernels call; it is compiled and cached as part of them."""
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # Python does not call it
    decorate = numba.njit(nogil=True, error_model="numpy", **wrappers, **options)
    return decorate if function is None else decorate(function)


@cache
def _threads(count: int, purpose: str, inner: int = 1) -> ThreadPoolExecutor:
    """Return a pool of threads; chunks and items need different pools, as an item waits for its chunks."""
    name = f"wsdesc-{purpose}"
    return ThreadPoolExecutor(count, name, initializer=_limit_threads, initargs=(count, inner))


_local = threading.local()
_torch_threads_lock = threading.Lock()

if hasattr(os, "register_at_fork"):
    # A forked process inherits the pools without their threads, and locks that another thread holds.
    os.register_at_fork(after_in_child=_threads.cache_clear)
    os.register_at_fork(
        before=_torch_threads_lock.acquire,
        after_in_parent=_torch_threads_lock.release,
        after_in_child=_torch_threads_lock.release,
    )


def _limit_threads(total: int, inner: int) -> None:
    """Let torch and kernels use `inner` threads where the calling thread is one of several in a pool."""
    _local.total = total
    _set_torch_threads(inner)


def _set_torch_threads(count: int) -> None:
    """Set the number of torch's threads for operations of the calling thread only."""
    with _torch_threads_lock:
        before = torch.get_num_threads()
        torch.set_num_threads(count)  # of this thread, and the default of threads that are started later
        restore = threading.Thread(target=torch.set_num_threads, args=(before,))
        restore.start()
        restore.join()


def _thread_count() -> int:
    """Return how many threads the calling thread may use."""
    return getattr(_local, "count", 0) or torch.get_num_threads()


@contextmanager
def single_threaded_torch() -> Iterator[None]:
    """Let operations of torch in the calling thread use one thread; `run_each` and `run_in_chunks` use all.

    Operations of a registration are small. Their threads would wait for each other actively, and take the
    cores from the threads of kernels. On a busy machine this makes a registration three times slower.
    """
    count = torch.get_num_threads()
    if count == 1:  # also inside of another such block
        yield
        return
    _local.count = count
    _set_torch_threads(1)
    try:
        yield
    finally:
        _local.count = 0
        torch.set_num_threads(count)


def run_in_chunks(compiled: Callable[..., Any], items: int, *args: Any, chunk: int = 64) -> None:
    """Call `compiled(start, stop, *args)` over [0, items) in chunks, on as many threads as torch may use.

    Args:
        compiled: The kernel.
        items: Number of items.
        args: Further arguments of the kernel.
        chunk: Items per call.
    """
    starts = range(0, items, chunk)
    if not starts:
        return
    remaining = iter(starts)  # shared by all threads: each takes the next chunk from it

    def work() -> None:
        for start in remaining:
            compiled(start, min(start + chunk, items), *args)

    count = _thread_count()
    helpers = min(count, len(starts)) - 1  # beside the calling thread
    total = getattr(_local, "total", count)
    futures = [_threads(total, "chunks").submit(work) for _ in range(helpers)]
    work()
    for future in futures:
        future.result()


def run_each(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return `function(item)` of each item; see `iterate_each`."""
    return list(iterate_each(function, items))


def iterate_each(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """Yield `function(item)` of each item in order, computed on as many threads as torch uses.

    The function should release the GIL. Inside of it, torch and kernels use the threads that are left. The
    inference mode is that of the caller; in torch, each thread has its own.
    """
    count = _thread_count()
    if count == 1 or len(items) < 2:
        return map(function, items)
    if torch.is_inference_mode_enabled():
        function = torch.inference_mode()(function)
    return _threads(count, "items", max(1, count // len(items))).map(function, items)
