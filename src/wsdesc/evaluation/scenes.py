"""Scenes with ground truth: scans, the true poses of pairs, and the files of official keypoints.

The layouts are those of `wsdesc.datasets.threedmatch`. The public benchmark lists 5 000 keypoints per scan as
indices into its points, one per line, in cloud_bin_kKeypoints.txt. That file is read where it lies beside the
scan, or in a folder 01_Keypoints of the scene or of its evaluation folder.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.errors import FileFormatError
from wsdesc.core.geometry import Floats
from wsdesc.datasets.threedmatch import FragmentScene, LogEntry, find_fragments, find_scenes, read_info


@dataclass(frozen=True)
class PairTruth:
    """The true pose of a pair: it maps scan j, the source, into the frame of scan i, the target."""

    i: int
    j: int
    T_i_j: Floats  # (4, 4)
    information: Floats | None = None  # (6, 6), needed for R1


@dataclass(frozen=True)
class EvaluationScene:
    """Scans of one scene and the pairs to evaluate."""

    name: str
    scans: dict[int, Path] = field(repr=False)
    pairs: list[PairTruth] = field(repr=False)
    keypoints: dict[int, Path] = field(default_factory=dict, repr=False)  # files of official indices
    missing: list[str] = field(default_factory=list)  # scans of the ground truth without a file
    pairs_left_out: int = 0  # pairs with a missing scan
    digest: str = ""  # hash of the ground truth; results of another one are not continued

    def note(self) -> str | None:
        """Name the missing scans in one line; None if all exist."""
        if not self.missing:
            return None
        verb = "scans are" if len(self.missing) > 1 else "scan is"
        return (
            f"{self.name}: {verb} missing ({', '.join(self.missing)}); {self.pairs_left_out} pairs left out"
        )


def read_scenes(root: str | Path, low_overlap: bool = False) -> list[EvaluationScene]:
    """Read the scenes at or below `root` with the ground truth of their pairs.

    R1 is evaluated only where a scene has a gt.info beside its gt.log. Pairs of missing scans are left out,
    and the missing scans are named in the result.

    Raises:
        FileFormatError: A file is missing or cannot be read; the message names the line.
        InputError: `root` holds no scene.
    """
    return [_read_scene(scene, low_overlap) for scene in find_scenes(root)]


def _read_scene(scene: FragmentScene, low_overlap: bool) -> EvaluationScene:
    truth = scene.find_truth(low_overlap)
    folders = [folder / name for folder in (scene.folder, truth.parent) for name in ("", "01_Keypoints")]
    keypoints = {number: find_keypoints(folders, path.stem) for number, path in scene.fragments.items()}
    return make_scene(
        scene.name,
        truth.parent,
        scene.fragments,
        with_information(scene.read_truth(low_overlap), truth.with_suffix(".info")),
        {number: path for number, path in keypoints.items() if path},
        scan_name="cloud_bin_{}.ply" if find_fragments(scene.folder) else "scan {}",
    )


def with_information(entries: Sequence[LogEntry], info: Path) -> list[PairTruth]:
    """Add the information matrices of a gt.info to entries of its gt.log; the file may be missing."""
    if not info.is_file():
        return [PairTruth(entry.i, entry.j, entry.T_i_j) for entry in entries]
    matrices = {(entry.i, entry.j): entry.information for entry in read_info(info)}
    for entry in entries:
        if (entry.i, entry.j) not in matrices:
            raise FileFormatError(f"{info}: lacks the pair {entry.i} {entry.j} of gt.log")
    return [PairTruth(entry.i, entry.j, entry.T_i_j, matrices[entry.i, entry.j]) for entry in entries]


def make_scene(
    name: str,
    folder: Path,
    scans: dict[int, Path],
    pairs: Sequence[PairTruth],
    keypoints: dict[int, Path] | None = None,
    scan_name: str = "{}",
) -> EvaluationScene:
    """Build a scene from the pairs whose scans exist.

    Args:
        name: The scene's name.
        folder: Folder of the ground truth, for error messages.
        scans: Files by scan number.
        pairs: The ground truth.
        keypoints: Files of official keypoints by scan number.
        scan_name: Format of a missing scan's name.
    """
    complete = [pair for pair in pairs if {pair.i, pair.j} <= scans.keys()]
    missing = sorted({n for pair in pairs for n in (pair.i, pair.j) if n not in scans})
    if not complete:
        raise FileFormatError(f"{folder}: the ground truth has no pair whose two scans exist")
    return EvaluationScene(
        name=name,
        scans=scans,
        pairs=complete,
        keypoints=keypoints or {},
        missing=[scan_name.format(number) for number in missing],
        pairs_left_out=len(pairs) - len(complete),
        digest=_digest(pairs),
    )


def _digest(pairs: Sequence[PairTruth]) -> str:
    content = hashlib.sha256()
    for pair in pairs:
        content.update(np.array([pair.i, pair.j], dtype=np.int64).tobytes())
        content.update(np.ascontiguousarray(pair.T_i_j, dtype=np.float64).tobytes())
    return content.hexdigest()[:16]


def find_keypoints(folders: Sequence[Path], stem: str) -> Path | None:
    """Find a scan's list of official keypoints; copies of the data set spell its name differently."""
    names = (f"{stem}Keypoints.txt", f"{stem} Keypoints.txt", f"{stem}_Keypoints.txt")
    return next((path for folder in folders for name in names if (path := folder / name).is_file()), None)


def read_keypoints(path: Path, count: int) -> NDArray[np.int64]:
    """Read indices (K,) of keypoints among the `count` points of a scan's file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about empty files, which are an error below
            indices = np.loadtxt(path, ndmin=1).reshape(-1)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: not a list of indices ({error})") from error
    with np.errstate(invalid="ignore"):  # NaN becomes an index that is refused below
        whole = indices.astype(np.int64)
    if len(whole) == 0 or (whole != indices).any() or whole.min() < 0 or whole.max() >= count:
        raise FileFormatError(f"{path}: expected indices from 0 to {count - 1}, one per line")
    return whole
