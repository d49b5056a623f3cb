"""Candidates of a pair: ranking, distinct poses, evidence of other poses, and both backends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from poses import largest_difference, perturbed
from wsdesc.alignment.evidence import Evidence
from wsdesc.alignment.hypotheses import Hypothesis
from wsdesc.alignment.patch_gaps import PatchGap
from wsdesc.alignment.surface import CpuSurface, CudaSurface
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import RoomPair
from wsdesc.registration.candidate import Candidate, with_probabilities
from wsdesc.registration.verification import verify_hypotheses

RESOLUTION = 0.025
UNSEEN = (None, None)  # range images of scans without a viewpoint


@pytest.fixture(scope="module")
def points(room: RoomPair) -> list[torch.Tensor]:
    return [voxel_downsample(torch.as_tensor(x).float(), RESOLUTION) for x in (room.source, room.target)]


@pytest.fixture(scope="module")
def proposed(room: RoomPair, points: list[torch.Tensor]) -> list[Hypothesis]:
    """Hypotheses: the true pose, a wrong one, one near the true pose, and a wrong one."""
    T, source = np.asarray(room.T_target_source), points[0].numpy()
    offsets = [(0, 0, 0), (40, 20, 0), (2, 1, 1), (90, 9, 2)]  # degrees, resolutions, seed
    poses = [perturbed(T, source, angle, steps * RESOLUTION, seed) for angle, steps, seed in offsets]
    return [Hypothesis(torch.from_numpy(T), torch.ones(9).bool(), 9.0 - k) for k, T in enumerate(poses)]


@pytest.fixture(scope="module")
def candidates(proposed: list[Hypothesis], points: list[torch.Tensor]) -> list[Candidate]:
    surfaces = tuple(CpuSurface.of(x.numpy()) for x in points)
    return verify_hypotheses(proposed, surfaces, UNSEEN, 9, refined=4)


def test_the_true_pose_is_ranked_first(room: RoomPair, points: list, candidates: list[Candidate]) -> None:
    T = np.asarray(room.T_target_source)
    assert largest_difference(points[0], candidates[0].refined.T_target_source, T) < RESOLUTION


def test_candidates_differ_from_each_other(candidates: list[Candidate]) -> None:
    assert len(candidates) < 4, "two hypotheses lead to the true pose"
    assert not candidates[0].differs(candidates[0])
    assert all(a.differs(b) for a in candidates for b in candidates if a is not b)


def test_backends_choose_the_same_candidates(proposed: list[Hypothesis], points: list) -> None:
    on_cpu = tuple(CpuSurface.of(x.numpy()) for x in points)
    on_cuda = tuple(CudaSurface.of(x) for x in points)
    results = [verify_hypotheses(proposed, surfaces, UNSEEN, 9, refined=2) for surfaces in (on_cuda, on_cpu)]
    for a, b in zip(*results, strict=True):
        distance = largest_difference(points[0], a.refined.T_target_source, b.refined.T_target_source)
        assert distance < 0.1 * RESOLUTION
        measured = slice(0, Evidence._fields.index("violation"))
        np.testing.assert_allclose(a.evidence[measured], b.evidence[measured], atol=0.02)
        assert a.evidence.violation is b.evidence.violation is None
    assert verify_hypotheses([], on_cuda, UNSEEN, 9) == verify_hypotheses([], on_cpu, UNSEEN, 9) == []
    with pytest.raises(InputError, match="one device"):
        verify_hypotheses(proposed, (on_cpu[0], on_cuda[1]), UNSEEN, 9)


@pytest.mark.parametrize(
    ("gaps", "decisive"),
    [
        ((1.1, 4.0), True),
        ((3.0, 9.0), False),  # bent scans: noise does not explain either gap
    ],
)
def test_patch_gaps_choose_among_plausible_candidates(candidates, monkeypatch, gaps, decisive) -> None:
    tight, loose = (replace(candidates[0], rank=gap) for gap in gaps)  # equal in all other figures
    monkeypatch.setattr(Candidate, "measure_patch_gap", lambda c: PatchGap(0.001 * c.rank, c.rank))
    first, second = with_probabilities([loose, tight])
    if decisive:
        assert first.rank == gaps[0]
        assert first.probability > 3 * second.probability
    else:
        assert first.probability == pytest.approx(second.probability)


def test_patch_gap_is_not_measured_for_a_single_plausible_candidate(candidates: list[Candidate]) -> None:
    ranked = with_probabilities(candidates)
    assert ranked[0].probability > 0.9
    assert all(candidate.patch_gap is None for candidate in ranked)
