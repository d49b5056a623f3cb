"""Folders for results: create them, name files in them, and keep out a second run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.file_parts import split_part

LOCK = ".lock"
_LOCK_BYTE = 1 << 20  # position of the locked byte on Windows, behind the text so that others can read it


def make_folder(folder: Path) -> None:
    """Create a folder for results, or check that an existing one is safe to write into.

    Raises:
        FileFormatError: The folder cannot be created, or holds a link that leads out of it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_links(folder)
    except FileExistsError as error:
        raise FileFormatError(f"{folder}: is a file, not a folder; choose another name") from error
    except OSError as error:
        raise FileFormatError(f"{folder}: cannot create the folder: {error.strerror or error}") from error


def check_links(folder: Path) -> None:
    """Raise an error if a folder for results holds a link to a path outside of it.

    Such links may come with downloaded scans; results written under their names would overwrite other files.
    """
    root = folder.resolve()
    for path in folder.iterdir():
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise FileFormatError(
                f"{path}: this link leads out of the folder for results: remove it or choose another folder"
            )


def relative_name(file: Path, folder: Path) -> str:
    """Return the name of a file relative to a folder, so that both can be moved together."""
    file, folder = Path(os.path.realpath(file)), Path(os.path.realpath(folder))
    try:
        return Path(os.path.relpath(file, folder)).as_posix()
    except ValueError:  # two drives of Windows
        return str(file)


def file_of_name(name: str, folder: Path) -> Path:
    """Return the file that `relative_name` named; in old results, one relative to the working folder."""
    file = folder / name
    if ".." in file.parts:
        file = Path(os.path.normpath(os.path.realpath(folder) / Path(name)))
    return file if split_part(file)[0].exists() or not split_part(name)[0].exists() else Path(name)


@contextmanager
def without_leftovers(folder: Path) -> Iterator[None]:
    """Remove a folder that the block creates if the block fails before it writes anything into it."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except Exception:
        if missing and folder.is_dir() and not any(_content(folder)):
            shutil.rmtree(folder, ignore_errors=True)
            for parent in missing[1:]:
                with suppress(OSError):  # it holds something else
                    parent.rmdir()
        raise


def _content(folder: Path) -> Iterator[Path]:
    """Yield files of a folder that have a content, but for the lock."""
    for path in folder.rglob("*"):
        if path.name != LOCK and (path.is_symlink() or (path.is_file() and path.stat().st_size)):
            yield path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create a folder and lock it against other runs while the block runs.

    A new folder is removed if the block fails before it writes anything into it. The system releases the lock
    when the process ends, also when it is killed.

    Raises:
        FileFormatError: The folder cannot be created or written.
        InputError: Another process has locked it.
    """
    with without_leftovers(folder), _lock(folder):
        yield


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    make_folder(folder)
    try:
        file = (folder / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise FileFormatError(f"{folder}: cannot write into the folder: {error.strerror or error}") from error
    with file:
        if not _try_lock(file):
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise InputError(f"{folder}: {owner} uses this folder: wait for it or choose another folder")
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield  # closing the file releases the lock; deleting the file would race with other processes


def _try_lock(file: IO[str]) -> bool:
    """Lock an open file if no other process has; return whether it worked."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(_LOCK_BYTE)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
