"""Write a file whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wsdesc.errors import FileFormatError


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; what is written there replaces `path` when the block ends well.

    The temporary file has the same extension, so that writers which look at it choose the same format.
    If the block raises, or the disk does, the temporary file is removed and what stood at `path` stays.
    Errors of the file system become FileFormatError, all others pass through.
    """
    target = Path(path)
    real = Path(os.path.realpath(target))  # a link keeps pointing where it does
    temporary = real.with_name(f".wsdesc-{secrets.token_hex(6)}{target.suffix}")
    try:
        if real.exists() and not real.is_file():
            raise FileFormatError(f"{target}: cannot be written: it exists and is not a file")
        if not real.parent.is_dir():
            raise FileFormatError(f"{target}: cannot be written: there is no folder {target.parent}")
        yield temporary
        _flush(temporary, os.O_RDWR)
        if real.exists():
            temporary.chmod(real.stat().st_mode & 0o7777)
        temporary.replace(real)
    except OSError as error:
        raise FileFormatError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    with suppress(OSError):  # not every file system lets a folder be flushed
        _flush(real.parent, os.O_RDONLY)


def _flush(path: Path, access: int) -> None:
    """Have the system bring a file, or the names in a folder, onto the disk."""
    descriptor = os.open(path, access)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
