"""The loss of lines: lines and hits are right, and the true pose has the smallest loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from wsdesc.peers.arl import draw_lines, hits, line_loss
from wsdesc.peers.pose_geometry import move, nearest, poses


def body(points: int = 768, seed: int = 0) -> Tensor:
    """Points of a bent ellipsoid (1, N, 3), evenly spread: hits need uniform density."""
    step = torch.arange(points) + 0.5
    height, turn = 1 - 2 * step / points, step * math.pi * (1 + math.sqrt(5)) + seed
    x = torch.stack([height, *((1 - height.square()).sqrt() * f(turn) for f in (torch.cos, torch.sin))], -1)
    x = x.roll(seed, -1) * torch.tensor([0.8, 0.5, 0.35])
    x[..., 2] += 0.4 * x[..., 0].square()
    return x[None]


def turned(angle: float, shift: float = 0.0) -> Tensor:
    """A pose (1, 4, 4): a turn about (1, 1, 1) in degrees, and a shift along x."""
    axis = torch.ones(3) / math.sqrt(3)
    K = torch.tensor([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    R = torch.matrix_exp(math.radians(angle) * K)[None]
    return poses(R, torch.tensor([[shift, 0.0, 0.0]]))


def test_lines_cross_both_boxes() -> None:
    torch.manual_seed(0)
    target = body()
    source = move(body(seed=1), turned(20, 0.3))
    origin, direction = draw_lines(source, target, 200)
    assert origin.shape == direction.shape == (1, 200, 3)
    torch.testing.assert_close(direction.norm(dim=-1), torch.ones(1, 200))
    steps = torch.linspace(-5, 5, 4001)[:, None, None]
    along = origin[0] + steps * direction[0]  # (S, L, 3)
    for cloud in (source[0], target[0]):
        inside = ((along >= cloud.amin(0) - 0.01) & (along <= cloud.amax(0) + 0.01)).all(2).any(0)
        assert inside.all()


def test_hits_agree_with_the_definition() -> None:
    torch.manual_seed(0)
    cloud = body(150)
    triples = nearest(cloud, cloud, 3)[1]
    origin, direction = draw_lines(cloud, cloud, 40)
    hit = hits(cloud, triples, origin, direction)[0].numpy()
    points = cloud[0].double().numpy()
    expected = np.zeros_like(hit)
    for i, (a, u) in enumerate(zip(origin[0].double().numpy(), direction[0].double().numpy(), strict=True)):
        distance = np.sqrt(np.linalg.norm(np.cross(points - a, u), axis=1) ** 2 + 2e-4)
        for j, (x, y, z) in enumerate(triples[0].numpy()):
            corners = points[[x, y, z]]
            edge = np.mean([np.linalg.norm(corners[k] - corners[k - 1]) for k in range(3)])
            expected[i, j] = distance[[x, y, z]].max() < math.sqrt(3) / 2 * edge
    assert hit.any()
    assert (hit != expected).mean() < 1e-3


def sweep(transforms: list[Tensor], lines: int = 4000) -> np.ndarray:
    source, target = body(seed=1), body(seed=2)
    losses = []
    for T in transforms:
        torch.manual_seed(0)
        losses.append(float(line_loss(move(source, T), target, lines)))
    return np.array(losses)


def test_the_loss_is_smallest_at_the_true_pose_and_flat_far_away() -> None:
    angles = [-30, -10, 0, 10, 30]
    assert angles[int(sweep([turned(a) for a in angles]).argmin())] == 0
    shifts = [-0.3, -0.1, 0, 0.1, 0.3]
    assert shifts[int(sweep([turned(0, s) for s in shifts]).argmin())] == 0


def test_clouds_that_no_line_joins_have_no_loss() -> None:
    torch.manual_seed(0)
    source = (body() + torch.tensor([100.0, 0, 0])).requires_grad_()
    loss = line_loss(source, body(), 50)
    loss.sum().backward()
    assert float(loss.detach()) == 0
    assert source.grad is not None
    assert float(source.grad.abs().sum()) == 0


@pytest.mark.slow
def test_the_loss_registers_a_turned_shape() -> None:
    source, target = body(seed=1), body(seed=2)
    start = turned(30)
    twist = torch.zeros(6, requires_grad=True)
    optimizer = torch.optim.Adam([twist], 2e-2)

    def pose() -> Tensor:
        w, t = twist[:3], twist[3:]
        zero = torch.zeros(())
        K = torch.stack([zero, -w[2], w[1], w[2], zero, -w[0], -w[1], w[0], zero]).view(3, 3)
        return poses(torch.matrix_exp(K)[None], t[None])

    torch.manual_seed(0)
    for step in range(200):
        optimizer.param_groups[0]["lr"] = 2e-2 * (1 - step / 200)
        optimizer.zero_grad()
        line_loss(move(move(source, start), pose()), target, 3000).sum().backward()
        optimizer.step()
    R = (pose() @ start)[0, :3, :3].detach()
    assert math.degrees(math.acos(min(1.0, (float(R.trace()) - 1) / 2))) < 2
