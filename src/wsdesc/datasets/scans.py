"""Find and read folders of scans. Files with poses are ignored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.convert import as_cloud
from wsdesc.cloud.formats import READABLE
from wsdesc.cloud.scan_files import folders_below, is_folder, natural_order, scans_among, visible_files
from wsdesc.core.errors import FileFormatError, InputError, WSDescError
from wsdesc.core.geometry import Floats
from wsdesc.datasets.modelnet40 import count_shapes, read_shapes, split_files

_COLLECTIONS = (".h5", ".hdf5")
_SUFFIXES = (*READABLE, *_COLLECTIONS)
_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


@dataclass(frozen=True)
class ScanFile:
    """One scan of a sequence; `read` reads its points."""

    name: str  # folder/file, or folder/file#row in a collection
    path: Path
    row: int | None = None  # in an HDF5 collection

    def read(self) -> Floats:
        """Read the finite points (N, 3), in the file's own unit."""
        if self.row is not None:
            return _finite(self.name, read_shapes(self.path, self.row)[0])
        points = as_cloud(self.path).points
        if (points == points[0]).all():
            raise FileFormatError(f"{self.path}: all its points are equal; export the scan again")
        return points


@dataclass(frozen=True)
class ScanSequence:
    """Scans in the order of acquisition."""

    name: str
    scans: list[ScanFile] = field(repr=False)
    objects: bool = False  # separate shapes: successive scans do not overlap


class LoadedScans(NamedTuple):
    """Points of a sequence's readable scans by index, and an error message for each of the others."""

    clouds: dict[int, Floats]
    problems: list[str]


def find_sequences(paths: str | Path | Iterable[str | Path]) -> list[ScanSequence]:
    """Find one sequence of scans for each folder, ordered by the numbers in the file names.

    Folders are searched recursively. They may hold files of all readable formats, the training set of 3DMatch
    (scene/cloud_bin_k.ply) or ModelNet40 (ply_data_train*.h5; the test split is left out). Hidden files, and
    text files beside scans of another format, are left out. Files named one by one form a sequence with the
    other named files of their folder. No file is used twice.

    Raises:
        FileFormatError: A path does not exist or is not a scan.
        InputError: A folder has no scans.
    """
    groups: list[tuple[Path, str, list[Path]]] = []  # folder, name, files
    named: dict[Path, list[Path]] = {}  # files named one by one, by folder
    for path in map(Path, [paths] if isinstance(paths, str | Path) else paths):
        if is_folder(path):
            inside = [(folder, _name(path, folder), _files(folder)) for folder in folders_below(path)]
            if not any(files for _, _, files in inside):
                raise InputError(f"{path}: no scans in this folder; readable formats: {' '.join(_SUFFIXES)}")
            groups += inside
        elif not path.exists():
            raise FileFormatError(f"{path}: no such file or folder")
        elif path.suffix.lower() in _SUFFIXES:
            named.setdefault(path.parent, []).append(path)
        else:
            raise FileFormatError(f"{path}: not a scan; readable formats: {' '.join(_SUFFIXES)}")
    groups += [
        (folder, _name(folder, folder), scans_among(files, _SUFFIXES)) for folder, files in named.items()
    ]
    sequences: dict[str, ScanSequence] = {}
    seen: set[Path] = set()  # real paths
    for folder, name, files in groups:
        unique = str(folder) if name in sequences else name
        sequence = _sequence(unique, [file for file in files if _add_new(file, seen)])
        if sequence.scans:
            sequences[unique] = sequence
    if not sequences:
        raise InputError("no folder of scans was given")
    return list(sequences.values())


def read_all(sequence: ScanSequence, progress: Callable[[ScanFile], None] | None = None) -> LoadedScans:
    """Read all scans of a sequence.

    Args:
        sequence: The scans.
        progress: Called after each scan, readable or not.
    """
    clouds: dict[int, Floats] = {}
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
                if shapes is not None:  # otherwise the error was reported at the first row
                    clouds[number] = _finite(scan.name, shapes[scan.row])
        except WSDescError as error:
            problems.append(str(error))
        if progress is not None:
            progress(scan)
    return LoadedScans(clouds, problems)


def check_enough(sequences: Iterable[ScanSequence], loaded: Iterable[LoadedScans] | None = None) -> None:
    """Check that training is possible: it needs two scans of one sequence, or one shape.

    Args:
        sequences: The sequences.
        loaded: Results of `read_all` for each of them; without them, all scans count as readable.

    Raises:
        FileFormatError: No scan can be read.
        InputError: Too few scans.
    """
    sequences = list(sequences)
    where = ", ".join(sequence.name for sequence in sequences[:3]) + (", …" if len(sequences) > 3 else "")
    counts = [len(sequence.scans) for sequence in sequences]
    scans, unreadable, kind = sum(counts), "", "scan"
    if loaded is not None:
        results = list(loaded)
        kind = "readable scan"
        counts = [len(clouds) for clouds, _ in results]
        problems = [problem for _, messages in results for problem in messages]
        if problems:
            unreadable = f" ({scans - sum(counts)} of {scans} cannot be read, the first: {problems[0]})"
    if sum(counts) == 0:
        error = FileFormatError if unreadable else InputError
        raise error(f"{where}: no readable scan{unreadable}" if where else "no scans were given")
    if not any(n >= (1 if s.objects else 2) for s, n in zip(sequences, counts, strict=True)):
        raise InputError(
            f"{where}: only one {kind}{unreadable}; at least two overlapping scans in one folder are needed"
        )


def scan_files(folder: str | Path) -> list[Path]:
    """List the readable scans of one folder in natural order, without HDF5 collections."""
    scans = scans_among(visible_files(Path(folder)), _SUFFIXES)
    return [path for path in scans if path.suffix.lower() not in _COLLECTIONS]


def number_scans(files: Iterable[Path]) -> dict[int, Path]:
    """Number scans by the last number in their names, or else by their position.

    If the names differ only in their last number (scan_0.ply, scan_7.ply), that number counts. Otherwise the
    scans are numbered from 0 in natural order.
    """
    files = sorted(files, key=natural_order)
    matches = [_NUMBERED.fullmatch(path.stem) for path in files]
    numbers = [int(match[2]) for match in matches if match]
    series = {(match[1], match[3]) for match in matches if match}
    if len(series) == 1 and len(set(numbers)) == len(files):
        return dict(sorted(zip(numbers, files, strict=True)))
    return dict(enumerate(files))


def _add_new(path: Path, seen: set[Path]) -> bool:
    """Add the real path to `seen`; return whether it is new."""
    before = len(seen)
    seen.add(path.resolve())
    return len(seen) > before


def _files(folder: Path) -> list[Path]:
    """List the scans of a folder in order, or only its collections if it has any."""
    files = scans_among(visible_files(folder), _SUFFIXES)
    collections = [path for path in files if path.suffix.lower() in _COLLECTIONS]
    return (split_files(folder, "train") or collections) if collections else files


def _sequence(name: str, files: list[Path]) -> ScanSequence:
    scans: list[ScanFile] = []
    for path in files:
        if path.suffix.lower() not in _COLLECTIONS:
            scans.append(ScanFile(f"{name}/{path.name}", path))
            continue
        try:
            rows = count_shapes(path)
        except FileFormatError:
            rows = 1  # reading it reports the error together with those of other scans
        scans += [ScanFile(f"{name}/{path.name}#{row}", path, row) for row in range(rows)]
    return ScanSequence(name, scans, objects=any(scan.row is not None for scan in scans))


def _name(root: Path, folder: Path) -> str:
    """Name a folder by its path below `root`, or `root` itself by its last part."""
    below = folder.relative_to(root).as_posix()
    return root.resolve().name if below == "." else below


def _finite(name: str, points: NDArray[np.float32]) -> Floats:
    finite = points[np.isfinite(points).all(axis=1)].astype(np.float64)
    if len(finite) == 0:
        raise FileFormatError(f"{name}: none of its points is finite")
    return finite
