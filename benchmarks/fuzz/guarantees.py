"""Guarantees for every file: a result or a one-line `WSDescError`, in limited time and memory."""

from __future__ import annotations

import resource
import time
from pathlib import Path

from benchmarks.fuzz.readers import Reader
from wsdesc.core.errors import WSDescError

MAX_SECONDS = 4.0  # of processor time for a file of up to 1 MB; a fast, idle machine needs a quarter of it
MAX_MEMORY = 2**30  # bytes in addition to those before
MAX_MESSAGE = 1000  # characters


class BrokenGuarantee(AssertionError):
    """A file took too much time or memory, or its error message is not one readable line."""


def limit_memory(additional: int = 2 * MAX_MEMORY) -> None:
    """Let allocations of this process fail soon after the guarantee is broken, before they do harm."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + additional, resource.RLIM_INFINITY))


def check_reader(reader: Reader, path: Path) -> str | None:
    """Read the file; return the error message if it is rejected, None if it is read.

    Raises:
        BrokenGuarantee: time, memory or message exceed the limits. Other exceptions than `WSDescError` also
            break the guarantees; they are passed on.
    """
    before, start, message = _reset_peak(), time.process_time(), None
    try:
        reader.read(path)
    except WSDescError as error:
        message = str(error)
        if _is_caused_by(error, MemoryError):
            raise BrokenGuarantee(f"an allocation failed: {message}") from error
        if "\n" in message or not message.isprintable() or len(message) > MAX_MESSAGE:
            raise BrokenGuarantee(f"the message is not one readable line: {message[:300]!r}") from error
    seconds, memory = time.process_time() - start, _peak() - before
    if seconds > MAX_SECONDS:
        raise BrokenGuarantee(f"reading took {seconds:.1f} s of processor time")
    if memory > MAX_MEMORY:
        raise BrokenGuarantee(f"reading took {memory / 2**20:.0f} MiB")
    return message


def _reset_peak() -> int:
    """Reset the peak of the memory to the memory in use, and return it."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) * 1024


def _is_caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False
