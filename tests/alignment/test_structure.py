"""Structure search: poses at which walls and floors coincide."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poses import random_pose
from wsdesc.alignment.structure import cpu, cuda, search_structure
from wsdesc.alignment.structure.voxels import ROTATIONS, Voxels
from wsdesc.alignment.surface import make_surface
from wsdesc.cloud.range_image import RangeImage
from wsdesc.core.geometry import inverse, transform

STEP = 0.05  # metres between points
NEAR = 8 * STEP  # metres: refinement does the rest
NONE = (None, None)


def _wall(start: tuple[float, float, float], end: tuple[float, float, float]) -> np.ndarray:
    """Points of a box between two corners, flat along the axis on which they are equal."""
    spans = [
        np.arange(a, b + STEP / 2, STEP) if b > a else np.array([a]) for a, b in zip(start, end, strict=True)
    ]
    return np.stack(np.meshgrid(*spans, indexing="ij"), axis=-1).reshape(-1, 3)


def _room() -> np.ndarray:
    """A room of 5 × 4 × 2.5 m with a cupboard, a niche and a table, which fits one way only."""
    parts = [
        _wall((0, 0, 0), (5, 4, 0)),
        _wall((0, 0, 0), (0, 4, 2.5)),
        _wall((5, 0, 0), (5, 4, 2.5)),
        _wall((0, 0, 0), (5, 0, 2.5)),
        _wall((0, 4, 0), (3.5, 4, 2.5)),
        _wall((1, 0.6, 0), (2, 0.6, 2)),
        _wall((1, 0, 0), (1, 0.6, 2)),
        _wall((2, 0, 0), (2, 0.6, 2)),
        _wall((3.5, 2, 0.8), (4.5, 3.5, 0.8)),
    ]
    return np.concatenate(parts) + np.random.default_rng(0).normal(
        scale=0.005, size=(sum(map(len, parts)), 3)
    )


def _moved(points: np.ndarray, T: np.ndarray) -> np.ndarray:
    return np.asarray(transform(points, T))


def _is_at(T: np.ndarray, T_true: np.ndarray, points: np.ndarray, metres: float) -> bool:
    return float(np.linalg.norm(_moved(points, T) - _moved(points, T_true), axis=1).mean()) < metres


def test_finds_the_pose_of_two_halves_of_a_room_in_any_pose():
    room = _room()
    for seed in range(3):
        T_true = random_pose(seed, 10.0)
        source, target = room[room[:, 0] < 4], _moved(room[room[:, 0] > 1], T_true)
        eyes = np.array([[1.5, 2.5, 1.2], [3.0, 1.5, 1.2]])
        images = RangeImage.of(source, eyes[0]), RangeImage.of(target, _moved(eyes, T_true)[1])
        poses = search_structure(make_surface(source), make_surface(target), images, STEP, count=8)
        assert len(poses) <= 8
        assert any(_is_at(T, T_true, source, NEAR) for T in poses)


def test_swapped_scans_give_the_inverse_poses():
    room = _room()
    a, b = (
        make_surface(room[room[:, 0] < 4]),
        make_surface(_moved(room[room[:, 0] > 1], random_pose(4, 10.0))),
    )
    forward, backward = (search_structure(*surfaces, NONE, STEP, count=1) for surfaces in ((a, b), (b, a)))
    assert _is_at(forward[0], inverse(backward)[0], room, NEAR)


def test_free_space_puts_the_possible_pose_first():
    # A corridor with a door every 2 m. The source ends with a wall, which the target's scanner saw through
    # at all doors but the last.
    doors = [_wall((2 * k, y, 0), (2 * k + 1.2, y, 2.4)) for k in range(5) for y in (0, 2)]
    corridor = np.concatenate([_wall((0, 0, 0), (10, 2, 0)), *doors, _wall((10, 0, 0), (10, 2, 2.4))])
    source, target = corridor[corridor[:, 0] > 7], corridor[corridor[:, 0] < 10 - STEP]
    image = RangeImage.of(corridor, np.array([1.0, 1.0, 1.2]))
    surfaces = make_surface(source), make_surface(target)
    blind, seeing = (search_structure(*surfaces, (None, i), STEP, count=8) for i in (None, image))
    one_door_back = np.eye(4)
    one_door_back[0, 3] = -2
    assert any(_is_at(T, one_door_back, source, NEAR) for T in blind)
    assert not any(_is_at(T, one_door_back, source, NEAR) for T in seeing)
    assert _is_at(seeing[0], np.eye(4), source, NEAR)


def test_poses_that_are_not_allowed_are_left_out():
    room = make_surface(_room())
    upright = search_structure(room, room, NONE, STEP, count=8, allow=lambda T: T[:, 2, 2] > 0.9)
    assert len(upright) > 0
    assert (upright[:, 2, 2] > 0.9).all()
    assert len(search_structure(room, room, NONE, STEP, count=8, allow=lambda T: T[:, 0, 0] > 2)) == 0


def test_natural_surfaces_have_no_structure():
    rng = np.random.default_rng(0)
    ball = rng.normal(size=(3000, 3))
    surface = make_surface(ball / np.linalg.norm(ball, axis=1, keepdims=True))
    assert search_structure(surface, make_surface(_room()), NONE, STEP, count=8).shape == (0, 4, 4)


def test_huge_scans_are_searched_on_wider_voxels():
    points = np.concatenate([_room(), [[4e3, 4e3, 0.0]]])  # one stray point far away
    poses = search_structure(make_surface(points), make_surface(points), NONE, STEP, count=8)
    assert np.isfinite(poses).all()


def test_all_rotations_at_once_score_as_single_ones():
    """The CPU compares all rotations at once, as a GPU does."""
    generator = torch.Generator().manual_seed(0)

    def voxels(*shape: int) -> Voxels:
        surface = torch.rand(3, *shape, generator=generator) * (torch.rand(shape, generator=generator) > 0.8)
        free = (torch.rand(shape, generator=generator) > 0.5).float()
        return Voxels.build(0.1, np.arange(3.0), surface, free)

    p, q = voxels(5, 7, 4).cubic(), voxels(6, 4, 5)
    together = cuda.compare_rotations(p, q, ROTATIONS)
    for R, scores in zip(ROTATIONS, together, strict=True):
        torch.testing.assert_close(scores, cpu.score_rotations([p.turned(R)], q)[0], rtol=0, atol=1e-4)


@pytest.mark.gpu
def test_gpu_and_cpu_find_the_same_poses() -> None:
    from wsdesc.alignment.surface.cuda import CudaSurface

    room = _room()
    clouds = room[room[:, 0] < 3.5], _moved(room[room[:, 0] > 1.5], random_pose(1, 10.0))
    on_cpu = search_structure(*map(make_surface, clouds), NONE, STEP, count=4)
    on_gpu = search_structure(
        *(CudaSurface.of(torch.tensor(c, device="cuda")) for c in clouds), NONE, STEP, count=4
    )
    assert len(on_gpu) == len(on_cpu)
    for T in on_gpu:  # the signs of normals decide where voxels begin
        assert any(_is_at(T, other, clouds[0], NEAR) for other in on_cpu)
