"""Which pairs are tried, and tried again."""

import numpy as np
import torch

from wsdesc.alignment.observability import Information
from wsdesc.reconstruction.pair_selection import ALL_PAIRS, Found, first_pairs, pairs_between
from wsdesc.reconstruction.pose_graph import Edge

FIRM = Information(np.eye(6), np.zeros(3), 1.0, 0.5, 2000)


def found(i, j, confidence):
    return Found([Edge(j, i, np.eye(4), confidence, FIRM, 0.01)], [0.5], 2000)


def circle(count):
    """Signatures of scans that stand round a place: the next ones are the most similar."""
    angle = torch.arange(count) * 2 * torch.pi / count
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def test_few_scans_are_tried_all_many_with_the_most_similar():
    assert len(first_pairs(circle(ALL_PAIRS), 1)) == ALL_PAIRS * (ALL_PAIRS - 1) // 2
    many = first_pairs(circle(2 * ALL_PAIRS), 2)
    assert many == sorted({tuple(sorted((k, (k + 1) % (2 * ALL_PAIRS)))) for k in range(2 * ALL_PAIRS)})


def test_what_is_apart_is_tried_again_where_it_is_likely_and_new():
    tried = {(0, 1): found(0, 1, 0.9), (0, 4): found(0, 4, 0.2), (1, 4): found(1, 4, 0.1)}
    tried |= {(3, 4): found(3, 4, 0.0), (2, 3): found(2, 3, 0.001)}
    again = pairs_between([[0, 1, 2, 3], [4]], tried, circle(5), most=2)
    assert again == [(0, 4), (2, 4)]  # the most convincing one, and the one that is new
    again = pairs_between([[0, 1, 2, 3], [4]], tried, circle(5), most=3)
    assert again == [(0, 4), (1, 4), (2, 4)]
    again = pairs_between([[0, 1, 2, 3], [4]], tried, circle(5), most=9)
    assert again == [(0, 4), (1, 4), (2, 4), (3, 4)]


def test_nothing_is_apart():
    assert pairs_between([[0, 1, 2]], {(0, 1): found(0, 1, 0.1)}, circle(3), most=5) == []


def test_scans_that_nothing_brings_together():
    nothing = Found.of(0, 1, {"poses": []}, 500)
    assert nothing.confidence == 0
    assert pairs_between([[0], [1]], {(0, 1): nothing}, circle(2), most=5) == [(0, 1)]


def test_of_several_poses_one_is_right_at_most():
    def confidences(*given):
        held = [FIRM.matrix.tolist(), FIRM.centre.tolist(), *FIRM[2:]]
        pose = {"T_target_source": np.eye(4).tolist(), "rmse": 0.01, "overlap": 0.5, "information": held}
        poses = [pose | {"confidence": sure, "alike": len(given) > 1} for sure in given]
        return [edge.confidence for edge in Found.of(0, 1, {"poses": poses}, 500).edges]

    assert confidences(0.9) == [0.9]
    assert confidences(0.7, 0.2) == [0.7, 0.2]
    np.testing.assert_allclose(confidences(0.9, 0.6), [0.6, 0.4])
