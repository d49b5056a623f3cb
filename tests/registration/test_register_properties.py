"""Properties of register: invariance, and no false success after a loss of points.

This is a small sample; `benchmarks/properties.py` measures many rooms.
"""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import wsdesc
from wsdesc.cloud.sampling import voxel_downsample

perturb = pytest.importorskip("benchmarks.perturb", reason="the benchmarks are not part of this distribution")

pytestmark = pytest.mark.slow

FAST = {"keypoints": (400,)}
MAX_ERROR = 0.1  # metres: error of a right pose
MAX_CHANGE = 0.02  # metres: change of the error by a perturbation without loss
sample = settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def pair(room):
    clouds = (voxel_downsample(torch.from_numpy(cloud), 0.03) for cloud in (room.source, room.target))
    source, target = (cloud.double().numpy() for cloud in clouds)
    return perturb.PosedPair(source, target, room.T_target_source)


@pytest.fixture(scope="module")
def error(pair):
    """Error of the pose of the unperturbed pair."""
    result = wsdesc.register(pair.source, pair.target, **FAST)
    assert result.success
    assert pair.displacement(result.T_target_source) < MAX_ERROR
    return pair.displacement(result.T_target_source)


def perturbed_error(perturbation, pair, seed, confidence):
    """Return the error of the pose of a perturbed pair, which must have this confidence or more."""
    perturbed = perturbation(pair, np.random.default_rng(seed))
    result = wsdesc.register(perturbed.source, perturbed.target, **FAST)
    assert result.confidence >= confidence
    return perturbed.displacement(result.T_target_source)


@pytest.mark.parametrize("name", perturb.EXACT)
@sample
@given(seed=st.integers(0, 2**32 - 1))
def test_perturbation_without_loss_keeps_the_pose(pair, error, name, seed):
    assert abs(perturbed_error(perturb.EXACT[name], pair, seed, 0.9) - error) < MAX_CHANGE


@pytest.mark.parametrize("name", perturb.LOSSY)
@sample
@given(seed=st.integers(0, 2**32 - 1))
def test_perturbation_with_loss_keeps_a_right_pose(pair, error, name, seed):
    assert perturbed_error(perturb.LOSSY[name], pair, seed, 0.8) < MAX_ERROR


@sample
@given(seed=st.integers(0, 2**32 - 1))
def test_noise_is_no_success(pair, seed):
    rng = np.random.default_rng(seed)
    noise = rng.uniform(pair.target.min(axis=0), pair.target.max(axis=0), pair.target.shape)
    assert not wsdesc.register(pair.source, noise, **FAST).success
