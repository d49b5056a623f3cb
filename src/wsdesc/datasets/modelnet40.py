"""Read ModelNet40 from HDF5 files, and make pairs of its shapes (PRNet and RPM-Net protocols)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.cloud import all_finite, as_points
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import make_pose, transform
from wsdesc.datasets.hdf5 import dataset, open_hdf5

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Shapes:
    """Shapes of a split, in the order of its files."""

    points: NDArray[np.float32]  # (B, N, 3); may be sorted: permute before choosing some
    labels: NDArray[np.int64] | None  # (B,); None if a file has no labels


@dataclass(frozen=True)
class ShapePair:
    """Two clouds of one shape, and the pose of the source in the frame of the target."""

    source: NDArray[np.float32]  # (K, 3)
    target: NDArray[np.float32]  # (K, 3)
    T_target_source: NDArray[np.float64]  # (4, 4)


def split_files(folder: str | Path, split: Split) -> list[Path]:
    """List the HDF5 files of a split.

    They are the files named in train_files.txt or test_files.txt, looked up in `folder` and not checked for
    existence. Without such a list, they are ply_data_train*.h5 or ply_data_test*.h5.
    """
    folder = Path(folder)
    listing = folder / f"{split}_files.txt"
    if listing.is_file():
        try:
            lines = listing.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise FileFormatError(f"{listing}: cannot be read as a list of files ({error})") from error
        names = [line.strip().replace("\\", "/").rsplit("/", 1)[-1] for line in lines]
        listed = [folder / name for name in dict.fromkeys(names) if name]
        if listed:
            return listed
    return sorted(folder.glob(f"ply_data_{split}*.h5"))


def read_split(folder: str | Path, split: Split = "train") -> Shapes:
    """Read all shapes of a split and their labels."""
    files = split_files(folder, split)
    if not files:
        raise InputError(f"{folder}: neither {split}_files.txt nor ply_data_{split}*.h5 found")
    points = [read_shapes(file) for file in files]
    for file, shapes in zip(files, points, strict=True):
        if shapes.shape[1] != points[0].shape[1]:
            raise FileFormatError(
                f"{file}: its shapes have {shapes.shape[1]} points, those of {files[0].name} have "
                f"{points[0].shape[1]}"
            )
        if not all_finite(shapes):
            raise FileFormatError(f"{file}: some coordinates are not finite")
    labels = [_labels(file, len(shapes)) for file, shapes in zip(files, points, strict=True)]
    present = [values for values in labels if values is not None]
    complete = len(present) == len(labels)
    return Shapes(np.concatenate(points), np.concatenate(present) if complete else None)


def read_shapes(path: Path, row: int | None = None) -> NDArray[np.float32]:
    """Read all shapes (B, N, 3) of an HDF5 file, or one of them (1, N, 3); values may be NaN."""
    with open_hdf5(path) as file:
        count = _shape(path, file)[0]
        if row is not None and not 0 <= row < count:
            raise FileFormatError(f"{path}: no shape {row}, the file has {count} shapes")
        data = file["data"][slice(row, None if row is None else row + 1)]
    return np.ascontiguousarray(data[..., :3], dtype=np.float32)


def count_shapes(path: Path) -> int:
    """Count the shapes of an HDF5 file without reading them."""
    with open_hdf5(path) as file:
        return _shape(path, file)[0]


def class_names(folder: str | Path) -> list[str]:
    """Read the names of the labels from shape_names.txt."""
    path = Path(folder) / "shape_names.txt"
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: cannot be read ({error})") from error


def item_generator(seed: int, item: int) -> np.random.Generator:
    """Create the generator of one item: the item does not depend on the order in which items are made."""
    return np.random.default_rng((seed, item))


def partial_pair(
    shape: Any,
    generator: np.random.Generator,
    *,
    points: int = 1024,
    keep: int = 768,
    noise: float = 0.0,
    max_angle: float = 45.0,
    max_shift: float = 0.5,
) -> ShapePair:
    """Make two partial clouds with the same samples (PRNet protocol).

    Both clouds are permutations of the same points; the target is transformed by a random pose. Each cloud
    keeps the points nearest, in its own frame, to one far point: ±(500, 500, 500) plus U[0, 1]³, the same for
    both. The pose has the rotation Rx Ry Rz.

    Args:
        shape: Points (N, 3).
        generator: Source of all random numbers.
        points: Number of points before the crop.
        keep: Number of points of each cloud.
        noise: Standard deviation of the noise before the crop, clipped at five times that. The protocol's
            noisy set has 0.01.
        max_angle: Largest angle about each axis, in degrees.
        max_shift: Largest translation along each axis.
    """
    shape = _shape_points(shape, points)
    if not 1 <= keep <= points:
        raise InputError(f"keep must be between 1 and points ({points}), not {keep}")
    source = shape[generator.permutation(len(shape))[:points]]
    T_target_source = _random_pose(generator, max_angle, max_shift)
    target = transform(source, T_target_source)[generator.permutation(points)]
    source, target = (_add_noise(cloud, noise, generator) for cloud in (source, target))
    far = generator.choice((-1, 1)) * np.full(3, 500.0) + generator.random(3)
    source, target = (
        _nearest(cloud, np.linalg.norm(cloud - far, axis=1), keep) for cloud in (source, target)
    )
    return ShapePair(source.astype(np.float32), target.astype(np.float32), T_target_source)


def independent_pair(
    shape: Any,
    generator: np.random.Generator,
    *,
    points: int = 1024,
    keep: float = 0.7,
    noise: float = 0.01,
    max_angle: float = 45.0,
    max_shift: float = 0.5,
) -> ShapePair:
    """Make two partial clouds with independent samples (RPM-Net protocol).

    Each cloud is an own sample of the shape. It keeps a share of the points on one side of a plane, whose
    normal is uniform over all directions and drawn for each cloud. The source is transformed by a random pose
    with the rotation Rx Ry Rz; `T_target_source` is its inverse.

    Args:
        shape: Points (N, 3), N ≥ 2 `points`.
        generator: Source of all random numbers.
        points: Number of points of a sample.
        keep: Share of the points that each cloud keeps.
        noise: Standard deviation of the noise, added last and clipped at five times that.
        max_angle: Largest angle about each axis, in degrees: 45, or 180 for all rotations.
        max_shift: Largest translation along each axis.
    """
    shape = _shape_points(shape, points)
    if len(shape) < 2 * points:  # smaller shapes would give samples with common points
        raise InputError(
            f"two independent samples of {points} points need a shape of {2 * points}, this has {len(shape)}"
        )
    if not 0 < keep <= 1:
        raise InputError(f"keep must be above 0 and at most 1, not {keep}")
    clouds = []
    for _ in range(2):
        cloud = shape[generator.permutation(len(shape))[:points]]
        normal = generator.normal(size=3)  # of arbitrary length
        clouds.append(_nearest(cloud, cloud @ normal, math.ceil(keep * points)))
    source, target = clouds
    T_source_target = _random_pose(generator, max_angle, max_shift)
    source = _add_noise(transform(source, T_source_target), noise, generator)
    target = _add_noise(target, noise, generator)
    R_target_source = T_source_target[:3, :3].T
    T_target_source = make_pose(R_target_source, -R_target_source @ T_source_target[:3, 3])
    return ShapePair(source.astype(np.float32), target.astype(np.float32), T_target_source)


def _shape(path: Path, file: Any) -> tuple[int, int, int]:
    """Return the shape of the dataset 'data', after checking that it holds points."""
    data = dataset(path, file, "data")
    if data is None:
        names = ", ".join(map(str, file)) or "none"
        raise FileFormatError(f"{path}: no dataset 'data' (datasets of the file: {names})")
    shape = data.shape
    if len(shape) != 3 or shape[1] < 1 or shape[2] < 3 or data.dtype.kind not in "iuf":
        raise FileFormatError(f"{path}: 'data' must be numbers of shape (shapes, points, 3), not {shape}")
    return shape  # type: ignore[no-any-return]


def _labels(path: Path, count: int) -> NDArray[np.int64] | None:
    with open_hdf5(path) as file:
        if "label" not in file:
            return None
        data = dataset(path, file, "label")
        labels = np.empty(0) if data is None else np.asarray(data).reshape(-1)
    if len(labels) != count or labels.dtype.kind not in "iu":
        raise FileFormatError(f"{path}: 'label' must be {count} whole numbers")
    return labels.astype(np.int64)


def _shape_points(shape: Any, points: int) -> np.ndarray:
    array = as_points(shape).astype(np.float64)
    if not 1 <= points <= len(array):
        raise InputError(f"cannot choose {points} points from a shape of {len(array)}")
    return array


def _random_pose(generator: np.random.Generator, max_angle: float, max_shift: float) -> NDArray[np.float64]:
    """Draw a pose (4, 4): Rx Ry Rz, angles U[0, max_angle] in degrees, shift U[−max_shift, max_shift]³."""
    angles = np.radians(generator.uniform(0, max_angle, 3))
    (sx, sy, sz), (cx, cy, cz) = np.sin(angles), np.cos(angles)
    T = np.eye(4)
    T[:3, :3] = (
        np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
        @ np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
        @ np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    )
    T[:3, 3] = generator.uniform(-max_shift, max_shift, 3)
    return T


def _add_noise(points: np.ndarray, noise: float, generator: np.random.Generator) -> np.ndarray:
    return points + np.clip(generator.normal(0, noise, points.shape), -5 * noise, 5 * noise)


def _nearest(points: np.ndarray, distance: np.ndarray, keep: int) -> np.ndarray:
    """Select the `keep` points with the smallest distances, in their order."""
    nearest: np.ndarray = points[np.sort(np.argsort(distance, kind="stable")[:keep])]
    return nearest
