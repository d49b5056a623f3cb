"""Matches among allowed pairs only."""

import torch

from wsdesc.matching.mutual import mutual_matches, one_sided_matches


def brute_force(source, target, allowed):
    """Return the pairs of nearest allowed neighbours, from either side and from both."""
    distance = torch.cdist(source, target).masked_fill(~allowed, torch.inf)
    forward = {(i, int(distance[i].argmin())) for i in range(len(source)) if allowed[i].any()}
    backward = {(int(distance[:, j].argmin()), j) for j in range(len(target)) if allowed[:, j].any()}
    return forward | backward, forward & backward


def test_matches_among_allowed_pairs_agree_with_brute_force():
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randn(n, 8, generator=generator, dtype=torch.float64) for n in (60, 45))
    allowed = torch.rand(60, 45, generator=generator) < 0.1
    allowed[7], allowed[:, 9] = False, False
    either, both = brute_force(source, target, allowed)
    for chunk in (None, 16):
        pairs, mutual = one_sided_matches(source, target, chunk, allowed=allowed)
        assert set(map(tuple, pairs.tolist())) == either
        assert set(map(tuple, pairs[mutual].tolist())) == both
        assert set(map(tuple, mutual_matches(source, target, chunk, allowed=allowed).tolist())) == both


def test_all_pairs_allowed_change_nothing_and_none_leave_nothing():
    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randn(n, 8, generator=generator) for n in (30, 40))
    everything = torch.ones(30, 40, dtype=torch.bool)
    for match in (mutual_matches, lambda *a, **k: one_sided_matches(*a, **k)[0]):
        assert torch.equal(match(source, target, allowed=everything), match(source, target))
        assert len(match(source, target, allowed=~everything)) == 0
