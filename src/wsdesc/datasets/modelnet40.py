"""Read ModelNet40 from HDF5 files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.cloud import all_finite
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.datasets.hdf5 import dataset, open_hdf5

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Shapes:
    """Shapes of a split, in the order of its files."""

    points: NDArray[np.float32]  # (B, N, 3); may be sorted: permute before choosing some
    labels: NDArray[np.int64] | None  # (B,); None if a file has no labels


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
