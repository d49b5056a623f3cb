"""Prepare a scan for a benchmark: read, move, downsample, choose keypoints, describe them.

Every random choice depends only on the seed, the scene and the scan's number. It is therefore the same in any
order of the pairs, and in a run that continues an interrupted one.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc.cloud.files import read_points
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.geometry import Floats, make_pose, transform
from wsdesc.evaluation.methods import Method, MethodFailure
from wsdesc.evaluation.scenes import EvaluationScene, read_keypoints
from wsdesc.evaluation.stopwatch import Stopwatch

_FAR = 1000  # extents: float32 loses digits if the origin of a scan is farther away


@dataclass(frozen=True)
class EvaluationScan:
    """Points and keypoints of a scan in its working frame, in the file's unit of length."""

    points: Tensor  # (N, 3) float32
    keypoints: Tensor  # (K, 3) float32, in random order: the first n are a random sample
    T_work_file: Tensor  # (4, 4) float64

    def pose_in_file(self, T_work_other: Tensor) -> Tensor:
        """Convert a pose relative to the working frame into one relative to the frame of the file."""
        T_file_other: Tensor = torch.linalg.inv(self.T_work_file) @ T_work_other
        return T_file_other


def load_scan(
    scene: EvaluationScene,
    number: int,
    *,
    keypoints: int,
    voxel: float,
    rotated: bool,
    seed: int,
    full_cloud: bool = False,
) -> EvaluationScan:
    """Read scan `number` of a scene.

    Args:
        scene: The scene.
        number: The scan's number.
        keypoints: Number of keypoints. The official keypoints are used where the scene has them, else random
            points of the downsampled scan.
        voxel: Voxel size for downsampling, in the file's unit; 0 keeps all points.
        rotated: Rotate the scan at random and shift it by its own extent in a random direction. Without
            the shift the sensor would remain at the origin, and normals could be oriented by that. The
            scan is moved before it is downsampled, as if the sensor had been held differently.
        seed: Seed of the random choices.
        full_cloud: Return all points, with the keypoints of the downsampled scan.
    """
    mixed = zlib.crc32(f"{seed}/{scene.name}/{number}".encode())
    file_points = read_points(scene.scans[number], nonfinite="drop")  # (N, 3) float64
    low, high = file_points.min(0), file_points.max(0)
    extent = (high - low).max()
    T_work_file = np.eye(4)
    if rotated:
        T_work_file = _random_pose(np.random.default_rng(mixed), extent)
    # Move the origin only where it is so far away that float32 would lose digits.
    if np.abs(file_points).max() > _FAR * extent:
        T_work_file[:3, 3] -= T_work_file[:3, :3] @ (0.5 * (low + high))
    moved = torch.from_numpy(transform(file_points, T_work_file))
    points = voxel_downsample(moved, voxel) if voxel > 0 else moved
    if number in scene.keypoints:
        available = moved[torch.from_numpy(read_keypoints(scene.keypoints[number], len(moved)))]
    else:
        available = points
    order = torch.randperm(len(available), generator=torch.Generator().manual_seed(mixed))
    returned = moved if full_cloud else points
    return EvaluationScan(
        returned.float(), available[order[:keypoints]].float(), torch.from_numpy(T_work_file)
    )


def _random_pose(rng: np.random.Generator, shift: float) -> Floats:
    """Draw a rotation and a shift of the given length: (4, 4)."""
    turn, direction = Rotation.from_quat(rng.normal(size=4)), rng.normal(size=3)
    return make_pose(turn.as_matrix(), shift * direction / np.linalg.norm(direction))


@dataclass(frozen=True)
class DescribedScan:
    """A scan and a method's descriptors of its keypoints."""

    scan: EvaluationScan
    descriptors: Tensor | None  # (K, C); None for methods that estimate poses
    failure: str | None = None  # why all pairs with this scan fail
    seconds: float = 0.0  # time of the description


def describe_scan(method: Method, scan: EvaluationScan, unit: float, where: str) -> DescribedScan:
    """Describe the keypoints of a scan.

    Descriptors that are not finite, and errors of a peer, make the scan's pairs fail, with the reason, but do
    not stop the run.
    """
    if method.describer is None:
        return DescribedScan(scan, None)
    stopwatch = Stopwatch(method.device)
    try:
        descriptors = method.describe(scan.points, scan.keypoints, unit, where)
    except MethodFailure as error:
        return DescribedScan(scan, None, str(error))
    seconds = stopwatch.seconds()
    bad = int((~descriptors.isfinite().all(dim=1)).sum())
    failure = f"{where}: {bad} of {len(descriptors)} descriptors are not finite" if bad else None
    return DescribedScan(scan, descriptors, failure, seconds)
