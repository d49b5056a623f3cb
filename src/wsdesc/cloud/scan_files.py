"""Find files of scans in folders."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from wsdesc.cloud.formats import READABLE
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.file_parts import expand_home, split_part

# Scans only in folders without other scans: next to them they are notes, poses, or buffers of glTF files.
_AMBIGUOUS = (".txt", ".csv", ".bin")


def find_scan_files(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """List the scans among files and in folders, folder by folder in natural order, each file once.

    Raises:
        FileFormatError: A path does not exist, or is a file that is not a scan.
        InputError: A folder has no scans.
    """
    files: dict[Path, Path] = {}  # by real path
    for path in map(expand_home, [paths] if isinstance(paths, str | Path) else paths):
        if is_folder(path):
            inside = [file for folder in folders_below(path) for file in scans_among(visible_files(folder))]
            if not inside:
                raise InputError(f"{path}: no scans in this folder; readable formats: {' '.join(READABLE)}")
        elif not split_part(path)[0].exists():
            raise FileFormatError(f"{path}: no such file or folder")
        elif split_part(path)[0].suffix.lower() in READABLE:
            inside = [path]
        else:
            raise FileFormatError(f"{path}: not a scan; readable formats: {' '.join(READABLE)}")
        for file in inside:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def natural_order(path: Path) -> tuple[list[str | int], str]:
    """Return a key that sorts paths by name, cloud_2 before cloud_10."""
    parts: list[str | int] = list(re.split(r"(\d+)", path.name.casefold()))  # text and digits alternate
    parts[1::2] = map(int, parts[1::2])
    return parts, path.name


def folders_below(folder: Path) -> list[Path]:
    """List a folder and all visible folders in it, in natural order, each once."""
    return _folders_below(folder, set())


def _folders_below(folder: Path, seen: set[Path]) -> list[Path]:
    if folder.resolve() in seen:  # a link that leads back
        return []
    seen.add(folder.resolve())
    try:
        inside = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except OSError as error:
        raise FileFormatError(f"{folder}: the folder cannot be read ({error.strerror})") from error
    inside.sort(key=natural_order)
    return [folder, *(below for path in inside for below in _folders_below(path, seen))]


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; refuse a path in a folder that cannot be read."""
    try:
        return path.is_dir()
    except OSError as error:
        raise FileFormatError(f"{path}: the folder cannot be read ({error.strerror})") from error


def visible_files(folder: Path) -> list[Path]:
    """List the files of a folder that are not hidden."""
    return [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]


def scans_among(files: Iterable[Path], extensions: tuple[str, ...] = READABLE) -> list[Path]:
    """Select the files that are scans by their names, in natural order.

    Text files and .bin files are scans only if no other scans are among the files. Files *.info.txt hold
    poses (3DMatch).
    """
    files = [path for path in files if not path.name.lower().endswith(".info.txt")]
    files = sorted((path for path in files if path.suffix.lower() in extensions), key=natural_order)
    return [path for path in files if path.suffix.lower() not in _AMBIGUOUS] or files
