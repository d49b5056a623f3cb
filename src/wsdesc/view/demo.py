"""The demo: register two scans of a synthetic room, and compare the result with the true pose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from wsdesc.cloud.files import write_points
from wsdesc.core.atomic import atomic_write
from wsdesc.core.folders import make_folder
from wsdesc.core.geometry import inverse, make_pose, transform
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.datasets.synthetic import RoomPair, room_pair
from wsdesc.evaluation.metrics import rotation_error_deg, translation_error
from wsdesc.registration.pipeline import register
from wsdesc.registration.result import Pose, Registration

MAX_ERROR = (5.0, 0.10)  # degrees and metres up to which the pose counts as right
FILES = ("before_after.png", "source.ply", "target.ply", "aligned.ply", "T_target_source.txt")


@dataclass
class DemoReport:
    """Result of the demo, and its errors against the true pose."""

    result: Registration
    points: tuple[int, int]  # points of source and target
    overlap: float  # true share of the source's points with a partner in the target
    start_error: tuple[float, float]  # degrees and metres before the registration
    error: tuple[float, float]  # degrees and metres after it

    @property
    def right(self) -> bool:
        """True if the pose differs from the true one by less than `MAX_ERROR`."""
        return self.error[0] < MAX_ERROR[0] and self.error[1] < MAX_ERROR[1]


def run_demo(out: Path, seed: int = 0, progress: ProgressHook = no_progress) -> DemoReport:
    """Register two synthetic scans and write `FILES` into the folder `out`."""
    make_folder(out)
    with progress("scan a synthetic room", 0):
        pair = displace(room_pair(seed), seed)
    result = register(pair.source, pair.target, progress=progress)
    error = pose_error(result.T_target_source, pair.T_target_source)
    with progress("draw and write", 0):
        title = f"after: {error[0]:.2f}° and {100 * error[1]:.1f} cm from the true pose"
        write_files(out, pair, result.T_target_source, title)
    return DemoReport(
        result=result,
        points=(len(pair.source), len(pair.target)),
        overlap=pair.overlap,
        start_error=pose_error(np.eye(4), pair.T_target_source),
        error=error,
    )


def displace(pair: RoomPair, seed: int) -> RoomPair:
    """Rotate and move the source of a pair at random, and adapt the true pose."""
    rng = np.random.default_rng([seed, 0xDE])
    T_displaced_source = make_pose(Rotation.random(random_state=rng).as_matrix(), rng.uniform(-1.5, 1.5, 3))
    source = transform(pair.source.astype(np.float64), T_displaced_source).astype(np.float32)
    T_target_displaced = pair.T_target_source @ inverse(T_displaced_source)
    return RoomPair(source, pair.target, T_target_displaced, pair.overlap)


def write_files(out: Path, pair: RoomPair, T_target_source: Pose, title: str) -> None:
    """Write the picture, both scans, the aligned source and the pose."""
    from wsdesc.view.pictures import before_after

    picture, source, target, aligned, pose = (out / name for name in FILES)
    before_after(pair.source, pair.target, T_target_source, picture, title, metres=True)
    write_points(source, pair.source)
    write_points(target, pair.target)
    write_points(aligned, transform(pair.source.astype(np.float64), T_target_source).astype(np.float32))
    with atomic_write(pose) as temporary:
        np.savetxt(temporary, T_target_source, fmt="%.9f")


def pose_error(T: Pose, T_true: Pose) -> tuple[float, float]:
    """Return the angle in degrees and the distance in metres between two poses."""
    return float(rotation_error_deg(T, T_true)), float(translation_error(T, T_true))
