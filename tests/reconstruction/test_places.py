"""Place recognition: scores of pairs by their matches, and overlaps predicted from poses."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.synthetic import room_scans
from wsdesc.descriptor.describe import describe
from wsdesc.matching.mutual import mutual_matches
from wsdesc.reconstruction.jobs import DescribeJob, DescribeSettings, HashedScan
from wsdesc.reconstruction.pair_selection import (
    NEIGHBOURS_WEIGHT,
    RegisteredPair,
    add_neighbours_of_neighbours,
    best_pairs,
    first_pairs,
    loop_pairs,
)
from wsdesc.reconstruction.places import KEYPOINTS, Places, find_places, predicted_overlaps


def places_of(features):
    return Places(torch.eye(len(features)), features, torch.zeros(1, 1))


def scan_of(rng, count=200):
    descriptors = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(count, 16))).float(), dim=1)
    return descriptors, torch.from_numpy(rng.uniform(-3, 3, (count, 3))).float()


def reference_score(a, b):
    """Compute the score of two scans by an eigenvalue decomposition."""
    matches = mutual_matches(a[0], b[0])
    p, q = a[1][matches[:, 0]].double(), b[1][matches[:, 1]].double()
    first, second = torch.cdist(p, p), torch.cdist(q, q)
    graph = ((first - second).abs() < 0.1) & (first > 0.3)
    return float(torch.linalg.eigvalsh(graph.double())[-1])


def test_moved_scan_scores_higher_than_another_one():
    rng = np.random.default_rng(0)
    scan, other = scan_of(rng), scan_of(rng)
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = Rotation.random(random_state=1).as_matrix(), [5, 2, 1]
    half = (scan[0][100:], torch.from_numpy(transform(scan[1][100:].double().numpy(), T)).float())
    features = [scan, half, other]
    same, different = places_of(features).score_pairs([(0, 1), (0, 2)])
    assert same > 80  # of a hundred common keypoints
    assert different < 10
    np.testing.assert_allclose(same, reference_score(scan, half), rtol=1e-3)


def test_scores_of_many_pairs_and_of_empty_ones():
    rng = np.random.default_rng(1)
    features = [scan_of(rng, count) for count in (0, 1, 2, 30, 40)]
    pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)] * 40  # more than one batch
    scores = places_of(features).score_pairs(pairs)
    assert np.isfinite(scores).all()
    assert (scores[:7] < 2).all()
    np.testing.assert_array_equal(scores[:10], scores[-10:])
    assert places_of(features).score_pairs([]).shape == (0,)


def test_best_pairs_are_among_the_best_of_one_of_their_scans():
    pairs = [(0, 1), (0, 2), (0, 3), (2, 3)]
    scores = np.array([4.0, 3.0, 2.0, 1.0])
    assert best_pairs(pairs, scores, 1) == [(0, 1), (0, 2), (0, 3)]
    assert best_pairs(pairs, scores, 2) == pairs
    assert best_pairs(pairs, scores, 1, [3]) == [(0, 3)]


def test_scores_choose_from_the_shortlist():
    angle = torch.arange(60) * 2 * torch.pi / 60
    signatures = torch.stack([angle.cos(), angle.sin()], dim=1)
    pairs = first_pairs(signatures, 2, None, lambda pairs: np.array([float(j - i == 4) for i, j in pairs]))
    wanted = {tuple(sorted((k, (k + 4) % 60))) for k in range(56)}
    assert wanted <= set(pairs)  # the fourth neighbour is in the shortlist of eight


def test_pairs_with_a_common_partner_are_raised():
    scores = {(0, 1): 40.0, (1, 2): 30.0, (0, 3): 20.0, (0, 9): 1.0}
    raised = add_neighbours_of_neighbours(scores)
    assert raised[0, 2] == NEIGHBOURS_WEIGHT * 30  # through 1; the pair itself has no score
    assert raised[0, 1] == 40
    assert raised[1, 3] == NEIGHBOURS_WEIGHT * 20
    assert add_neighbours_of_neighbours({}) == {}


def test_overlaps_are_predicted_from_poses():
    rng = np.random.default_rng(2)
    wall = np.stack([rng.uniform(0, 10, 6000), rng.uniform(0, 3, 6000), np.zeros(6000)], axis=1)
    features, poses = [], []
    for k, start in enumerate((0.0, 2.0, 4.5, 30.0)):
        T = np.eye(4)
        T[:3, :3], T[:3, 3] = Rotation.random(random_state=k).as_matrix(), rng.normal(size=3)
        seen = wall[(wall[:, 0] >= start) & (wall[:, 0] < start + 5)] if start < 10 else wall[:500] + 100.0
        features.append((torch.zeros(0), torch.from_numpy(transform(seen[:500], inverse(T))).float()))
        poses.append(T)
    overlaps = predicted_overlaps(np.stack(poses), [0, 1, 2, 3], features)
    assert 0.5 < overlaps[0, 1] < 0.7  # 3 of 5 metres
    assert 0.4 < overlaps[1, 2] < 0.65
    assert overlaps[0, 2] < 0.2
    assert not any(3 in pair for pair in overlaps)


def test_loops_are_pairs_that_are_not_registered():
    overlaps = {(0, 1): 0.9, (0, 2): 0.5, (1, 2): 0.1, (2, 3): 0.4, (3, 4): 0.6}
    registered = {(0, 1): RegisteredPair.of(0, 1, (), 500)}
    assert loop_pairs(overlaps, registered, 5, [None] * 5) == [(0, 2), (2, 3), (3, 4)]
    assert loop_pairs(overlaps, registered, 5, [0, 0, 0, None, None]) == [(2, 3), (3, 4)]


@pytest.mark.slow
def test_places_of_a_model_are_not_read_again(tmp_path):
    settings = DescribeSettings("indoor-fast", "", 0.05, 60, 60, "cpu", 0)
    jobs = []
    for k, scan in enumerate([*room_scans(3, 3, resolution=0.05), *room_scans(9, 2, resolution=0.05)]):
        described = describe(scan.points, keypoints=60, resolution=0.05, device="cpu")
        described.save(tmp_path / f"{k}.npz")
        jobs.append(DescribeJob(HashedScan("", str(k)), settings, str(tmp_path / f"{k}.npz")))
    names = [f"scan {k}" for k in range(5)]
    all_of_them = find_places(names, jobs, 0, None)
    assert len(all_of_them.features[0][0]) == 60 <= KEYPOINTS
    saved = all_of_them.saved(names)
    known = saved._replace(aggregates={name: saved.aggregates[name] for name in names[:4]})
    for k in range(4):
        (tmp_path / f"{k}.npz").unlink()
    grown = find_places(names, jobs, 0, known)
    torch.testing.assert_close(grown.signatures, all_of_them.signatures)
