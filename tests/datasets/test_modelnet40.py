"""ModelNet40: splits as published."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.spatial import cKDTree

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import transform
from wsdesc.datasets.modelnet40 import read_shapes, read_split, split_files
from wsdesc.datasets.partial_views import item_generator, partial_pair


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create two training files and one test file, all with labels."""
    for name, shapes in (("train0", 3), ("train1", 2), ("test0", 4)):
        with h5py.File(tmp_path / f"ply_data_{name}.h5", "w") as file:
            file["data"] = np.full((shapes, 8, 3), len(name) + shapes, np.float32)
            file["label"] = np.arange(shapes, dtype=np.uint8)[:, None]
    return tmp_path


def test_splits_without_lists(folder):
    assert [path.name for path in split_files(folder, "train")] == [
        "ply_data_train0.h5",
        "ply_data_train1.h5",
    ]
    shapes = read_split(folder)
    assert shapes.points.shape == (5, 8, 3)
    assert shapes.points.dtype == np.float32
    assert shapes.labels.tolist() == [0, 1, 2, 0, 1]
    assert shapes.labels.dtype == np.int64
    assert len(read_split(folder, "test").points) == 4


@pytest.mark.parametrize("form", ["data/modelnet40_ply_hdf5_2048/{}", "{}", "/gone/{}\n", "C:\\data\\{}\r"])
def test_lists_with_any_folder(folder, form):
    (folder / "train_files.txt").write_text(form.format("ply_data_train1.h5") + "\n\n")
    assert split_files(folder, "train") == [folder / "ply_data_train1.h5"]
    assert len(read_split(folder, "train").points) == 2


def test_lists_define_order_and_missing_files(folder):
    (folder / "train_files.txt").write_text("ply_data_train1.h5\nply_data_train0.h5\nply_data_train1.h5\n")
    assert read_split(folder).labels.tolist() == [0, 1, 0, 1, 2]
    (folder / "train_files.txt").write_text("ply_data_train1.h5\nply_data_train7.h5\n")
    with pytest.raises(FileFormatError, match=r"train7\.h5: no such file"):
        read_split(folder)
    (folder / "train_files.txt").write_text("\n")  # an empty list
    assert len(read_split(folder).points) == 5


def test_missing_labels(folder):
    with h5py.File(folder / "ply_data_train1.h5", "a") as file:
        del file["label"]
    assert read_split(folder).labels is None


def test_invalid_splits(folder):
    with pytest.raises(InputError, match="neither test_files"):
        read_split(folder / "nowhere", "test")
    with h5py.File(folder / "ply_data_train1.h5", "a") as file:
        del file["label"]
        file["label"] = np.zeros(7, int)
    with pytest.raises(FileFormatError, match=r"train1\.h5: 'label' must be 2 whole numbers"):
        read_split(folder)
    with h5py.File(folder / "ply_data_train1.h5", "a") as file:
        file["data"][1, 3] = np.nan
    with pytest.raises(FileFormatError, match=r"train1\.h5: .*not finite"):
        read_split(folder)
    with h5py.File(folder / "ply_data_train1.h5", "a") as file:
        del file["data"]
        file["data"] = np.zeros((2, 9, 3))
    with pytest.raises(FileFormatError, match="its shapes have 9 points, those of ply_data_train0"):
        read_split(folder)
    (folder / "train_files.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="cannot be read as a list"):
        read_split(folder)


def test_single_shapes(folder):
    path = folder / "ply_data_train0.h5"
    assert read_shapes(path, 2).shape == (1, 8, 3)
    for row in (-1, 3):
        with pytest.raises(FileFormatError, match=f"no shape {row}, the file has 3 shapes"):
            read_shapes(path, row)


def test_shapes_of_the_data_folder(data_folder):
    folder = data_folder / "modelnet40_ply_hdf5_2048"
    if not folder.is_dir():
        pytest.skip("the data folder has no modelnet40_ply_hdf5_2048")
    shapes = read_split(folder, "test")
    assert shapes.points.shape == (2446, 2048, 3)
    assert shapes.labels.shape == (2446,)
    assert set(shapes.labels.tolist()) == set(range(40))
    assert np.linalg.norm(shapes.points, axis=2).max() < 1.001
    pair = partial_pair(shapes.points[0], item_generator(0, 0))
    assert (cKDTree(pair.target).query(transform(pair.source, pair.T_target_source))[0] < 1e-5).sum() >= 512
