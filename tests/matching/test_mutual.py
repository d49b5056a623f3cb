"""Nearest, mutual and one-sided matches against brute force."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.utils._python_dispatch import TorchDispatchMode

from wsdesc.core.errors import InputError
from wsdesc.matching import mutual_matches, nearest, one_sided_matches


def brute_force(source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    squared = ((source[:, None] - target[None]) ** 2).sum(-1)
    to_target, to_source = squared.argmin(1), squared.argmin(0)  # the first of equal values
    rows = np.arange(len(source))
    kept = to_source[to_target] == rows
    return to_target, np.stack([rows[kept], to_target[kept]], 1)


# Small integers: every product is exact, and ties are frequent.
whole = st.integers(-2, 2).map(float)
sets = st.integers(1, 3).flatmap(
    lambda c: st.tuples(
        arrays(np.float32, st.tuples(st.integers(1, 14), st.just(c)), elements=whole),
        arrays(np.float32, st.tuples(st.integers(1, 14), st.just(c)), elements=whole),
    )
)


@settings(deadline=None, max_examples=80)
@given(sets, st.integers(1, 16))
def test_equals_brute_force_for_ties_and_any_chunk(pair: tuple[np.ndarray, np.ndarray], chunk: int) -> None:
    index, pairs = brute_force(*pair)
    source, target = map(torch.from_numpy, pair)
    nearest_index, distance = nearest(source, target, chunk=chunk)
    np.testing.assert_array_equal(nearest_index.numpy(), index)
    np.testing.assert_allclose(distance.numpy(), np.linalg.norm(pair[0] - pair[1][index], axis=1), rtol=1e-6)
    np.testing.assert_array_equal(mutual_matches(source, target, chunk=chunk).numpy(), pairs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chunk", [64, 301, 5000, None])
def test_unit_descriptors(dtype: torch.dtype, chunk: int | None) -> None:
    g = torch.Generator().manual_seed(3)
    source, target = (
        torch.nn.functional.normalize(torch.randn(n, 32, generator=g, dtype=dtype), dim=1) for n in (401, 300)
    )
    index, pairs = brute_force(source.double().numpy(), target.double().numpy())
    nearest_index, distance = nearest(source, target, chunk=chunk)
    np.testing.assert_array_equal(nearest_index.numpy(), index)
    assert distance.dtype == dtype
    result = mutual_matches(source, target, chunk=chunk)
    assert result.dtype == torch.int64
    np.testing.assert_array_equal(result.numpy(), pairs)
    assert len(pairs) > 50


@pytest.mark.parametrize("chunk", [64, 130, None])
def test_equal_descriptors_count_as_their_first_copy(chunk: int | None) -> None:
    """The rounding of a matrix product must not distinguish equal descriptors."""
    g = torch.Generator().manual_seed(4)
    distinct = torch.nn.functional.normalize(torch.randn(60, 32, generator=g), dim=1)
    target = distinct[torch.randint(60, (500,), generator=g)]
    source = target[torch.randperm(500, generator=g)]
    index, pairs = brute_force(source.double().numpy(), target.double().numpy())
    np.testing.assert_array_equal(nearest(source, target, chunk=chunk)[0].numpy(), index)
    np.testing.assert_array_equal(mutual_matches(source, target, chunk=chunk).numpy(), pairs)
    assert nearest(source, target, chunk=chunk)[1].max() == 0


@pytest.mark.parametrize("channels", [3, 32, 33, 100])
def test_equal_descriptors_in_sets_of_any_size(channels: int) -> None:
    """Matrix products round rows at the border of a tile differently from inner rows."""
    g = torch.Generator().manual_seed(6)
    for copies, rest in itertools.product((2, 5, 7, 25, 26, 38, 130), (1, 3, 7, 130)):
        equal = torch.randn(1, channels, generator=g).repeat(copies, 1)
        others = torch.randn(rest, channels, generator=g)
        assert (nearest(others, equal)[0] == 0).all()
        assert mutual_matches(equal, others)[:, 0].tolist() == [0]
        assert mutual_matches(others, equal)[:, 1].tolist() == [0]


def test_swapping_the_sets_swaps_the_matches() -> None:
    g = torch.Generator().manual_seed(5)
    source, target = torch.randn(200, 8, generator=g), torch.randn(150, 8, generator=g)
    forward = {tuple(pair) for pair in mutual_matches(source, target).tolist()}
    back = {(i, j) for j, i in mutual_matches(target, source).tolist()}
    assert forward == back


class LargestTensor(TorchDispatchMode):
    """Record the size of all computed tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple) else (result,):
            if isinstance(x, torch.Tensor):
                self.size = max(self.size, x.numel())
        return result


def test_memory_is_bounded_by_the_chunk(set_threads: Callable[[int], None]) -> None:
    set_threads(1)  # tensors of other threads are not recorded
    source, target = torch.randn(3000, 4), torch.randn(2500, 4)
    with LargestTensor() as largest:
        mutual_matches(source, target, chunk=105)
    assert 105 * 105 <= largest.size <= 3000 * 4


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (0, 0)])
def test_empty_sets(sizes: tuple[int, int]) -> None:
    pairs = mutual_matches(torch.zeros(sizes[0], 4), torch.zeros(sizes[1], 4))
    assert pairs.shape == (0, 2)
    assert pairs.dtype == torch.int64


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("side", [0, 1])
def test_values_that_are_not_finite(bad: float, side: int) -> None:
    sets = [torch.zeros(5, 4), torch.zeros(6, 4)]
    sets[side][2, 1] = bad
    for function in (nearest, mutual_matches):
        with pytest.raises(InputError, match=r"1 of [56] (source|target) descriptors"):
            function(*sets)


def test_invalid_shapes() -> None:
    with pytest.raises(InputError, match=r"\(3, 4\) and \(3, 5\)"):
        mutual_matches(torch.zeros(3, 4), torch.zeros(3, 5))
    with pytest.raises(InputError, match="target has no descriptors"):
        nearest(torch.zeros(3, 4), torch.zeros(0, 4))
    with pytest.raises(InputError, match="chunk"):
        nearest(torch.zeros(3, 4), torch.zeros(3, 4), chunk=0)
    assert nearest(torch.zeros(0, 4), torch.zeros(3, 4))[0].shape == (0,)


def test_one_sided_matches_are_the_union_of_both_directions():
    generator = torch.Generator().manual_seed(4)
    a, b = torch.rand(70, 8, generator=generator), torch.rand(50, 8, generator=generator)
    pairs, both = one_sided_matches(a, b)
    forward, back = nearest(a, b)[0], nearest(b, a)[0]
    expected = {(i, int(j)) for i, j in enumerate(forward)} | {(int(i), j) for j, i in enumerate(back)}
    assert [tuple(pair) for pair in pairs.tolist()] == sorted(expected)
    assert (pairs[both] == mutual_matches(a, b)).all()
    swapped, both_swapped = one_sided_matches(b, a)
    assert {(i, j) for j, i in swapped.tolist()} == expected
    assert both_swapped.sum() == both.sum()


def test_one_sided_matches_of_empty_sets():
    pairs, both = one_sided_matches(torch.empty(0, 8), torch.rand(5, 8))
    assert pairs.shape == (0, 2)
    assert both.shape == (0,)


def test_threads_do_not_change_matches(set_threads: Callable[[int], None]) -> None:
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randn(300, 8, generator=generator).round() for _ in range(2))  # many are equal
    matches = []
    for threads in (1, 2):
        set_threads(threads)
        matches.append(one_sided_matches(source, target, chunk=32))
    assert torch.equal(matches[0][0], matches[1][0])
    assert torch.equal(matches[0][1], matches[1][1])


def test_inference_mode_does_not_change_matches(set_threads: Callable[[int], None]) -> None:
    set_threads(2)
    source, target = (torch.randn(count, 32, generator=torch.manual_seed(count)) for count in (1500, 1300))
    expected = mutual_matches(source, target, chunk=256)
    with torch.inference_mode():
        assert torch.equal(mutual_matches(source + 0, target + 0, chunk=256), expected)
