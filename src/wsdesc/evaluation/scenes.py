"""Scenes with known poses: fragments, pairs, and where their keypoints are listed.

The layout is that of 3DMatch (`wsdesc.datasets.threedmatch`). Pairs of little overlap are those of folders
SCENE-evaluation-lo or, as 3DLoMatch was published, of 3DLoMatch/SCENE beside the scenes or a level above.

The keypoints of the public benchmark, 5 000 indices into the points of a fragment's file, are used where they
stand: cloud_bin_kKeypoints.txt, one index a line, beside the fragment or in a folder 01_Keypoints of the
scene or of its evaluation.
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
from wsdesc.datasets.threedmatch import FragmentScene, InfoEntry, LogEntry, find_scenes, read_info


@dataclass(frozen=True)
class PairTruth:
    """Two fragments and the motion that maps j, the source, into the frame of i, the target."""

    i: int
    j: int
    T_i_j: NDArray[np.float64]  # (4, 4)
    information: NDArray[np.float64] | None = None  # (6, 6), where R1 can be judged


@dataclass(frozen=True)
class TestScene:
    """A scene to be judged on. Pairs whose fragments are there; the others are named in `left_out`."""

    __test__ = False  # a scene of the test set, not a test

    name: str
    fragments: dict[int, Path] = field(repr=False)
    pairs: list[PairTruth] = field(repr=False)
    keypoints: dict[int, Path] = field(default_factory=dict, repr=False)  # files of official indices
    absent: list[str] = field(default_factory=list)  # fragments that the truth names and that are not there
    left_out: int = 0  # pairs of those
    digest: str = ""  # of the truth: results on another are others

    def remark(self) -> str | None:
        """What is missing, in a line."""
        if not self.absent:
            return None
        plural = "fragments are" if len(self.absent) > 1 else "fragment is"
        return f"{self.name}: {plural} missing ({', '.join(self.absent)}); {self.left_out} pairs left out"


def read_test_scenes(root: str | Path, low_overlap: bool = False) -> list[TestScene]:
    """The scenes below `root`, or `root` itself, with the truth of their pairs.

    Each needs its gt.log; where it has no gt.info, R1 is not judged. A fragment that gt.log names but the
    scene lacks costs its pairs and is named; a file that cannot be understood is an error with its line.
    """
    return [_read_scene(scene, low_overlap) for scene in find_scenes(root)]


def _read_scene(scene: FragmentScene, low_overlap: bool) -> TestScene:
    truth = scene.find_truth(low_overlap)
    folder, log = truth.parent, scene.read_truth(low_overlap)
    has_info = truth.name == "gt.log" and (folder / "gt.info").is_file()
    info = read_info(folder / "gt.info") if has_info else None
    places = [scene.folder, scene.folder / "01_Keypoints", folder, folder / "01_Keypoints"]
    keypoints = {number: find_keypoints(places, path.stem) for number, path in scene.fragments.items()}
    return make_scene(
        scene.name,
        folder,
        scene.fragments,
        _with_information(folder, log, info),
        {number: path for number, path in keypoints.items() if path},
        fragment_name="cloud_bin_{}.ply",
    )


def make_scene(
    name: str,
    folder: Path,
    fragments: dict[int, Path],
    pairs: Sequence[PairTruth],
    keypoints: dict[int, Path] | None = None,
    fragment_name: str = "{}",
) -> TestScene:
    """A scene of those pairs whose fragments are there."""
    there = [pair for pair in pairs if {pair.i, pair.j} <= fragments.keys()]
    absent = sorted({n for pair in pairs for n in (pair.i, pair.j) if n not in fragments})
    if not there:
        raise FileFormatError(f"{folder}: its ground truth names no pair whose fragments are there")
    return TestScene(
        name,
        fragments,
        there,
        keypoints or {},
        [fragment_name.format(number) for number in absent],
        len(pairs) - len(there),
        _digest(pairs),
    )


def _digest(pairs: Sequence[PairTruth]) -> str:
    content = hashlib.sha256()
    for pair in pairs:
        content.update(np.array([pair.i, pair.j], dtype=np.int64).tobytes())
        content.update(np.ascontiguousarray(pair.T_i_j, dtype=np.float64).tobytes())
    return content.hexdigest()[:16]


def _with_information(folder: Path, log: list[LogEntry], info: list[InfoEntry] | None) -> list[PairTruth]:
    if info is None:
        return [PairTruth(entry.i, entry.j, entry.T_i_j) for entry in log]
    matrices = {(entry.i, entry.j): entry.information for entry in info}
    for entry in log:
        if (entry.i, entry.j) not in matrices:
            raise FileFormatError(f"{folder / 'gt.info'}: lacks the pair {entry.i} {entry.j} of gt.log")
    return [PairTruth(entry.i, entry.j, entry.T_i_j, matrices[entry.i, entry.j]) for entry in log]


def find_keypoints(places: Sequence[Path], stem: str) -> Path | None:
    """The list of keypoints of a fragment; copies of the data set write its name in different ways."""
    names = (f"{stem}Keypoints.txt", f"{stem} Keypoints.txt", f"{stem}_Keypoints.txt")
    return next((path for place in places for name in names if (path := place / name).is_file()), None)


def read_keypoints(path: Path, count: int) -> NDArray[np.int64]:
    """Indices (K,) of keypoints among the `count` points of a fragment's file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it is empty, which is an error below
            indices = np.loadtxt(path, ndmin=1).reshape(-1)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: not a list of indices ({error})") from error
    with np.errstate(invalid="ignore"):  # what is no number becomes an index that is refused
        whole = indices.astype(np.int64)
    if len(whole) == 0 or (whole != indices).any() or whole.min() < 0 or whole.max() >= count:
        raise FileFormatError(f"{path}: should hold indices from 0 to {count - 1}, one a line")
    return whole
