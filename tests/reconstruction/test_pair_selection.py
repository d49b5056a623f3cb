"""Selection of the pairs to register."""

import numpy as np
import torch

from wsdesc.alignment.information import Information
from wsdesc.reconstruction.jobs import CandidatePose
from wsdesc.reconstruction.pair_selection import ALL_PAIRS, RegisteredPair, connecting_pairs, first_pairs

INFORMATION = Information(np.eye(6), np.zeros(3), 1.0, 0.5, 2000)


def pair_of(i, j, confidence):
    return RegisteredPair.of(
        j, i, (CandidatePose(np.eye(4), confidence, False, 0.5, 0.01, INFORMATION),), 2000
    )


def circular_signatures(count):
    """Signatures on a circle: the neighbours of a scan are the most similar ones."""
    angle = torch.arange(count) * 2 * torch.pi / count
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def test_first_pairs_are_all_pairs_of_few_scans_and_similar_pairs_of_many():
    assert len(first_pairs(circular_signatures(ALL_PAIRS), 1)) == ALL_PAIRS * (ALL_PAIRS - 1) // 2
    pairs = first_pairs(circular_signatures(2 * ALL_PAIRS), 2)
    assert pairs == sorted({tuple(sorted((k, (k + 1) % (2 * ALL_PAIRS)))) for k in range(2 * ALL_PAIRS)})


def test_connecting_pairs_are_confident_or_new():
    registered = {(0, 1): pair_of(0, 1, 0.9), (0, 4): pair_of(0, 4, 0.2), (1, 4): pair_of(1, 4, 0.1)}
    registered |= {(3, 4): pair_of(3, 4, 0.0), (2, 3): pair_of(2, 3, 0.001)}
    components, signatures = [[0, 1, 2, 3], [4]], circular_signatures(5)
    pairs = connecting_pairs(components, registered, signatures, limit=2)
    assert pairs == [(0, 4), (2, 4)]  # the most confident pair and the one that is not registered yet
    pairs = connecting_pairs(components, registered, signatures, limit=3)
    assert pairs == [(0, 4), (1, 4), (2, 4)]
    pairs = connecting_pairs(components, registered, signatures, limit=9)
    assert pairs == [(0, 4), (1, 4), (2, 4), (3, 4)]


def test_one_component_needs_no_connecting_pairs():
    registered = {(0, 1): pair_of(0, 1, 0.1)}
    assert connecting_pairs([[0, 1, 2]], registered, circular_signatures(3), limit=5) == []


def test_pair_without_candidates_is_selected_again():
    pair = RegisteredPair.of(0, 1, (), 500)
    assert pair.confidence == 0
    assert connecting_pairs([[0], [1]], {(0, 1): pair}, circular_signatures(2), limit=5) == [(0, 1)]


def test_confidences_of_candidates_add_up_to_at_most_one():
    def confidences(*values):
        candidates = [
            CandidatePose(np.eye(4), value, len(values) > 1, 0.5, 0.01, INFORMATION) for value in values
        ]
        return [edge.confidence for edge in RegisteredPair.of(0, 1, tuple(candidates), 500).edges]

    assert confidences(0.9) == [0.9]
    assert confidences(0.7, 0.2) == [0.7, 0.2]
    np.testing.assert_allclose(confidences(0.9, 0.6), [0.6, 0.4])


def test_pairs_inside_an_earlier_model_are_not_selected():
    few = circular_signatures(4)
    assert first_pairs(few, 9, [0, 0, 0, None]) == [(0, 3), (1, 3), (2, 3)]
    assert first_pairs(few, 9, [0, 0, 1, 1]) == [(0, 2), (0, 3), (1, 2), (1, 3)]
    count = 2 * ALL_PAIRS
    origins = [0] * (count - 1) + [None]
    assert first_pairs(circular_signatures(count), 2, origins) == [(0, count - 1), (count - 2, count - 1)]
    halves = [0] * (count - 3) + [1] * 3
    pairs = first_pairs(circular_signatures(count), 1, halves)
    assert len(pairs) == 3
    assert all(i < count - 3 <= j for i, j in pairs)
    assert (count - 4, count - 3) in pairs
    assert (0, count - 1) in pairs


def test_retries_do_not_repeat_pairs_of_an_earlier_model():
    registered = {(0, 1): pair_of(0, 1, 0.2), (0, 2): pair_of(0, 2, 0.1)}
    pairs = connecting_pairs([[0], [1], [2]], registered, circular_signatures(3), 5, [0, 0, None])
    assert pairs == [(0, 2), (1, 2)]
