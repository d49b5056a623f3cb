"""Scans with known relative poses: the layout of the 3DMatch benchmark, and folders of any other scans.

As published:

    root/scene/cloud_bin_0.ply …                  fragments
    root/scene/cloud_bin_0.info.txt …             their poses, where known
    root/scene-evaluation/{gt.log, gt.info}       pairs with their poses and information matrices
    root/scene-evaluation-lo/{gt.log, gt.info}    the same for pairs with low overlap

Other folders may hold scans of any readable format and any names. Their pairs are in `gt.log`, which numbers
the scans as `number_scans` does, or in `pairs.txt`, which names the files. Both are in the folder or in
`folder-evaluation`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wsdesc.cloud.scan_files import natural_order
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import Floats
from wsdesc.datasets.scans import number_scans, scan_files

PAIRS = "pairs.txt"  # ground truth that names files

_FRAGMENT = re.compile(r"cloud_bin_(\d+)\.ply")
_PUBLIC = {False: "3DMatch", True: "3DLoMatch"}  # folders of the ground truth, as published


class LogEntry(NamedTuple):
    """Entry of a gt.log: two of `n` fragments, and the pose of fragment j in the frame of fragment i."""

    i: int
    j: int
    n: int
    T_i_j: Floats  # (4, 4)


class InfoEntry(NamedTuple):
    """Entry of a gt.info: two of `n` fragments, and Λ = Σ GᵀG, G = [I | −[p]×], over common points p."""

    i: int
    j: int
    n: int
    information: Floats  # (6, 6), in the frame of fragment i


@dataclass(frozen=True)
class FragmentScene:
    """Scans of one scene by their number."""

    name: str
    folder: Path
    fragments: dict[int, Path] = field(repr=False)

    def truth_files(self, low_overlap: bool = False) -> list[Path]:
        """List where the ground truth of the pairs may be, in the order of search."""
        beside = self.folder.with_name(f"{self.folder.name}-evaluation{'-lo' if low_overlap else ''}")
        above = self.folder.resolve().parent
        public = [folder / _PUBLIC[low_overlap] / self.name for folder in (above, above.parent)]
        files = [folder / "gt.log" for folder in (beside, *public)]
        if not low_overlap:
            files += [self.folder / "gt.log", beside / PAIRS, self.folder / PAIRS]
        return files

    def find_truth(self, low_overlap: bool = False) -> Path:
        """Find the ground truth of the pairs: a gt.log, or a pairs.txt.

        Raises:
            FileFormatError: None of `truth_files` exists.
        """
        files = self.truth_files(low_overlap)
        for path in files:
            if path.is_file():
                return path
        expected = f"{files[0]}" if low_overlap else f"{files[0]} or {files[-1]}"
        raise FileFormatError(f"{self.folder}: no ground truth; expected {expected}")

    def read_truth(self, low_overlap: bool = False) -> list[LogEntry]:
        """Read the pairs and poses of the ground truth, in the order of its file."""
        path = self.find_truth(low_overlap)
        return read_pairs(path, self.fragments) if path.name == PAIRS else read_log(path)


def find_scenes(root: str | Path) -> list[FragmentScene]:
    """Find the scenes at `root` or one level below it.

    A folder of fragments cloud_bin_k.ply is a scene. Without such a folder, a folder of other scans with a
    ground truth is a scene.

    Raises:
        FileFormatError: The folder does not exist.
        InputError: No scene is found.
    """
    root = Path(root)
    if not root.is_dir():
        raise FileFormatError(f"{root}: no such folder")
    folders = [root, *sorted((p for p in root.iterdir() if p.is_dir()), key=natural_order)]
    scenes = [FragmentScene(folder.resolve().name, folder, find_fragments(folder)) for folder in folders]
    scenes = [scene for scene in scenes if scene.fragments]
    if not scenes:
        scenes = [FragmentScene(folder.resolve().name, folder, _numbered(folder)) for folder in folders]
        scenes = [scene for scene in scenes if scene.fragments and _has_truth(scene)]
    if not scenes:
        raise InputError(
            f"{root}: no scene found; a scene is a folder of scans with a gt.log (pairs by number) or a "
            f"{PAIRS} (pairs by file name)"
        )
    return scenes


def find_fragments(folder: str | Path) -> dict[int, Path]:
    """Find the files cloud_bin_k.ply of a folder, by k in ascending order."""
    matches = ((_FRAGMENT.fullmatch(path.name), path) for path in Path(folder).iterdir() if path.is_file())
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def _numbered(folder: Path) -> dict[int, Path]:
    return number_scans([path for path in scan_files(folder) if path.name != PAIRS])


def _has_truth(scene: FragmentScene) -> bool:
    return any(path.is_file() for low_overlap in (False, True) for path in scene.truth_files(low_overlap))


def read_pairs(path: str | Path, scans: Mapping[int, Path]) -> list[LogEntry]:
    """Read a pairs.txt: like a gt.log, but the first line of an entry names two files.

        room a.ply "room b.ply"

    is followed by the four rows of the pose that maps the second scan into the frame of the first. Names with
    spaces are quoted. Lines that begin with # are comments.

    Args:
        path: The file.
        scans: The scans by number.

    Raises:
        FileFormatError: The file cannot be read, or names a scan that is not in `scans`.
    """
    path = Path(path)
    numbers = {scan.name: number for number, scan in scans.items()}
    lines = [line for line in _lines(path) if not line[1].lstrip().startswith("#")]
    entries = []
    for at in range(0, len(lines), 5):
        line, text = lines[at]
        try:
            names = shlex.split(text)
        except ValueError:
            names = []
        if len(names) != 2:
            raise FileFormatError(f"{path}, line {line}: not two file names: {text.strip()!r}")
        for name in names:
            if name not in numbers:
                raise FileFormatError(f"{path}, line {line}: no scan {name!r} in the folder")
        T = _matrix(path, line, lines[at + 1 : at + 5], 4)
        _check_pose(path, line + 4, T)
        entries.append(LogEntry(numbers[names[0]], numbers[names[1]], len(scans), T))
    return entries


def read_log(path: str | Path) -> list[LogEntry]:
    """Read a gt.log, or a result in the same format."""
    path = Path(path)
    entries = []
    for line, header, T in _blocks(path, 4):
        _check_pose(path, line + 4, T)
        entries.append(LogEntry(*header, T))
    return entries


def read_info(path: str | Path) -> list[InfoEntry]:
    """Read a gt.info."""
    return [InfoEntry(*header, information) for _, header, information in _blocks(Path(path), 6)]


def write_log(path: str | Path, entries: Iterable[LogEntry]) -> None:
    """Write a gt.log; `read_log` and the benchmark's own tools read the same numbers."""
    _write(Path(path), 4, entries)


def write_info(path: str | Path, entries: Iterable[InfoEntry]) -> None:
    """Write a gt.info; `read_info` reads the same numbers."""
    _write(Path(path), 6, entries)


def read_pose(path: str | Path) -> Floats:
    """Read T_world_fragment (4, 4) from a cloud_bin_k.info.txt: a line of names, then the matrix."""
    path = Path(path)
    lines = _lines(path)
    if len(lines) != 5:
        raise FileFormatError(
            f"{path}: expected a line of names and 4 rows of a matrix, got {len(lines)} lines"
        )
    T = np.array([_row(path, number, text, 4) for number, text in lines[1:]])
    _check_pose(path, lines[-1][0], T)
    return T


def _lines(path: Path) -> list[tuple[int, str]]:
    """Read the lines that are not blank, with their numbers from 1."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise FileFormatError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: cannot be read as text ({error})") from error
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _blocks(path: Path, size: int) -> Iterator[tuple[int, tuple[int, int, int], Floats]]:
    """Read the entries: number of the first line, the three numbers in it, and the matrix below."""
    lines = _lines(path)
    for at in range(0, len(lines), size + 1):
        number, text = lines[at]
        try:
            i, j, n = (int(word) for word in text.split())
        except ValueError:
            raise FileFormatError(
                f"{path}, line {number}: not three whole numbers: {text.strip()!r}"
            ) from None
        if min(i, j) < 0:
            raise FileFormatError(f"{path}, line {number}: fragments are numbered from 0: {text.strip()!r}")
        yield number, (i, j, n), _matrix(path, number, lines[at + 1 : at + 1 + size], size)


def _matrix(path: Path, number: int, lines: list[tuple[int, str]], size: int) -> Floats:
    """Parse the rows of a matrix (size, size) below line `number`."""
    if len(lines) < size:
        raise FileFormatError(f"{path}, line {number}: {size} rows of a matrix must follow, the file ends")
    return np.array([_row(path, *line, size) for line in lines])


def _row(path: Path, number: int, text: str, size: int) -> list[float]:
    try:
        row = [float(word) for word in text.split()]
    except ValueError:
        row = []
    if len(row) != size or not np.isfinite(row).all():
        raise FileFormatError(f"{path}, line {number}: not {size} finite numbers: {text.strip()!r}")
    return row


def _check_pose(path: Path, line: int, T: Floats) -> None:
    if not np.allclose(T[3], (0, 0, 0, 1), atol=1e-6):
        raise FileFormatError(
            f"{path}, line {line}: the last row of a pose must be 0 0 0 1, not {T[3].tolist()}"
        )


def _write(path: Path, size: int, entries: Iterable[LogEntry] | Iterable[InfoEntry]) -> None:
    text = []
    for i, j, n, values in entries:
        matrix = np.asarray(values, dtype=np.float64)
        if matrix.shape != (size, size) or not np.isfinite(matrix).all():
            raise InputError(f"the matrix of the pair {i} {j} must be ({size}, {size}) and finite")
        text += [f"{i}\t {j}\t {n}", *(" ".join(map(repr, row)) for row in matrix.tolist())]
    with atomic_write(path) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
