"""What is promised of a file from anywhere: a result or a `WSDescError`, in bounded time and memory."""

from __future__ import annotations

import resource
import time
from pathlib import Path

from benchmarks.fuzz.readers import Reader
from wsdesc.core.errors import WSDescError

SECONDS = 2.0  # of processor time, which other programs do not disturb, for a file of up to 1 MB
MEMORY = 2**30  # bytes beyond what the process had before
LONGEST_MESSAGE = 1000


class BrokenPromise(AssertionError):
    """A file that got more than it should."""


def bound_memory(beyond: int = 2 * MEMORY) -> None:
    """Let no allocation of this process go far beyond what it has: greed is seen, and does no harm."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + beyond, resource.RLIM_INFINITY))


def judge(reader: Reader, path: Path) -> str | None:
    """Read the file; the message if it was refused, None if it was read, BrokenPromise for all else."""
    before, start, message = _reset_peak(), time.process_time(), None
    try:
        reader.read(path)
    except WSDescError as error:
        message = str(error)
        greedy = _caused_by(error, MemoryError)
        if greedy:
            raise BrokenPromise(f"memory was asked for that is not there: {message}") from error
        if "\n" in message or not message.isprintable() or len(message) > LONGEST_MESSAGE:
            raise BrokenPromise(f"a message that is not a readable line: {message[:300]!r}") from error
    seconds, bytes_more = time.process_time() - start, _peak() - before
    if seconds > SECONDS:
        raise BrokenPromise(f"it took {seconds:.1f} s of processor time")
    if bytes_more > MEMORY:
        raise BrokenPromise(f"it took {bytes_more / 2**20:.0f} MiB")
    return message


def _reset_peak() -> int:
    """Begin to look for the peak of memory anew; what is used now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) * 1024


def _caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False
