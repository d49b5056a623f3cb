"""When weights count as better."""

from __future__ import annotations

import pytest

from wsdesc.adaptation.check import PairFigures, compare


def figures(ratio: float, ransac_right: int, right: int, count: int = 14) -> list[PairFigures]:
    return [
        PairFigures(0, 1, 0.3, ratio, k < ransac_right, registered=True, right=k < right)
        for k in range(count)
    ]


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (figures(0.36, 14, 14), None),
        (figures(0.36, 13, 14), None),  # one pair by chance
        (figures(0.36, 14, 13), None),
        (figures(0.36, 12, 14), "RANSAC registered 85.7 % of the pairs, 100.0 % before"),
        (figures(0.36, 14, 12), "85.7 % were registered, 100.0 % before"),
        (figures(0.302, 14, 14), "the inlier ratio went from 30.0 to 30.2 %"),
    ],
)
def test_few_pairs_may_lose_one_by_chance(after, reason):
    assert compare(figures(0.3, 14, 14), after) == reason


def test_many_pairs_may_lose_two_percent():
    before = figures(0.3, 100, 100, 100)
    assert compare(before, figures(0.36, 98, 98, 100)) is None
    assert (
        compare(before, figures(0.36, 97, 100, 100))
        == "RANSAC registered 97.0 % of the pairs, 100.0 % before"
    )
