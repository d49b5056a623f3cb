"""Transformations and cell keys: invariances, batches against single calls, hostile input."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from wsdesc.core.errors import InputError
from wsdesc.core.geometry import (
    bounding_box,
    cell_keys,
    check_length,
    check_rigid,
    inverse,
    is_rigid,
    pack_cell,
    rotate,
    transform,
)
from wsdesc.core.kernels import inline, kernel


def random_poses(count, seed=0, distance=10.0):
    T = np.tile(np.eye(4), (count, 1, 1))
    T[:, :3, :3] = Rotation.random(count, random_state=seed).as_matrix()
    T[:, :3, 3] = np.random.default_rng(seed).normal(0, distance, (count, 3))
    return T


def random_points(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 3))


def changed(row, column, value):
    T = np.eye(4)
    T[row, column] = value
    return T


class TestTransform:
    def test_is_rotation_then_translation(self):
        T = np.array([[0, -1, 0, 10], [1, 0, 0, 20], [0, 0, 1, 30], [0, 0, 0, 1.0]])
        np.testing.assert_array_equal(transform(np.array([[1.0, 2, 3]]), T), [[8, 21, 33]])
        np.testing.assert_array_equal(rotate(np.array([[1.0, 2, 3]]), T), [[-2, 1, 3]])

    def test_composes(self):
        points, (A, B) = random_points(50), random_poses(2)
        np.testing.assert_allclose(transform(points, A @ B), transform(transform(points, B), A), atol=1e-12)

    def test_keeps_distances(self):
        points, T = random_points(50), random_poses(1)[0]
        moved = transform(points, T)
        np.testing.assert_allclose(
            np.linalg.norm(moved[1:] - moved[:-1], axis=1), np.linalg.norm(points[1:] - points[:-1], axis=1)
        )

    def test_a_batch_equals_single_calls(self):
        points, T = random_points(50), random_poses(6)
        batch = transform(points, T)
        assert batch.shape == (6, 50, 3)
        np.testing.assert_allclose(batch, [transform(points, one) for one in T], atol=1e-13)
        np.testing.assert_allclose(transform(batch, inverse(T)), np.tile(points, (6, 1, 1)), atol=1e-12)

    def test_takes_tensors(self):
        points, T = torch.from_numpy(random_points(50)), torch.from_numpy(random_poses(3))
        moved = transform(points, T)
        assert isinstance(moved, torch.Tensor)
        np.testing.assert_allclose(moved, transform(points.numpy(), T.numpy()), atol=1e-13)
        assert torch.equal(rotate(points, T[0]), points @ T[0, :3, :3].T)

    def test_no_points(self):
        assert transform(np.empty((0, 3)), np.eye(4)).shape == (0, 3)


class TestInverse:
    def test_undoes_a_pose(self):
        T = random_poses(100)
        np.testing.assert_allclose(inverse(T) @ T, np.tile(np.eye(4), (100, 1, 1)), atol=1e-12)

    def test_a_batch_has_the_bits_of_single_calls(self):
        T = random_poses(200, distance=1e4)
        single = np.stack([inverse(one) for one in T])
        np.testing.assert_array_equal(inverse(T), single)
        np.testing.assert_array_equal(inverse(T.reshape(10, 20, 4, 4)).reshape(-1, 4, 4), single)

    def test_twice_is_exact_for_the_rotation(self):
        T = random_poses(20)
        np.testing.assert_array_equal(inverse(inverse(T))[:, :3, :3], T[:, :3, :3])

    def test_empty_batch(self):
        assert inverse(np.empty((0, 4, 4))).shape == (0, 4, 4)


class TestCheckRigid:
    def test_returns_poses(self):
        T = random_poses(5)
        np.testing.assert_array_equal(check_rigid(T.tolist(), batch=True), T)
        np.testing.assert_array_equal(check_rigid(T[0]), T[0])
        assert check_rigid(np.eye(4, dtype=np.float32)).dtype == np.float64

    def test_accepts_four_digits(self):
        check_rigid(np.round(random_poses(200), 4), batch=True)

    @pytest.mark.parametrize(
        ("T", "message"),
        [
            (np.eye(3), r"matrix, not an array of shape \(3, 3\)"),
            ([[1, 2], [3]], "matrix of numbers"),
            ("pose", "matrix of numbers"),
            (None, "must be a 4 × 4 matrix"),
            (changed(0, 3, np.nan), "NaN"),
            (changed(1, 1, np.inf), "NaN or infinity"),
            (changed(0, 0, -1.0), "rigid"),
            (changed(0, 0, 1.01), "rigid"),
            (changed(3, 0, 0.1), "last row"),
            (changed(3, 3, 2.0), "last row"),
            (2 * np.eye(4), "rigid"),
            (np.zeros((4, 4)), "rigid"),
            ([4 * [10**400]] * 4, "matrix of numbers"),
            (random_poses(2), "not an array of shape"),
        ],
    )
    def test_refuses(self, T, message):
        with pytest.raises(InputError, match=f"T_b_a .*{message}"):
            check_rigid(T, name="T_b_a")

    def test_refuses_a_batch_with_one_wrong_pose(self):
        with pytest.raises(InputError, match="must be rigid"):
            check_rigid([np.eye(4), -np.eye(4)], batch=True)

    def test_is_rigid_answers_for_each_matrix(self):
        T = random_poses(4)
        T[1, 0, 0] = np.nan
        T[2, :3, :3] *= 2
        np.testing.assert_array_equal(is_rigid(T), [True, False, False, True])
        assert is_rigid(T[0])


@pytest.mark.parametrize("length", [0, -1.0, float("nan"), float("inf")])
def test_wrong_lengths_are_refused(length):
    check_length(1e-9, "resolution")
    with pytest.raises(InputError, match=f"^resolution must be a positive length, not {length}$"):
        check_length(length, "resolution")


@kernel
def packed(cells, keys):
    for n in range(len(cells)):
        keys[n] = _pack(cells[n, 0], cells[n, 1], cells[n, 2])


_pack = inline(pack_cell)


class TestCellKeys:
    cells = st.lists(st.tuples(*3 * [st.integers(0, 2**21 - 1)]), min_size=1, max_size=30)

    @given(cells)
    def test_sort_as_cells_do(self, cells):
        keys = cell_keys(np.array(cells, np.int64)).tolist()
        assert [cell for _, cell in sorted(zip(keys, cells, strict=True))] == sorted(cells)
        assert len(set(keys)) == len(set(cells))
        assert min(keys) >= 0

    def test_arrays_tensors_and_kernels_agree(self):
        cells = np.random.default_rng(0).integers(0, 2**21, (100, 3))
        keys = np.empty(100, np.int64)
        packed(cells, keys)
        np.testing.assert_array_equal(keys, cell_keys(cells))
        np.testing.assert_array_equal(keys, cell_keys(torch.from_numpy(cells)).numpy())


def test_bounding_box() -> None:
    points = np.array([[1.0, -2.0, 3.0], [0.0, 5.0, 3.5], [0.5, 0.0, -1.0]], np.float32)
    low, high = bounding_box(points)
    assert (low.tolist(), high.tolist()) == ([0.0, -2.0, -1.0], [1.0, 5.0, 3.5])
    assert low.dtype == high.dtype == np.float32
