"""Write a file whole or not at all, and leave nothing else behind.

Not even what a killed process leaves: while a temporary file is written its writer holds a lock on it, which
the system drops with the process, however that ends. A temporary file that can be locked is nobody's; whoever
writes into the folder next removes it. Where a file system knows no locks, and on Windows, it stays.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wsdesc.core.errors import FileFormatError

_PREFIX = ".wsdesc-"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; what is written there replaces `path` when the block ends well.

    The temporary file has the same extension, so that writers which look at it choose the same format. It is
    there already, empty: it has to be overwritten, not replaced.
    If the block raises, or the disk does, the temporary file is removed and what stood at `path` stays.
    Errors of the file system become FileFormatError, all others pass through.
    """
    target = Path(path)
    real = Path(os.path.realpath(target))  # a link keeps pointing where it does
    try:
        if real.exists() and not real.is_file():
            raise FileFormatError(f"{target}: cannot be written: it exists and is not a file")
        if not real.parent.is_dir():
            raise FileFormatError(f"{target}: cannot be written: there is no folder {target.parent}")
        remove_leftovers(real.parent)
        temporary, descriptor = _claim(real.parent, target.suffix)
        try:
            if sys.platform == "win32":
                os.close(descriptor)  # files that are open cannot be replaced there
            yield temporary
            if temporary.stat().st_mtime_ns == 0:
                raise FileFormatError(f"{target}: cannot be written: nothing was given to write")
            _flush(temporary, os.O_RDWR)
            if real.exists():
                temporary.chmod(real.stat().st_mode & 0o7777)
            temporary.replace(real)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            if sys.platform != "win32":
                os.close(descriptor)
    except OSError as error:
        raise FileFormatError(f"{target}: cannot be written: {error.strerror or error}") from error
    with suppress(OSError):  # not every file system lets a folder be flushed
        _flush(real.parent, os.O_RDONLY)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files whose writers were killed; those that are being written stay."""
    with suppress(OSError):
        for entry in [e for e in os.scandir(folder) if e.name.startswith(_PREFIX)]:
            with suppress(OSError):
                descriptor = os.open(entry.path, os.O_RDWR)
                try:
                    if _lock(descriptor, wait=False):
                        Path(entry.path).unlink()
                finally:
                    os.close(descriptor)


def _claim(folder: Path, suffix: str) -> tuple[Path, int]:
    """A new temporary file and the descriptor that keeps others from removing it.

    It is of 1970 until somebody writes into it.
    """
    while True:
        temporary = folder / f"{_PREFIX}{secrets.token_hex(6)}{suffix}"
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        _lock(descriptor, wait=True)
        with suppress(FileNotFoundError):  # before it was locked, another process took it for a leftover
            os.utime(temporary, ns=(0, 0))
            return temporary, descriptor
        os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> bool:
    """Whether an open file now is ours until it is closed; without `wait` only if it was nobody's."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _flush(path: Path, access: int) -> None:
    """Have the system bring a file, or the names in a folder, onto the disk."""
    descriptor = os.open(path, access)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
