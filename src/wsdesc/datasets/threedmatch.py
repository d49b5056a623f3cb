"""The layout of the 3DMatch benchmark: fragments, their poses, and the ground truth of pairs.

root/scene/cloud_bin_0.ply …                     fragments
root/scene/cloud_bin_0.info.txt …                their poses, where known
root/scene-evaluation/{gt.log, gt.info}          pairs with their relative poses and information matrices
root/scene-evaluation-lo/{gt.log, gt.info}       the same for pairs that overlap little
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.datasets.scans import natural_order

_FRAGMENT = re.compile(r"cloud_bin_(\d+)\.ply")


class LogEntry(NamedTuple):
    """Two fragments of a scene of `n`, and the motion that maps fragment j into the frame of i."""

    i: int
    j: int
    n: int
    T_i_j: NDArray[np.float64]  # (4, 4)


class InfoEntry(NamedTuple):
    """Two fragments of a scene of `n`, and Λ = Σ GᵀG, G = [I | −[p]×], over common points p in frame i."""

    i: int
    j: int
    n: int
    information: NDArray[np.float64]  # (6, 6)


@dataclass(frozen=True)
class FragmentScene:
    """Fragments of one scene by their number, in its order, and where its ground truth is."""

    name: str
    folder: Path
    fragments: dict[int, Path] = field(repr=False)

    def evaluation(self, low_overlap: bool = False) -> Path:
        """The folder of gt.log and gt.info, of pairs that overlap well or little; it need not exist."""
        return self.folder.with_name(f"{self.folder.name}-evaluation{'-lo' if low_overlap else ''}")

    def pairs(self, low_overlap: bool = False) -> list[tuple[LogEntry, InfoEntry]]:
        """The pairs of the ground truth with their poses and information matrices, in the order of gt.log."""
        folder = self.evaluation(low_overlap)
        information = {(entry.i, entry.j): entry for entry in read_info(folder / "gt.info")}
        log = read_log(folder / "gt.log")
        for entry in log:
            if (entry.i, entry.j) not in information:
                raise FileFormatError(f"{folder / 'gt.info'}: lacks the pair {entry.i} {entry.j} of gt.log")
            for number in (entry.i, entry.j):
                if number not in self.fragments:
                    raise FileFormatError(
                        f"{folder / 'gt.log'}: names fragment {number}, which {self.folder} lacks"
                    )
        return [(entry, information[entry.i, entry.j]) for entry in log]


def find_scenes(root: str | Path) -> list[FragmentScene]:
    """The scenes below `root`, or `root` itself if it holds fragments."""
    root = Path(root)
    if not root.is_dir():
        raise FileFormatError(f"{root}: there is no such folder")
    folders = [root, *sorted((p for p in root.iterdir() if p.is_dir()), key=natural_order)]
    scenes = [FragmentScene(folder.resolve().name, folder, find_fragments(folder)) for folder in folders]
    scenes = [scene for scene in scenes if scene.fragments]
    if not scenes:
        raise InputError(f"{root}: no scene here; one is a folder of cloud_bin_0.ply, cloud_bin_1.ply, …")
    return scenes


def find_fragments(folder: str | Path) -> dict[int, Path]:
    """The files cloud_bin_k.ply of a folder by k, in its order."""
    found = ((_FRAGMENT.fullmatch(path.name), path) for path in Path(folder).iterdir() if path.is_file())
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def read_log(path: str | Path) -> list[LogEntry]:
    """The entries of a gt.log, or of a result in the same form."""
    path = Path(path)
    entries = []
    for line, header, T in _blocks(path, 4):
        _check_pose(path, line + 4, T)
        entries.append(LogEntry(*header, T))
    return entries


def read_info(path: str | Path) -> list[InfoEntry]:
    """The entries of a gt.info."""
    return [InfoEntry(*header, information) for _, header, information in _blocks(Path(path), 6)]


def write_log(path: str | Path, entries: Iterable[LogEntry]) -> None:
    """Write entries so that `read_log` gets the same numbers, and the benchmark's own tools can read them."""
    _write(Path(path), 4, entries)


def write_info(path: str | Path, entries: Iterable[InfoEntry]) -> None:
    """Write entries so that `read_info` gets the same numbers."""
    _write(Path(path), 6, entries)


def read_pose(path: str | Path) -> NDArray[np.float64]:
    """T_world_fragment (4, 4) of a cloud_bin_k.info.txt: a line of names, then the matrix."""
    path = Path(path)
    lines = _lines(path)
    if len(lines) != 5:
        raise FileFormatError(f"{path}: a pose has a line of names and 4 of a matrix, this has {len(lines)}")
    T = np.array([_row(path, number, text, 4) for number, text in lines[1:]])
    _check_pose(path, lines[-1][0], T)
    return T


def _lines(path: Path) -> list[tuple[int, str]]:
    """Lines that are not blank, with their numbers from 1."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise FileFormatError(f"{path}: there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: cannot be read as text ({error})") from error
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _blocks(path: Path, size: int) -> Iterator[tuple[int, tuple[int, int, int], NDArray[np.float64]]]:
    """For each entry the number of its first line, the three numbers there, and the matrix that follows."""
    lines = _lines(path)
    for at in range(0, len(lines), size + 1):
        number, text = lines[at]
        block = lines[at + 1 : at + 1 + size]
        try:
            i, j, n = (int(word) for word in text.split())
        except ValueError:
            raise FileFormatError(
                f"{path}, line {number}: not three whole numbers: {text.strip()!r}"
            ) from None
        if min(i, j) < 0:
            raise FileFormatError(f"{path}, line {number}: fragments are numbered from 0: {text.strip()!r}")
        if len(block) < size:
            raise FileFormatError(
                f"{path}, line {number}: {size} lines of a matrix should follow, the file ends"
            )
        yield number, (i, j, n), np.array([_row(path, *line, size) for line in block])


def _row(path: Path, number: int, text: str, size: int) -> list[float]:
    try:
        row = [float(word) for word in text.split()]
    except ValueError:
        row = []
    if len(row) != size or not np.isfinite(row).all():
        raise FileFormatError(f"{path}, line {number}: not {size} finite numbers: {text.strip()!r}")
    return row


def _check_pose(path: Path, line: int, T: NDArray[np.float64]) -> None:
    if not np.allclose(T[3], (0, 0, 0, 1), atol=1e-6):
        raise FileFormatError(
            f"{path}, line {line}: the last row of a motion is 0 0 0 1, not {T[3].tolist()}"
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
