"""Voxel averages, random samples, farthest points."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wsdesc.cloud.sampling import (
    farthest_points,
    farthest_points_each,
    random_sample,
    reference,
    voxel_downsample,
)
from wsdesc.core.errors import InputError


def cloud(n: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class TestVoxelDownsample:
    @pytest.mark.parametrize("size", [0.1, 0.7, 100.0])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_means_of_the_cells(self, size: float, dtype: torch.dtype) -> None:
        points = cloud(2000, dtype=dtype)
        low = points.double().numpy().min(0)
        cells: dict[tuple[int, ...], list[np.ndarray]] = {}
        for p in points.double().numpy():
            cells.setdefault(tuple(np.floor((p - low) / size).astype(int)), []).append(p)
        means = np.stack([np.mean(cells[cell], 0) for cell in sorted(cells)])
        result = voxel_downsample(points, size)
        assert result.dtype == dtype
        np.testing.assert_allclose(result.double().numpy(), means, rtol=0, atol=1e-6)

    def test_plain_torch_equals_cpu(self) -> None:
        points = cloud(2000)
        result = reference.voxel_downsample(points, points.amin(0), 0.3)
        torch.testing.assert_close(result, voxel_downsample(points, 0.3), rtol=0, atol=1e-12)

    @pytest.mark.gpu
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_gpu_equals_cpu(self, dtype: torch.dtype) -> None:
        points = cloud(5000, dtype=dtype)
        result = voxel_downsample(points.cuda(), 0.2)
        assert result.dtype == dtype
        torch.testing.assert_close(result.cpu(), voxel_downsample(points, 0.2), rtol=0, atol=1e-6)

    def test_order_of_the_points_does_not_matter(self) -> None:
        points = cloud(3000)
        shuffled = points[torch.randperm(3000, generator=seeded(1))]
        torch.testing.assert_close(
            voxel_downsample(shuffled, 0.3), voxel_downsample(points, 0.3), rtol=0, atol=1e-12
        )

    def test_far_from_the_origin(self) -> None:
        points = cloud(500)
        offset = torch.tensor([4.5e5, 5.4e6, 300.0], dtype=torch.float64)
        moved = voxel_downsample(points + offset, 0.5) - offset
        torch.testing.assert_close(moved, voxel_downsample(points, 0.5), rtol=0, atol=1e-8)

    def test_memory_follows_the_points_not_the_extent(self) -> None:
        points = torch.cat([cloud(1000), torch.full((1, 3), 2e6, dtype=torch.float64)])
        assert len(voxel_downsample(points, 1.0)) == 1 + len(voxel_downsample(points[:-1], 1.0))

    def test_one_point_and_equal_points(self) -> None:
        one = cloud(1)
        assert torch.equal(voxel_downsample(one, 0.1), one)
        torch.testing.assert_close(voxel_downsample(one.repeat(1000, 1), 0.1), one)

    @pytest.mark.parametrize("size", [0.0, -1.0, float("nan")])
    def test_invalid_sizes_are_rejected(self, size: float) -> None:
        with pytest.raises(InputError, match="positive"):
            voxel_downsample(cloud(10), size)

    def test_too_small_voxels_are_rejected(self) -> None:
        with pytest.raises(InputError, match="unit"):
            voxel_downsample(cloud(10) * 1e3, 1e-9)

    def test_an_empty_cloud_is_rejected(self) -> None:
        with pytest.raises(InputError, match="empty"):
            voxel_downsample(torch.empty(0, 3), 1.0)


class TestRandomSample:
    @settings(max_examples=50, deadline=None)
    @given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 2**31))
    def test_ascending_without_repetition(self, count: int, keep: int, seed: int) -> None:
        chosen = random_sample(count, keep, seeded(seed))
        assert len(chosen) == min(count, keep)
        assert (chosen.diff() > 0).all()
        assert ((chosen >= 0) & (chosen < count)).all()

    def test_seeded(self) -> None:
        assert torch.equal(random_sample(1000, 50, seeded(3)), random_sample(1000, 50, seeded(3)))
        assert not torch.equal(random_sample(1000, 50, seeded(3)), random_sample(1000, 50, seeded(4)))
        assert torch.equal(random_sample(1000, 50), random_sample(1000, 50, seeded(0)))

    def test_spreads_evenly(self) -> None:
        g = seeded(0)
        counts = sum(torch.bincount(random_sample(20, 5, g), minlength=20) for _ in range(2000))
        assert isinstance(counts, Tensor)
        assert (counts - 500).abs().max() < 100  # five standard deviations

    def test_a_negative_number_is_rejected(self) -> None:
        with pytest.raises(InputError, match="-1"):
            random_sample(10, -1)


def naive_farthest(points: np.ndarray, keep: int, first: int) -> list[int]:
    chosen, nearest = [first], np.full(len(points), np.inf)
    while len(chosen) < keep:
        nearest = np.minimum(nearest, ((points - points[chosen[-1]]) ** 2).sum(1))
        nearest[chosen] = -1
        chosen.append(int(nearest.argmax()))
    return chosen


class TestFarthestPoints:
    @pytest.mark.parametrize(("n", "keep"), [(1, 1), (2, 2), (7, 7), (300, 300), (2000, 60)])
    def test_equals_the_naive_loop(self, n: int, keep: int) -> None:
        points = cloud(n, dtype=torch.float32)
        chosen = farthest_points(points, keep, seeded(5))
        assert chosen.tolist() == naive_farthest(points.double().numpy(), keep, int(chosen[0]))

    def test_plain_torch_equals_cpu(self) -> None:
        points = cloud(500, dtype=torch.float32)
        expected = farthest_points(points, 60)
        result = reference.farthest_points(points.T.contiguous(), 60, expected[0])
        assert result.tolist() == expected.tolist()
        assert len(set(reference.farthest_points(torch.zeros(3, 9), 9, torch.tensor(4)).tolist())) == 9

    @pytest.mark.gpu
    @pytest.mark.parametrize("count", [1, 1023, 5000, 70_000])  # the last one is too large for one program
    def test_gpu_equals_cpu(self, count: int) -> None:
        points = torch.randint(-500, 500, (count, 3), generator=seeded(0)).double() / 8  # exact distances
        chosen = farthest_points(points.cuda(), 100, seeded(3))
        assert chosen.is_cuda
        assert torch.equal(chosen.cpu(), farthest_points(points, 100, seeded(3)))
        assert farthest_points(points.cuda(), 0).tolist() == []

    @pytest.mark.gpu
    def test_clouds_on_the_gpu_are_sampled_as_single_ones(self) -> None:
        clouds = [cloud(count, dtype=torch.float32).cuda() for count in (3000, 40, 5000)]
        together = farthest_points_each(clouds, 100, seeded(3))
        assert [len(chosen) for chosen in together] == [100, 40, 100]
        for points, chosen in zip(clouds, together, strict=True):
            assert torch.equal(chosen, farthest_points(points, 100, seeded(3)))
            assert torch.equal(chosen[:20].cpu(), farthest_points(points.cpu(), 20, seeded(3)))

    def test_ties_go_to_the_first(self) -> None:
        points = torch.randint(-3, 4, (500, 3), generator=seeded(0)).float()
        chosen = farthest_points(points, 500, seeded(1))
        assert chosen.tolist() == naive_farthest(points.numpy(), 500, int(chosen[0]))

    def test_each_is_the_farthest_from_the_chosen_ones(self, kitchen: Tensor) -> None:
        chosen = farthest_points(kitchen, 100, seeded(2))
        nearest = torch.cdist(kitchen[chosen].double(), kitchen.double()).cummin(0).values  # (100, N)
        own = nearest[torch.arange(99), chosen[1:]]
        torch.testing.assert_close(own, nearest[:-1].amax(1), rtol=1e-6, atol=0)
        assert (own.diff() <= 1e-6).all()  # distances never grow

    def test_distinct_even_among_coincident_points(self) -> None:
        points = torch.tensor([[1.0, 2, 3]]).repeat(50, 1)
        assert sorted(farthest_points(points, 50).tolist()) == list(range(50))
        points = torch.cat([points, points + 1])
        chosen = farthest_points(points, 80).tolist()
        assert len(set(chosen)) == 80
        assert (chosen[0] < 50) != (chosen[1] < 50)

    def test_keep_more_than_all(self) -> None:
        assert sorted(farthest_points(cloud(9), 20).tolist()) == list(range(9))

    def test_keep_none(self) -> None:
        assert farthest_points(cloud(9), 0).tolist() == []

    def test_seeded(self) -> None:
        points = cloud(400)
        same = [farthest_points(points, 20, seeded(7)) for _ in range(2)]
        assert torch.equal(*same)
        starts = {int(farthest_points(points, 1, seeded(s))[0]) for s in range(20)}
        assert len(starts) > 10
        assert torch.equal(farthest_points(points, 20), farthest_points(points, 20, seeded(0)))

    def test_a_shift_changes_nothing(self) -> None:
        points = torch.randint(-500, 500, (800, 3), generator=seeded(0)).double() / 8
        far = points + torch.tensor([4.5e5, 5.4e6, 300.0], dtype=torch.float64)
        assert torch.equal(farthest_points(far, 100), farthest_points(points, 100))

    def test_bad_input_is_rejected(self) -> None:
        with pytest.raises(InputError, match="finite"):
            farthest_points(torch.full((3, 3), torch.nan), 2)
        with pytest.raises(InputError, match="-2"):
            farthest_points(cloud(3), -2)


def test_noise_and_a_point_more_keep_the_farthest_points():
    generator = torch.Generator().manual_seed(2)
    points = torch.randn(3000, 3, generator=generator)
    noisy = points + 1e-7 * torch.randn(3000, 3, generator=generator)
    inner = torch.zeros(1, 3)  # in the middle of the others: not among the farthest
    for seed in range(3):
        chosen = points[farthest_points(points, 100, torch.Generator().manual_seed(seed))]
        more = torch.cat([noisy[:10], inner, noisy[10:]])
        again = more[farthest_points(more, 100, torch.Generator().manual_seed(seed))]
        assert float((chosen - again).norm(dim=1).max()) < 1e-5
