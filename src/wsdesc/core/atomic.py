"""Write files atomically: completely or not at all, without leftovers.

While a temporary file is written, its writer holds a lock on it. The system releases the lock when the
process ends, also when it is killed. The next writer in the folder removes temporary files that it can lock.
Leftovers stay on Windows and on file systems without locks.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wsdesc.core.errors import FileFormatError
from wsdesc.core.file_parts import as_path

_PREFIX = ".wsdesc-"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of an empty temporary file, which replaces `path` after the block.

    The temporary file has the same extension, for writers that choose the format by it. The block must
    overwrite it, not replace it. If the block raises an exception, the temporary file is removed and a file
    at `path` stays unchanged.

    Raises:
        FileFormatError: The file system refuses, or the block writes nothing. Other errors pass through.
        InputError: `path` is not a path.
    """
    target = as_path(path, "the file to write")
    real = Path(os.path.realpath(target))  # replace the target of a link, not the link
    try:
        if real.exists() and not real.is_file():
            raise FileFormatError(f"{target}: cannot be written: it is not a file")
        if not real.parent.is_dir():
            raise FileFormatError(f"{target}: cannot be written: the folder {target.parent} does not exist")
        remove_leftovers(real.parent)
        temporary, descriptor = _claim(real.parent, target.suffix)
        try:
            if sys.platform == "win32":
                os.close(descriptor)  # Windows cannot replace open files
            yield temporary
            if temporary.stat().st_mtime_ns == 0:
                raise FileFormatError(f"{target}: cannot be written: its writer wrote nothing")
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
    with suppress(OSError):  # some file systems cannot flush folders
        _flush(real.parent, os.O_RDONLY)


def append_line(path: Path, line: str) -> None:
    """Append a line of text to a file, and return when it is on the disk.

    Raises:
        FileFormatError: The file cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror or error}") from error


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed writers from a folder; those of running writers are locked."""
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
    """Create a temporary file; return it and the open descriptor that holds its lock.

    Its modification time is 0 until it is written.
    """
    while True:
        temporary = folder / f"{_PREFIX}{secrets.token_hex(6)}{suffix}"
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        _lock(descriptor, wait=True)
        with suppress(FileNotFoundError):  # another process removed it before it was locked
            os.utime(temporary, ns=(0, 0))
            return temporary, descriptor
        os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> bool:
    """Lock an open file until it is closed, optionally wait for the lock; return whether it worked."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _flush(path: Path, access: int) -> None:
    """Write a file, or the names in a folder, from the system's buffers to the disk."""
    descriptor = os.open(path, access)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
