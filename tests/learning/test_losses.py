"""The losses: zero for rigid transformations, equal to values by hand, correct gradients."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from seeded import random, rotation
from wsdesc.core.errors import InputError
from wsdesc.learning.losses import BatchHardLoss, InfoNCELoss, RigidityLoss, RigidityTerms

DIRECTIONS = ["published", "paper"]
REDUCTIONS = ["mean", "sum"]


def imperfect(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two scans of different size, related by a pose, with descriptors that give some wrong matches."""
    p = random(30, 3, dtype=dtype)
    extra = random(8, 3, seed=1, dtype=dtype)
    q = torch.cat([p[4:] @ rotation(1).T.to(dtype) + 1, extra])
    f_p = random(30, 8, seed=2, dtype=dtype)
    f_q = torch.cat([f_p[4:] + 0.8 * random(26, 8, seed=3, dtype=dtype), random(8, 8, seed=4, dtype=dtype)])
    return p, f_p, q, f_q


def perfect(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    p = random(40, 3).to(dtype)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    q = (p.double() @ rotation(2).T + torch.tensor([1.0, -2, 3], dtype=torch.float64)).to(dtype)
    features = torch.eye(40, dtype=dtype)
    return p, features, q[order], features[order]


@pytest.mark.parametrize(("direction", "reduction"), list(itertools.product(DIRECTIONS, REDUCTIONS)))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_zero_for_a_rigid_transformation(
    direction: str, reduction: str, dtype: torch.dtype, tolerance: float
) -> None:
    """In float32, coordinates are rounded to about 1e-7 of a few metres."""
    terms = RigidityLoss(direction=direction, reduction=reduction)(*perfect(dtype))
    assert terms.loss.dtype == dtype
    assert terms.well_posed
    for value in (terms.loss, terms.orthogonality, terms.cycle):
        assert 0 <= value < tolerance
    torch.testing.assert_close(terms.A_qp, rotation(2), rtol=0, atol=tolerance)
    torch.testing.assert_close(terms.A_pq, rotation(2).T, rtol=0, atol=tolerance)
    expected = torch.tensor([1.0, -2, 3], dtype=torch.float64)
    torch.testing.assert_close(terms.t_qp, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_doubled_cloud_by_hand(direction: str) -> None:
    """q = 2p: AᵀA − I is 3I one way and −¾I the other, and the cycle closes."""
    p, features, *_ = perfect(torch.float64)
    for reduction, expected in (("sum", (9 + 2.25) / 2), ("mean", (1 + 0.25) / 2)):
        loss = RigidityLoss(direction=direction, reduction=reduction, sigma_d=100.0, lambda_o=3.0)
        terms = loss(p, features, 2 * p, features)
        assert terms.orthogonality.item() == pytest.approx(expected, abs=1e-9)
        assert terms.cycle.item() == pytest.approx(0, abs=1e-9)
        assert terms.loss.item() == pytest.approx(3 * expected, abs=1e-9)


def two_images() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Q contains the octahedron P twice, as 2p + a and 2p + b; P's matches are in the first.

    With mean m = (a + b)/2 = (1, 2, 3) and a − m = (1, 0, 0), P has the covariance I/3.
    """
    p = torch.cat([torch.eye(3), -torch.eye(3)]).double()
    a, b = torch.tensor([[2.0, 2, 3], [0.0, 2, 3]], dtype=torch.float64)
    f = torch.eye(6, 7, dtype=torch.float64)
    aside = torch.tensor([0.0] * 6 + [0.1], dtype=torch.float64)
    return p, f, torch.cat([2 * p + a, 2 * p + b]), torch.cat([f, f + aside])


def test_open_cycle_by_hand_in_the_papers_direction() -> None:
    """P→Q is 2p + a. Q→P has slope ⅔/(4/3 + 1) = 2/7 along x, ½ elsewhere, and leads back to m, not a."""
    for reduction, entries in (("sum", (1, 1)), ("mean", (9, 16))):
        terms = RigidityLoss(direction="paper", reduction=reduction, use_w_f=False, use_w_sm=False)(
            *two_images()
        )
        assert terms.cycle.item() == pytest.approx((3 / 7 + 10 / 7) / entries[1])
        assert terms.orthogonality.item() == pytest.approx((9 + 45 / 49 + 1.5) / 2 / entries[0])
    torch.testing.assert_close(terms.A_pq, torch.diag(torch.tensor([2 / 7, 0.5, 0.5], dtype=torch.float64)))
    torch.testing.assert_close(terms.t_qp, torch.tensor([2.0, 2, 3], dtype=torch.float64))


def test_open_cycle_by_hand_in_the_published_direction() -> None:
    """P→Q, from Q's matches, is 2p + m; Q→P, from P's matches, is (q − a)/2: from q to q − (a − m)."""
    for reduction, entries in (("sum", (1, 1)), ("mean", (9, 16))):
        for unit in (1.0, 0.5):
            loss = RigidityLoss(reduction=reduction, use_w_f=False, use_w_sm=False, unit=unit)
            terms = loss(*two_images())
            assert terms.cycle.item() == pytest.approx(1 / unit / entries[1])
            assert terms.orthogonality.item() == pytest.approx((9 + 2.25) / 2 / entries[0])
    torch.testing.assert_close(terms.t_qp, torch.tensor([1.0, 2, 3], dtype=torch.float64))
    torch.testing.assert_close(terms.t_pq, -torch.tensor([2.0, 2, 3], dtype=torch.float64) / 2)


def test_terms_can_be_switched_off() -> None:
    example = imperfect()
    both = RigidityLoss(sigma_d=1.0)(*example)
    assert both.orthogonality > 0.01
    assert both.cycle > 0.01
    assert RigidityLoss(sigma_d=1.0, lambda_c=0)(*example).loss == both.orthogonality
    assert RigidityLoss(sigma_d=1.0, lambda_o=0)(*example).loss == both.cycle
    plain = RigidityLoss(use_w_f=False, use_w_sm=False)(*example)
    assert (plain.weights_p == 1).all()
    assert (plain.weights_q == 1).all()
    assert plain.weights_p.shape == (30,)
    assert plain.weights_q.shape == (34,)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("w_f", "w_sm"), list(itertools.product([True, False], [True, False])))
def test_gradient_reaches_the_descriptors(direction: str, w_f: bool, w_sm: bool) -> None:
    p, f_p, q, f_q = imperfect(torch.float32)
    f_p.requires_grad_()
    f_q.requires_grad_()
    loss = RigidityLoss(direction=direction, use_w_f=w_f, use_w_sm=w_sm, sigma_d=1.0)
    for gradient in torch.autograd.grad(loss(p, f_p, q, f_q).loss, (f_p, f_q)):
        assert gradient.isfinite().all()
        assert (gradient.abs().amax(1) > 0).all()


def observed_pair(count: int, g: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Keypoints of two scans: half of the input of each is common to both scans, the other half is noise.

    A quarter of the keypoints are in one scan only.
    """
    turn = torch.linalg.qr(torch.randn(3, 3, generator=g))[0]
    p = 3 * torch.rand(count, 3, generator=g)
    q = torch.where(torch.arange(count)[:, None] < count // 4, 3 * torch.rand(count, 3, generator=g), p)
    same = torch.randn(count, 8, generator=g)
    input_p, input_q = (torch.cat([same, torch.randn(count, 8, generator=g)], 1) for _ in range(2))
    input_q[: count // 4] = torch.randn(count // 4, 16, generator=g)
    return p, input_p, q @ turn.T * torch.linalg.det(turn), input_q


@pytest.mark.slow
@pytest.mark.parametrize(("direction", "use_w_sm"), [("paper", True), ("published", False)])
def test_linear_descriptor_learns_without_labels(direction: str, use_w_sm: bool) -> None:
    """A linear descriptor learns from the loss alone which half of its input is common to both scans."""
    g = torch.Generator().manual_seed(0)
    layer = (torch.randn(16, 16, generator=g) / 4).requires_grad_()
    loss = RigidityLoss(direction=direction, use_w_sm=use_w_sm)
    optimizer = torch.optim.Adam([layer], lr=0.02)

    def describe(inputs: Tensor) -> Tensor:
        return torch.nn.functional.normalize(inputs @ layer, dim=1)

    def right_matches() -> float:
        _, input_p, _, input_q = observed_pair(400, torch.Generator().manual_seed(1))
        nearest = torch.cdist(describe(input_p), describe(input_q)).argmin(1)
        return (nearest == torch.arange(400))[100:].double().mean().item()

    assert right_matches() < 0.3
    for _ in range(150):
        p, input_p, q, input_q = observed_pair(64, g)
        optimizer.zero_grad()
        loss(p, describe(input_p), q, describe(input_q)).loss.backward()
        torch.nn.utils.clip_grad_norm_([layer], 0.5)
        optimizer.step()
    assert right_matches() > 0.9


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_maps_move_with_the_scans(direction: str) -> None:
    """The affine maps move with the scans. Sums of absolute entries are invariant only in part:

    the cycle loss, expressed in Q, is invariant to a motion of P; a shift of Q changes its translation only;
    and a rotation by right angles, which permutes entries, changes no loss.
    """
    p, f_p, q, f_q = imperfect()
    loss = RigidityLoss(direction=direction, sigma_d=1.0, reduction="sum")
    before = loss(p, f_p, q, f_q)
    G, H = rotation(5), rotation(6)
    g, h = random(3, seed=5), random(3, seed=6)
    after = loss(p @ G.T + g, f_p, q @ H.T + h, f_q)
    torch.testing.assert_close(after.A_qp, H @ before.A_qp @ G.T)
    torch.testing.assert_close(after.A_pq, G @ before.A_pq @ H.T)
    torch.testing.assert_close(after.t_qp, H @ (before.t_qp - before.A_qp @ G.T @ g) + h)
    torch.testing.assert_close(after.weights_p, before.weights_p)

    torch.testing.assert_close(loss(p @ G.T + g, f_p, q, f_q).cycle, before.cycle)
    shifted = loss(p + g, f_p, q + h, f_q)
    torch.testing.assert_close(shifted.orthogonality, before.orthogonality)
    torch.testing.assert_close(shifted.A_qp @ shifted.A_pq, before.A_qp @ before.A_pq)
    quarter = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]], dtype=torch.float64)
    turned = loss(p @ quarter.T, f_p, q @ quarter.T, f_q)
    torch.testing.assert_close(turned.loss, before.loss)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_order_of_keypoints_does_not_matter(direction: str) -> None:
    p, f_p, q, f_q = imperfect()
    loss = RigidityLoss(direction=direction, sigma_d=1.0)
    i, j = (torch.randperm(n, generator=torch.Generator().manual_seed(n)) for n in (30, 34))
    before, after = loss(p, f_p, q, f_q), loss(p[i], f_p[i], q[j], f_q[j])
    torch.testing.assert_close(after.loss, before.loss)
    torch.testing.assert_close(after.weights_p, before.weights_p[i])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_exchanging_the_scans_exchanges_the_maps(direction: str) -> None:
    p, f_p, q, f_q = imperfect()
    loss = RigidityLoss(direction=direction, sigma_d=1.0)
    forward, backward = loss(p, f_p, q, f_q), loss(q, f_q, p, f_p)
    torch.testing.assert_close(forward.A_qp, backward.A_pq)
    torch.testing.assert_close(forward.t_pq, backward.t_qp)
    torch.testing.assert_close(forward.orthogonality, backward.orthogonality)


def check_finite(terms: RigidityTerms, features: Tensor) -> None:
    assert not terms.well_posed
    assert terms.loss.isfinite()
    (gradient,) = torch.autograd.grad(terms.loss, features)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["coplanar", "three", "one", "equal", "incompatible"])
def test_ill_posed_pairs_are_flagged_and_finite(direction: str, dtype: torch.dtype, case: str) -> None:
    p, f_p, q, f_q = perfect(dtype)
    if case == "coplanar":
        p[:, 2] = 0
        q = p + 1
        f_q = f_p
    elif case in ("three", "one"):
        n = 3 if case == "three" else 1
        p, f_p, q, f_q = p[:n], f_p[:n], q[:n], f_q[:n]
    elif case == "equal":
        f_p, f_q = torch.ones_like(f_p), torch.ones_like(f_q)
    elif case == "incompatible":  # every length is stretched by far more than sigma_d: all weights are zero
        q = 100 * q
    f_p = f_p.clone().requires_grad_()
    loss = RigidityLoss(direction=direction, sigma_d=1e-4 if case == "incompatible" else 0.1)
    check_finite(loss(p, f_p, q, f_q), f_p)


def test_autocast_does_not_change_the_loss() -> None:
    example = imperfect(torch.float32)
    loss = RigidityLoss(sigma_d=1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(*example).loss
    assert torch.equal(inside, loss(*example).loss)


def test_options_are_checked() -> None:
    for option in ({"reduction": "max"}, {"direction": "back"}, {"sigma_d": 0.0}, {"unit": -1.0}):
        with pytest.raises(InputError, match=next(iter(option))):
            RigidityLoss(**option)
    with pytest.raises(InputError, match="margin"):
        BatchHardLoss(margin="hard")


# Three anchors on a line, and descriptors on a circle at these angles.
POSITIONS = torch.tensor([[0.0, 0, 0], [0.05, 0, 0], [1.0, 0, 0]], dtype=torch.float64)


def circle(*degrees: float) -> Tensor:
    angles = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return torch.stack([angles.cos(), angles.sin()], 1)


def chord(degrees: float) -> float:
    return 2 * math.sin(math.radians(degrees) / 2)


def test_batch_hard_by_hand() -> None:
    anchor, positive = circle(0, 90, 180), circle(10, 60, 180)
    near = [chord(10), chord(30), chord(0)]
    hardest = [chord(60), chord(80), chord(120)]  # hardest negative among all others
    separated = [chord(180), chord(90), chord(120)]  # the first two anchors exclude each other
    for radius, far in ((0.0, hardest), (0.1, separated)):
        gaps = [a - b for a, b in zip(near, far, strict=True)]
        soft = BatchHardLoss(exclusion_radius=radius, temperature=0.5)(anchor, positive, POSITIONS)
        assert soft.item() == pytest.approx(sum(math.log1p(math.exp(g / 0.5)) for g in gaps) / 3)
        hinge = BatchHardLoss(exclusion_radius=radius, margin=1.0)(anchor, positive, POSITIONS)
        assert hinge.item() == pytest.approx(sum(max(g + 1, 0) for g in gaps) / 3)


def test_batch_hard_without_negatives() -> None:
    anchor = circle(0, 90, 180).requires_grad_()
    positive = circle(10, 60, 180)
    loss = BatchHardLoss(exclusion_radius=5.0)(anchor, positive, POSITIONS)
    assert loss == 0
    assert (torch.autograd.grad(loss, anchor)[0] == 0).all()
    assert BatchHardLoss()(anchor[:1], positive[:1], POSITIONS[:1]) == 0


@pytest.mark.parametrize("margin", ["soft", 0.5])
def test_batch_hard_gradients(margin: float | str) -> None:
    loss = BatchHardLoss(exclusion_radius=0.1, margin=margin, temperature=0.5)
    anchor, positive = (random(8, 4, seed=s).requires_grad_() for s in (1, 2))
    positions = random(8, 3, seed=3)
    assert torch.autograd.gradcheck(lambda a, b: loss(a, b, positions), (anchor, positive))
    equal = torch.ones(8, 4, requires_grad=True)  # collapsed: log 2, or the margin
    value = loss(equal, equal, positions.float())
    assert value.item() == pytest.approx(math.log(2) if margin == "soft" else margin)
    assert torch.autograd.grad(value, equal)[0].isfinite().all()


def test_infonce_by_hand():
    positions = torch.tensor([[0.0, 0, 0], [0.05, 0, 0], [1.0, 0, 0]])
    anchor = torch.nn.functional.normalize(
        torch.randn(3, 8, generator=torch.Generator().manual_seed(0)), dim=1
    )
    positive = torch.nn.functional.normalize(
        torch.randn(3, 8, generator=torch.Generator().manual_seed(1)), dim=1
    )
    s = ((anchor @ positive.T) / 0.07).double()
    rows = [[0, 2], [1, 2], [2, 0, 1]]  # matches to choose from in each row, the right one first
    expected = sum(torch.logsumexp(s[k, r], 0) - s[k, k] for k, r in enumerate(rows)) / 3
    assert InfoNCELoss()(anchor, positive, positions).item() == pytest.approx(expected.item(), rel=1e-5)
    with pytest.raises(InputError, match="temperature"):
        InfoNCELoss(temperature=0)
