"""Random numbers depend on their seeds only."""

import torch

from wsdesc.core.rng import generator_of, random_rotation


def test_equal_numbers_give_equal_generators():
    a, b = (torch.rand(5, generator=generator_of(3, 1, 4)) for _ in range(2))
    assert torch.equal(a, b)


def test_different_numbers_give_different_generators():
    seeds = [(0,), (1,), (0, 0), (0, 1), (1, 0), (-1,), (10**30,)]
    assert len({generator_of(*numbers).initial_seed() for numbers in seeds}) == len(seeds)


def test_rotations_are_rotations():
    generator = generator_of(0)
    for _ in range(20):
        R = random_rotation(generator)
        torch.testing.assert_close(R @ R.T, torch.eye(3), atol=1e-5, rtol=0)
        assert torch.linalg.det(R) > 0


def test_rotations_are_uniform():
    generator = generator_of(1)
    mean = torch.stack([random_rotation(generator) for _ in range(2000)]).mean(0)
    assert mean.abs().max() < 0.1
