"""The demonstration: two scans of a synthetic room, one put somewhere else, brought together again.

Everything is made from a seed and the true pose is known, so that the result can be told right from wrong.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from wsdesc.cloud.files import write_points
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.datasets.synthetic import RoomPair, room_pair
from wsdesc.evaluation.metrics import rotation_error_deg, translation_error
from wsdesc.registration.pipeline import register
from wsdesc.registration.result import Pose, Registration

ALLOWED = (5.0, 0.10)  # degrees and metres up to which the result counts as right
FILES = ("before_after.png", "source.ply", "target.ply", "aligned.ply", "T_target_source.txt")


@dataclass
class Report:
    """What happened, in numbers; errors are against the known pose."""

    result: Registration
    points: tuple[int, int]  # source, target
    overlap: float  # share of the source that the target truly has too
    moved: tuple[float, float]  # how far the source was from its true pose: degrees, metres
    error: tuple[float, float]  # and how far it is now

    @property
    def right(self) -> bool:
        return self.error[0] < ALLOWED[0] and self.error[1] < ALLOWED[1]


def run(out: Path, seed: int = 0, progress: ProgressHook = no_progress) -> Report:
    """Make two scans, register them, write what came out into the folder `out`.

    `progress` is entered around each step, for example to draw a progress bar.
    """
    _make_folder(out)
    with progress("scan a synthetic room", 0):
        pair = displaced(room_pair(seed), seed)
    result = register(pair.source, pair.target, progress=progress)
    error = pose_error(result.T_target_source, pair.T_target_source)
    with progress("draw and write", 0):
        title = f"after: off by {error[0]:.2f}° and {100 * error[1]:.1f} cm"
        write(out, pair, result.T_target_source, title)
    return Report(
        result=result,
        points=(len(pair.source), len(pair.target)),
        overlap=pair.overlap,
        moved=pose_error(np.eye(4), pair.T_target_source),
        error=error,
    )


def displaced(pair: RoomPair, seed: int) -> RoomPair:
    """The same pair with its source turned and moved at random, so that there is something to do."""
    rng = np.random.default_rng([seed, 0xDE])
    T_moved_source = np.eye(4)
    T_moved_source[:3, :3] = Rotation.random(random_state=rng).as_matrix()
    T_moved_source[:3, 3] = rng.uniform(-1.5, 1.5, 3)
    source = move(pair.source, T_moved_source).astype(np.float32)
    return RoomPair(source, pair.target, pair.T_target_source @ np.linalg.inv(T_moved_source), pair.overlap)


def write(out: Path, pair: RoomPair, T_target_source: Pose, title: str) -> None:
    from wsdesc.view.pictures import before_after

    picture, source, target, aligned, pose = (out / name for name in FILES)
    before_after(pair.source, pair.target, T_target_source, picture, title, metres=True)
    write_points(source, pair.source)
    write_points(target, pair.target)
    write_points(aligned, move(pair.source, T_target_source).astype(np.float32))
    with atomic_write(pose) as temporary:
        np.savetxt(temporary, T_target_source, fmt="%.9f")


def move(points: NDArray, T: Pose) -> NDArray[np.float64]:
    """Points (N, 3) under the motion T."""
    return np.asarray(points @ T[:3, :3].T + T[:3, 3])


def pose_error(T: Pose, T_true: Pose) -> tuple[float, float]:
    """Angle in degrees and distance in metres between two poses."""
    return float(rotation_error_deg(T, T_true)), float(translation_error(T, T_true))


def _make_folder(out: Path) -> None:
    """Find out before the work whether its result can be kept."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise FileFormatError(f"{out}: cannot be used as a folder: {error.strerror or error}") from error
