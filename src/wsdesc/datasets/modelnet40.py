"""ModelNet40 as HDF5 files, and pairs of clouds made of its shapes by the protocols of the literature."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.cloud import all_finite, as_points
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.datasets.hdf5 import dataset, open_hdf5

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Shapes:
    """The shapes of a split, in the order of its files."""

    points: NDArray[np.float32]  # (B, N, 3); those of a shape may be sorted: permute before taking a part
    labels: NDArray[np.int64] | None  # (B,), None if a file has none


@dataclass(frozen=True)
class ShapePair:
    """Two clouds of one shape, and how the source moves onto the target."""

    source: NDArray[np.float32]  # (K, 3)
    target: NDArray[np.float32]  # (K, 3)
    T_target_source: NDArray[np.float64]  # (4, 4)


def split_files(folder: str | Path, split: Split) -> list[Path]:
    """The HDF5 files of a split: those that `train_files.txt` or `test_files.txt` lists, whatever folder it
    has them in; without such a list `ply_data_train*.h5` or `ply_data_test*.h5`. Not all need exist.
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
    """All shapes of the split, and their labels."""
    files = split_files(folder, split)
    if not files:
        raise InputError(f"{folder}: has neither {split}_files.txt nor ply_data_{split}*.h5")
    points = [read_shapes(file) for file in files]
    for file, shapes in zip(files, points, strict=True):
        if shapes.shape[1] != points[0].shape[1]:
            counts = f"{shapes.shape[1]} points, those of {files[0].name} have {points[0].shape[1]}"
            raise FileFormatError(f"{file}: its shapes have {counts}")
        if not all_finite(shapes):
            raise FileFormatError(f"{file}: has coordinates that are not finite")
    labels = [_labels(file, len(shapes)) for file, shapes in zip(files, points, strict=True)]
    known = [some for some in labels if some is not None]
    return Shapes(np.concatenate(points), np.concatenate(known) if len(known) == len(labels) else None)


def read_shapes(path: Path, row: int | None = None) -> NDArray[np.float32]:
    """The shapes (B, N, 3) of one HDF5 file, or one of them (1, N, 3). They hold NaN if the file does."""
    with open_hdf5(path) as file:
        count = _shape(path, file)[0]
        if row is not None and not 0 <= row < count:
            raise FileFormatError(f"{path}: has {count} shapes, and none with the number {row}")
        data = file["data"][slice(row, None if row is None else row + 1)]
    return np.ascontiguousarray(data[..., :3], dtype=np.float32)


def count_shapes(path: Path) -> int:
    """How many shapes an HDF5 file has, without reading them."""
    with open_hdf5(path) as file:
        return _shape(path, file)[0]


def class_names(folder: str | Path) -> list[str]:
    """What the labels mean, from `shape_names.txt`."""
    path = Path(folder) / "shape_names.txt"
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: cannot be read ({error})") from error


def item_generator(seed: int, item: int) -> np.random.Generator:
    """A generator for one item of a data set: the item is the same in whatever order they are made."""
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
    """Two partial views that hold the same samples: the protocol of PRNet.

    Both clouds are permutations of the same `points` of the shape (N, 3), the target moved. Each keeps the
    `keep` that are nearest, in its own frame, to one point far away: ±(500, 500, 500) plus U[0, 1]³, the same
    for both. Noise is added to each before, N(0, `noise`) clipped at five times that (0.01 and 0.05 in the
    protocol). The rotation is Rx Ry Rz of angles U[0, `max_angle`] in degrees, the shift
    U[−`max_shift`, `max_shift`]³.
    """
    shape = _shape_points(shape, points)
    if not 1 <= keep <= points:
        raise InputError(f"a cloud of {points} points cannot keep {keep}")
    source = shape[generator.permutation(len(shape))[:points]]
    T_target_source = _random_motion(generator, max_angle, max_shift)
    target = _moved(T_target_source, source)[generator.permutation(points)]
    source, target = (_noisy(cloud, noise, generator) for cloud in (source, target))
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
    """Two partial views with samples of their own: the protocol of RPM-Net.

    Each cloud is its own sample of `points` of the shape (N, 3), N ≥ 2 `points`, and keeps the share `keep`
    on one side of a plane, whose normal is uniform over all directions and drawn for each cloud. The source
    is moved, so `T_target_source` is the inverse of a motion with Rx Ry Rz, angles U[0, `max_angle`] in
    degrees (45, or 180 for all attitudes), and a shift U[−`max_shift`, `max_shift`]³. Noise comes last:
    N(0, `noise`) clipped at five times that.
    """
    shape = _shape_points(shape, points)
    if len(shape) < 2 * points:  # of 1024 points, two samples of 1024 are the same
        raise InputError(
            f"two independent samples of {points} need a shape of {2 * points} points, this has {len(shape)}"
        )
    if not 0 < keep <= 1:
        raise InputError(f"the share of points to keep must be above 0 and at most 1, not {keep}")
    clouds = []
    for _ in range(2):
        cloud = shape[generator.permutation(len(shape))[:points]]
        normal = generator.normal(size=3)  # its length does not matter
        clouds.append(_nearest(cloud, cloud @ normal, math.ceil(keep * points)))
    source, target = clouds
    T_source_target = _random_motion(generator, max_angle, max_shift)
    source = _noisy(_moved(T_source_target, source), noise, generator)
    target = _noisy(target, noise, generator)
    T_target_source = np.eye(4)
    T_target_source[:3, :3] = T_source_target[:3, :3].T
    T_target_source[:3, 3] = -T_source_target[:3, :3].T @ T_source_target[:3, 3]
    return ShapePair(source.astype(np.float32), target.astype(np.float32), T_target_source)


def _shape(path: Path, file: Any) -> tuple[int, int, int]:
    """The shape of the dataset 'data', if it is one of clouds."""
    data = dataset(path, file, "data")
    if data is None:
        names = ", ".join(map(str, file)) or "nothing"
        raise FileFormatError(f"{path}: has no dataset 'data' (it has: {names})")
    found = data.shape
    if len(found) != 3 or found[1] < 1 or found[2] < 3 or data.dtype.kind not in "iuf":
        raise FileFormatError(f"{path}: 'data' should be numbers of shape (shapes, points, 3), not {found}")
    return found  # type: ignore[no-any-return]


def _labels(path: Path, count: int) -> NDArray[np.int64] | None:
    with open_hdf5(path) as file:
        if "label" not in file:
            return None
        found = dataset(path, file, "label")
        labels = np.empty(0) if found is None else np.asarray(found).reshape(-1)
    if len(labels) != count or labels.dtype.kind not in "iu":
        raise FileFormatError(f"{path}: 'label' should be {count} whole numbers")
    return labels.astype(np.int64)


def _shape_points(shape: Any, points: int) -> np.ndarray:
    array = as_points(shape).astype(np.float64)
    if not 1 <= points <= len(array):
        raise InputError(f"{points} points cannot be chosen of a shape that has {len(array)}")
    return array


def _random_motion(generator: np.random.Generator, max_angle: float, max_shift: float) -> NDArray[np.float64]:
    """(4, 4): Rx Ry Rz with an angle U[0, max_angle] each, in degrees, and U[−max_shift, max_shift]³."""
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


def _moved(T: np.ndarray, points: np.ndarray) -> np.ndarray:
    moved: np.ndarray = points @ T[:3, :3].T + T[:3, 3]
    return moved


def _noisy(points: np.ndarray, noise: float, generator: np.random.Generator) -> np.ndarray:
    return points + np.clip(generator.normal(0, noise, points.shape), -5 * noise, 5 * noise)


def _nearest(points: np.ndarray, distance: np.ndarray, keep: int) -> np.ndarray:
    """The `keep` points with the smallest distance, in the order they have."""
    nearest: np.ndarray = points[np.sort(np.argsort(distance, kind="stable")[:keep])]
    return nearest
