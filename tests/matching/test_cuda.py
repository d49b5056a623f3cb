"""Matching on CUDA gives the matches and weights of the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from wsdesc.matching import (
    correspondence_weights,
    descriptor_distances,
    mutual_matches,
    nearest,
    one_sided_matches,
    soft_nearest,
    spectral_weights,
)

pytestmark = pytest.mark.gpu


def descriptors(count: int, seed: int, dimension: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, dimension, generator=generator), dim=1)


SIZES = [(1, 1), (1, 700), (700, 1), (1500, 900), (9000, 300)]


@pytest.mark.parametrize(("k", "l"), SIZES)
def test_nearest(k: int, l: int) -> None:
    source, target = descriptors(k, 0), descriptors(l, 1)
    index, distance = nearest(source, target)
    cuda_index, cuda_distance = nearest(source.cuda(), target.cuda())
    torch.testing.assert_close(cuda_distance.cpu(), distance, rtol=1e-4, atol=1e-5)
    assert (cuda_index.cpu() == index).double().mean() > 0.999  # equal distances up to rounding


@pytest.mark.parametrize(("k", "l"), SIZES)
def test_mutual_and_one_sided_matches(k: int, l: int) -> None:
    source, target = descriptors(k, 0), descriptors(l, 1)
    pairs = {tuple(pair) for pair in mutual_matches(source, target).tolist()}
    cuda_pairs = {tuple(pair) for pair in mutual_matches(source.cuda(), target.cuda()).tolist()}
    assert len(pairs ^ cuda_pairs) <= 0.002 * len(pairs)
    one_sided, mutual = one_sided_matches(source.cuda(), target.cuda())
    assert {tuple(pair) for pair in one_sided[mutual].tolist()} == cuda_pairs
    assert len(one_sided) == k + l - len(cuda_pairs)


def test_equal_descriptors_and_ties() -> None:
    """Small integers have no rounding: CUDA must choose the same index as the CPU."""
    generator = torch.Generator().manual_seed(2)
    source = torch.randint(0, 3, (400, 4), generator=generator).float()
    target = torch.randint(0, 3, (300, 4), generator=generator).float()
    assert torch.equal(nearest(source.cuda(), target.cuda())[0].cpu(), nearest(source, target)[0])
    for chunk in (None, 64):
        cuda = mutual_matches(source.cuda(), target.cuda(), chunk)
        assert torch.equal(cuda.cpu(), mutual_matches(source, target))


@pytest.mark.parametrize(("k", "l"), [(0, 5), (5, 0), (0, 0)])
def test_empty_sets(k: int, l: int) -> None:
    source, target = descriptors(k, 0).cuda(), descriptors(l, 1).cuda()
    assert mutual_matches(source, target).shape == (0, 2)
    assert one_sided_matches(source, target)[0].shape == (0, 2)


def test_soft_matches_and_their_gradients() -> None:
    results = []
    for device in ("cpu", "cuda"):
        p, q = (descriptors(60, seed).to(device).requires_grad_() for seed in (0, 1))
        points = torch.rand(60, 3, generator=torch.Generator().manual_seed(3)).to(device)
        matches = soft_nearest(p, q, points)
        weights = correspondence_weights(points, matches)
        loss = (matches.points.square().sum(1) * weights).sum()
        results.append([matches.points, matches.w_f, weights, *torch.autograd.grad(loss, (p, q))])
    for cpu, cuda in zip(*results, strict=True):
        torch.testing.assert_close(cuda.cpu(), cpu, rtol=1e-3, atol=1e-5)


def test_spectral_weights() -> None:
    generator = torch.Generator().manual_seed(4)
    source = torch.rand(200, 3, generator=generator)
    target = source + 0.02 * torch.randn(200, 3, generator=generator)
    target[:60] = torch.rand(60, 3, generator=generator)
    cpu, cuda = spectral_weights(source, target), spectral_weights(source.cuda(), target.cuda())
    torch.testing.assert_close(cuda.cpu(), cpu, rtol=1e-3, atol=1e-5)
    assert cuda[60:].mean() > 2 * cuda[:60].mean()


def test_distance_of_equal_descriptors_is_zero() -> None:
    f = descriptors(50, 5).cuda().requires_grad_()
    distances = descriptor_distances(f, f.detach())
    assert (distances.diagonal() == 0).all()
    assert torch.isfinite(torch.autograd.grad(distances.sum(), f)[0]).all()
