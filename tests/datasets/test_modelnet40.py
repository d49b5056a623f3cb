"""ModelNet40: splits as published, and pairs by the PRNet and RPM-Net protocols."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.datasets.modelnet40 import (
    ShapePair,
    class_names,
    independent_pair,
    item_generator,
    partial_pair,
    read_shapes,
    read_split,
    split_files,
)


def sorted_shape(count: int = 2048, seed: int = 0) -> np.ndarray:
    """Create a bumpy ball in the unit sphere, with sorted points as in the real files."""
    directions = np.random.default_rng(seed).normal(size=(count, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    points = directions * (0.7 + 0.3 * np.sin(5 * directions[:, :1]) * np.cos(4 * directions[:, 1:2]))
    return points[np.lexsort(points.T)].astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create two training files and one test file, all with labels."""
    for name, shapes in (("train0", 3), ("train1", 2), ("test0", 4)):
        with h5py.File(tmp_path / f"ply_data_{name}.h5", "w") as file:
            file["data"] = np.full((shapes, 8, 3), len(name) + shapes, np.float32)
            file["label"] = np.arange(shapes, dtype=np.uint8)[:, None]
    return tmp_path


def transformed(T: np.ndarray, points: np.ndarray) -> np.ndarray:
    return points @ T[:3, :3].T + T[:3, 3]


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


def test_class_names(folder):
    (folder / "shape_names.txt").write_text("airplane\nbathtub\n")
    assert class_names(folder) == ["airplane", "bathtub"]
    with pytest.raises(FileFormatError, match=r"shape_names\.txt"):
        class_names(folder / "nowhere")


MAKERS = [partial(partial_pair, noise=0.01), independent_pair]


@pytest.mark.parametrize("maker", MAKERS)
def test_items_depend_on_their_seed_only(maker: Callable[..., ShapePair]):
    shape = sorted_shape()
    before = shape.copy()
    first, again, other = (maker(shape, item_generator(3, item)) for item in (7, 7, 8))
    np.testing.assert_array_equal(shape, before)
    for name in ("source", "target", "T_target_source"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
        assert not np.array_equal(getattr(first, name), getattr(other, name))
    assert first.source.dtype == first.target.dtype == np.float32
    assert first.T_target_source.dtype == np.float64


def test_partial_pairs_have_the_same_samples():
    shape = sorted_shape()
    for item in range(20):
        pair = partial_pair(shape, item_generator(0, item))
        assert pair.source.shape == pair.target.shape == (768, 3)
        R = pair.T_target_source[:3, :3]
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
        x, y, z = Rotation.from_matrix(R).as_euler("zyx", degrees=True)[::-1]
        assert min(x, y, z) >= 0
        assert max(x, y, z) <= 45
        assert np.abs(pair.T_target_source[:3, 3]).max() <= 0.5
        distance, match = cKDTree(pair.target).query(transformed(pair.T_target_source, pair.source))
        shared = distance < 1e-5
        assert shared.sum() >= 512  # 256 of 1024 are missing in either, so at most 512 in one or the other
        assert not shared.all()
        assert len(set(match[shared])) == shared.sum()
        assert np.corrcoef(np.flatnonzero(shared), match[shared])[0, 1] < 0.3  # permuted


def test_the_sample_covers_a_sorted_shape():
    shape = sorted_shape()
    pair = partial_pair(shape, item_generator(0, 0), keep=1024)
    index = cKDTree(shape).query(pair.source)[1]
    assert len(set(index)) == 1024
    assert 900 < np.median(index) < 1150
    assert index.max() > 2000


def test_each_cloud_keeps_the_points_nearest_to_the_far_point():
    """With the same random numbers, a pair without a crop shows which points the crop keeps."""
    signs = set()
    for item in range(12):
        whole, part = (partial_pair(sorted_shape(), item_generator(1, item), keep=k) for k in (1024, 768))
        for all_points, kept in ((whole.source, part.source), (whole.target, part.target)):
            along = all_points.astype(np.float64).sum(axis=1)  # the far point is along ±(1, 1, 1)
            taken = (all_points[:, None] == kept[None]).all(-1).any(1)
            assert taken.sum() == 768
            sign = 1 if along[taken].mean() > along[~taken].mean() else -1
            # The border is a sphere around a point 866 away, moved by up to one: very nearly a plane.
            assert (sign * along[taken]).min() > (sign * along[~taken]).max() - 0.02
            signs.add(sign)
    assert signs == {-1, 1}


class Wild(np.random.Generator):
    """A generator whose normal numbers are 100 times too large."""

    def normal(self, *arguments):
        return 100 * super().normal(*arguments)


def test_noise_is_clipped_and_added_before_the_crop():
    shape = sorted_shape()
    clean = partial_pair(shape, item_generator(0, 5), keep=1024)
    noisy = partial_pair(shape, item_generator(0, 5), keep=1024, noise=0.01)
    for a, b in ((clean.source, noisy.source), (clean.target, noisy.target)):
        noise = (b - a).astype(np.float64)
        assert abs(noise.std() - 0.01) < 0.001
        assert np.abs(noise).max() <= 0.05 + 1e-6
    assert not np.allclose(noisy.source - clean.source, noisy.target - clean.target)
    np.testing.assert_array_equal(clean.T_target_source, noisy.T_target_source)
    wild = partial_pair(shape, Wild(item_generator(0, 5).bit_generator), keep=1024, noise=0.01)
    np.testing.assert_allclose(np.abs(wild.source - clean.source).max(), 0.05, atol=1e-6)


def test_independent_pairs_have_independent_samples_and_crops():
    shape = sorted_shape()
    overlaps = []
    for item in range(20):
        pair = independent_pair(shape, item_generator(0, item), noise=0.0)
        assert pair.source.shape == pair.target.shape == (math.ceil(0.7 * 1024), 3)
        T = pair.T_target_source
        np.testing.assert_allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-12)
        x, y, z = Rotation.from_matrix(T[:3, :3].T).as_euler("zyx", degrees=True)[::-1]
        assert 0 <= min(x, y, z) <= max(x, y, z) <= 45
        assert np.abs(T[:3, :3].T @ T[:3, 3]).max() <= 0.5
        in_target = transformed(T, pair.source)
        assert cKDTree(shape).query(in_target)[0].max() < 1e-5  # the target is in the frame of the shape
        assert cKDTree(shape).query(pair.target)[0].max() < 1e-5
        overlaps.append((cKDTree(pair.target).query(in_target)[0] < 1e-5).mean())
    # Of a sample half is in the other, and of that the share which the other's crop has kept, 0.4 to 1.
    assert 0.2 < np.mean(overlaps) < 0.5
    assert np.std(overlaps) > 0.02


def test_independent_pairs_are_cropped_by_a_plane():
    shape = sorted_shape().astype(np.float64)
    pair = independent_pair(shape, item_generator(0, 0), noise=0.0, keep=0.5, points=1024)
    assert len(pair.target) == 512
    # On one side of a plane: a direction exists along which the kept half is beyond the centre of the whole.
    direction = pair.target.mean(axis=0) - shape.mean(axis=0)
    assert ((pair.target - shape.mean(axis=0)) @ direction > -0.1).mean() > 0.95


def test_all_rotations():
    angles = []
    for item in range(60):
        pair = independent_pair(sorted_shape(), item_generator(0, item), max_angle=180)
        angles.append(np.degrees(Rotation.from_matrix(pair.T_target_source[:3, :3]).magnitude()))
    assert max(angles) > 150


def test_invalid_arguments():
    shape, generator = sorted_shape(1024), item_generator(0, 0)
    with pytest.raises(InputError, match="need a shape of 2048, this has 1024"):
        independent_pair(shape, generator)
    assert len(independent_pair(shape, generator, points=512).source) == 359
    with pytest.raises(InputError, match="keep must be above 0"):
        independent_pair(shape, generator, points=512, keep=0)
    with pytest.raises(InputError, match="cannot choose 2000 points from a shape of 1024"):
        partial_pair(shape, generator, points=2000)
    with pytest.raises(InputError, match="keep must be between 1 and points \\(1024\\), not 1025"):
        partial_pair(shape, generator, keep=1025)


def test_shapes_of_the_data_folder(data_folder):
    folder = data_folder / "modelnet40_ply_hdf5_2048"
    if not folder.is_dir():
        pytest.skip("the data folder has no modelnet40_ply_hdf5_2048")
    shapes = read_split(folder, "test")
    assert shapes.points.shape == (2446, 2048, 3)
    assert shapes.labels.shape == (2446,)
    assert set(shapes.labels.tolist()) == set(range(len(class_names(folder)))) == set(range(40))
    assert np.linalg.norm(shapes.points, axis=2).max() < 1.001
    pair = partial_pair(shapes.points[0], item_generator(0, 0))
    assert (cKDTree(pair.target).query(transformed(pair.T_target_source, pair.source))[0] < 1e-5).sum() >= 512
