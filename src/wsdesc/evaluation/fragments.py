"""A fragment as a method meets it: moved, thinned, its keypoints chosen and described.

Every random choice depends on the seed, the scene and the number of the fragment alone, so that it is the
same in whatever order pairs are judged, and in a run that was interrupted.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc.cloud.files import read_points
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.scenes import TestScene, read_keypoints

_FAR = 1000  # extents of a cloud


@dataclass(frozen=True)
class Fragment:
    """A cloud, turned and shifted at random if asked for, in the file's unit of length."""

    points: Tensor  # (N, 3) float32
    keys: Tensor  # (K, 3) float32, in random order: the first n of them are a random sample
    T_work_file: Tensor  # (4, 4) float64

    def file_motion(self, T_work_other: Tensor) -> Tensor:
        """A motion into this fragment's frame as one into the frame of its file."""
        T_file_other: Tensor = torch.linalg.inv(self.T_work_file) @ T_work_other
        return T_file_other


def load_fragment(
    scene: TestScene, number: int, *, keypoints: int, voxel: float, rotated: bool, seed: int
) -> Fragment:
    """Fragment `number`; `voxel` is the side of the cells it is thinned by, 0 keeps all points.

    `rotated` turns the cloud at random and shifts it by its own extent, in a random direction. Turned alone,
    it would still have its camera in the origin, and normals could be told from there in from out. It is
    moved before it is thinned, as a scanner that was held otherwise would see it. Keypoints are the official
    ones where the scene has them, else random points of the thinned cloud.
    """
    mixed = zlib.crc32(f"{seed}/{scene.name}/{number}".encode())
    file_points = read_points(scene.fragments[number], nonfinite="drop")  # (N, 3) float64
    low, high = file_points.min(0), file_points.max(0)
    extent = (high - low).max()
    T_work_file = np.eye(4)
    if rotated:
        T_work_file = _random_motion(np.random.default_rng(mixed), extent)
    # The origin stays where it was else, unless it is so far away that float32 would lose the digits.
    if np.abs(file_points).max() > _FAR * extent:
        T_work_file[:3, 3] -= T_work_file[:3, :3] @ (0.5 * (low + high))
    moved = torch.from_numpy(file_points @ T_work_file[:3, :3].T + T_work_file[:3, 3])
    points = voxel_downsample(moved, voxel) if voxel > 0 else moved
    if number in scene.keypoints:
        candidates = moved[torch.from_numpy(read_keypoints(scene.keypoints[number], len(moved)))]
    else:
        candidates = points
    order = torch.randperm(len(candidates), generator=torch.Generator().manual_seed(mixed))
    return Fragment(points.float(), candidates[order[:keypoints]].float(), torch.from_numpy(T_work_file))


def _random_motion(rng: np.random.Generator, shift: float) -> NDArray[np.float64]:
    """(4, 4): any rotation, and a shift of that length in any direction."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_quat(rng.normal(size=4)).as_matrix()
    direction = rng.normal(size=3)
    T[:3, 3] = shift * direction / np.linalg.norm(direction)
    return T


@dataclass(frozen=True)
class Described:
    """A fragment and what a method says of its keypoints."""

    fragment: Fragment
    features: Tensor | None  # (K, C); None for methods that estimate poses
    failure: str | None = None  # why the method's pairs with this fragment count as failed


def describe_fragment(method: Method, fragment: Fragment, unit: float, where: str) -> Described:
    """Describe the keypoints. Descriptors that are not finite make the fragment's pairs fail, with a reason:
    an hour of other pairs is not lost to them, and no figure hides them."""
    if method.describer is None:
        return Described(fragment, None)
    features = method.describe(fragment.points, fragment.keys, unit, where)
    bad = int((~features.isfinite().all(dim=1)).sum())
    failure = f"{where}: {bad} of {len(features)} descriptors are not finite" if bad else None
    return Described(fragment, features, failure)
