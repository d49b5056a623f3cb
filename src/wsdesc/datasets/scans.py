"""Folders of scans as sequences: what a user has. Poses on disk are not looked at here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.files import read_points
from wsdesc.cloud.formats import READABLE
from wsdesc.core.errors import FileFormatError, InputError, WSDescError
from wsdesc.datasets.modelnet40 import count_shapes, read_shapes, split_files

_COLLECTIONS = (".h5", ".hdf5")
_KNOWN = (*READABLE, *_COLLECTIONS)
_MAYBE = (".txt", ".csv")  # scans where a folder has nothing else; beside other scans notes, times, poses


@dataclass(frozen=True)
class ScanFile:
    """One scan of a sequence, read when asked for."""

    name: str  # for people: folder/file, or folder/file#number inside a collection
    path: Path
    row: int | None = None  # of an HDF5 collection

    def read(self) -> NDArray[np.float64]:
        """Its points (N, 3), in the file's own unit; points that are not finite are left out."""
        if self.row is not None:
            return _finite(self.name, read_shapes(self.path, self.row)[0])
        return read_points(self.path, nonfinite="drop")


@dataclass(frozen=True)
class ScanSequence:
    """Scans in the order in which they were made."""

    name: str
    scans: list[ScanFile] = field(repr=False)
    objects: bool = False  # separate shapes: neighbours do not overlap


LoadedScans = tuple[dict[int, NDArray[np.float64]], list[str]]  # what `read_all` returns


def find_sequences(places: str | Path | Iterable[str | Path]) -> list[ScanSequence]:
    """One sequence for each folder at or below `places` that holds scans, ordered by the numbers in their
    names; files that are named one by one are a sequence with the others of their folder.

    Reads any folder of files in a readable format, and as they are published the training set of 3DMatch
    (`scene/cloud_bin_k.ply`, whose `.info.txt` stay closed) and ModelNet40 (`ply_data_train*.h5`; only the
    training split where files of both are there). Text files beside scans of another format are no scans,
    nor are hidden files. No file is taken twice, however many places lead to it.

    Raises FileFormatError for a place that is not there, InputError for one without scans.
    """
    found: list[tuple[Path, str, list[Path]]] = []  # folder, its name for people, its scans
    named: dict[Path, list[Path]] = {}  # files given one by one, by their folder
    for place in map(Path, [places] if isinstance(places, str | Path) else places):
        if _is_folder(place):
            below = [(folder, _name(place, folder), _files(folder)) for folder in _folders(place, set())]
            if not any(files for _, _, files in below):
                raise InputError(f"{place}: there are no scans; readable are {' '.join(_KNOWN)}")
            found += below
        elif not place.exists():
            raise FileFormatError(f"{place}: there is no such file or folder")
        elif place.suffix.lower() in _KNOWN:
            named.setdefault(place.parent, []).append(place)
        else:
            raise FileFormatError(f"{place}: is not a scan; readable are {' '.join(_KNOWN)}")
    found += [(folder, _name(folder, folder), _scans(files)) for folder, files in named.items()]
    sequences: dict[str, ScanSequence] = {}
    seen: set[Path] = set()  # real paths
    for folder, name, files in found:
        unique = str(folder) if name in sequences else name
        sequence = _sequence(unique, [file for file in files if _is_new(file, seen)])
        if sequence.scans:
            sequences[unique] = sequence
    if not sequences:
        raise InputError("no folder of scans was named")
    return list(sequences.values())


def read_all(sequence: ScanSequence, progress: Callable[[ScanFile], None] | None = None) -> LoadedScans:
    """Points of each scan that can be read, by its place in the sequence, and why the others cannot.

    progress: called after each scan, whether it could be read or not.
    """
    clouds: dict[int, NDArray[np.float64]] = {}
    problems: list[str] = []
    path, shapes = None, None  # a collection is decompressed once, not for each of its rows
    for number, scan in enumerate(sequence.scans):
        try:
            if scan.row is None:
                clouds[number] = scan.read()
            else:
                if scan.path != path:
                    path, shapes = scan.path, None
                    shapes = read_shapes(path)
                if shapes is not None:  # else it was named at its first row
                    clouds[number] = _finite(scan.name, shapes[scan.row])
        except WSDescError as error:
            problems.append(str(error))
        if progress is not None:
            progress(scan)
    return clouds, problems


def check_enough(sequences: Iterable[ScanSequence], readings: Iterable[LoadedScans] | None = None) -> None:
    """Refuse what nothing can be learned from: there must be two scans of one sequence, or one shape.

    readings: what `read_all` returned for each sequence; without it all scans are taken to be readable.
    """
    sequences = list(sequences)
    where = ", ".join(sequence.name for sequence in sequences[:3]) + (", …" if len(sequences) > 3 else "")
    counts = [len(sequence.scans) for sequence in sequences]
    scans, lost = sum(counts), ""
    if readings is not None:
        results = list(readings)
        counts = [len(clouds) for clouds, _ in results]
        problems = [problem for _, some in results for problem in some]
        if problems:
            lost = f" ({scans - sum(counts)} of {scans} cannot be read, the first: {problems[0]})"
    if sum(counts) == 0:
        kind = FileFormatError if lost else InputError
        raise kind(f"{where}: no scan that can be read{lost}" if where else "there are no scans")
    if not any(n >= (1 if s.objects else 2) for s, n in zip(sequences, counts, strict=True)):
        raise InputError(f"{where}: one scan only{lost}; needed are two or more in one folder, overlapping")


def natural_order(path: Path) -> tuple[list[str | int], str]:
    """A key to sort paths by name, cloud_2 before cloud_10."""
    parts: list[str | int] = list(re.split(r"(\d+)", path.name.casefold()))  # text and digits by turns
    parts[1::2] = map(int, parts[1::2])
    return parts, path.name


def _folders(place: Path, seen: set[Path]) -> list[Path]:
    """`place` and the folders in it, in natural order, each once; hidden ones are left alone."""
    if not _is_new(place, seen):  # a link that leads round in a circle
        return []
    try:
        inside = [path for path in place.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except OSError as error:
        raise FileFormatError(f"{place}: cannot be looked into ({error.strerror})") from error
    inside.sort(key=natural_order)
    return [place, *(below for path in inside for below in _folders(path, seen))]


def _is_folder(place: Path) -> bool:
    try:
        return place.is_dir()
    except OSError as error:  # a folder above it is closed
        raise FileFormatError(f"{place}: cannot be looked into ({error.strerror})") from error


def _is_new(path: Path, seen: set[Path]) -> bool:
    """Whether this file or folder, by whatever path, was not seen before; now it is."""
    before = len(seen)
    seen.add(path.resolve())
    return len(seen) > before


def _files(folder: Path) -> list[Path]:
    """The scans of a folder in order, or the collections it has instead."""
    files = _scans(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    collections = [path for path in files if path.suffix.lower() in _COLLECTIONS]
    return (split_files(folder, "train") or collections) if collections else files


def _scans(files: Iterable[Path]) -> list[Path]:
    """The files that are scans by their names, in order."""
    files = [path for path in files if not path.name.lower().endswith(".info.txt")]
    files = sorted((path for path in files if path.suffix.lower() in _KNOWN), key=natural_order)
    return [path for path in files if path.suffix.lower() not in _MAYBE] or files


def _sequence(name: str, files: list[Path]) -> ScanSequence:
    scans: list[ScanFile] = []
    for path in files:
        if path.suffix.lower() not in _COLLECTIONS:
            scans.append(ScanFile(f"{name}/{path.name}", path))
            continue
        try:
            rows = count_shapes(path)
        except FileFormatError:
            rows = 1  # to be tried, and named, with the other scans
        scans += [ScanFile(f"{name}/{path.name}#{row}", path, row) for row in range(rows)]
    return ScanSequence(name, scans, objects=any(scan.row is not None for scan in scans))


def _name(place: Path, folder: Path) -> str:
    """What to call a folder: its path below the place that was named, or the place's own name."""
    below = folder.relative_to(place).as_posix()
    return place.resolve().name if below == "." else below


def _finite(name: str, points: NDArray[np.float32]) -> NDArray[np.float64]:
    finite = points[np.isfinite(points).all(axis=1)].astype(np.float64)
    if len(finite) == 0:
        raise FileFormatError(f"{name}: none of its points is finite")
    return finite
