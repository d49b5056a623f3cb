"""Groups are divided where the gaps between patches are larger than inside."""

import numpy as np

from wsdesc.alignment.information import Information
from wsdesc.reconstruction.gaps import separate_by_gaps
from wsdesc.reconstruction.pose_graph import Edge

INFORMATION = Information(np.eye(6), np.zeros(3), 1.0, 1.0, 1000)
TIGHT, LOOSE = 0.001, 0.002  # gaps in metres


def edge(i, j, gap):
    return Edge(j, i, np.eye(4), 0.99, INFORMATION, 0.01, False, gap)


def two_rooms(gap_between):
    """Four scans of one room, and three of an equal room that lie on top of it."""
    inside = [edge(i, j, TIGHT) for i, j in ((0, 1), (1, 2), (2, 3), (0, 3), (4, 5), (5, 6))]
    return inside + [edge(i, j, gap_between) for i, j in ((0, 4), (1, 5), (2, 6))]


def test_equal_rooms_are_separated():
    assert sorted(map(sorted, separate_by_gaps(two_rooms(LOOSE), 8))) == [[0, 1, 2, 3], [4, 5, 6], [7]]


def test_equally_tight_scans_stay_together():
    assert sorted(map(sorted, separate_by_gaps(two_rooms(1.2 * TIGHT), 8))) == [list(range(7)), [7]]


def test_one_loose_edge_does_not_separate():
    """The overlap of a single edge may lie at the border of both scans, where gaps are larger."""
    edges = [edge(0, 1, TIGHT), edge(1, 2, LOOSE), edge(2, 3, TIGHT)]
    assert sorted(map(sorted, separate_by_gaps(edges, 4))) == [[0, 1, 2, 3]]


def test_scans_with_large_gaps_everywhere_stay_together():
    """Distortion, as by fusion, makes all gaps of a scan large."""
    edges = [edge(0, k, 5 * TIGHT) for k in (1, 2, 3)] + [edge(1, 2, TIGHT), edge(2, 3, TIGHT)]
    assert sorted(map(sorted, separate_by_gaps(edges, 4))) == [[0, 1, 2, 3]]


def test_unknown_and_zero_gaps_separate_nothing():
    assert sorted(map(sorted, separate_by_gaps(two_rooms(None), 7))) == [list(range(7))]
    copies = [edge._replace(patch_gap=0.0) for edge in two_rooms(TIGHT)]
    assert sorted(map(sorted, separate_by_gaps(copies, 7))) == [list(range(7))]
    assert sorted(separate_by_gaps([], 2)) == [[0], [1]]
