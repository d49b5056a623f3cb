"""What `register` finds depends neither on where scans are, nor on the order of points, nor on the unit;
and a scan that lost something is registered as before, or not called a success.

A small sample; `benchmarks/properties.py` counts.
"""

import numpy as np
import pytest
import torch
from benchmarks.perturb import EXACT, LOSSY, Posed
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import wsdesc
from wsdesc.cloud.sampling import voxel_downsample

FAST = {"keypoints": (400,)}
RIGHT = 0.1  # metres
SAME = 0.02  # metres between poses of scans that hold the same
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
    return Posed(source, target, room.T_target_source)


@pytest.fixture(scope="module")
def before(pair):
    """How far off the pose of the pair as it is."""
    result = wsdesc.register(pair.source, pair.target, **FAST)
    assert result.success
    assert pair.displacement(result.T_target_source) < RIGHT
    return result


def off_after(disturbance, pair, seed):
    """How far off the pose is of a disturbed pair, which must be called a success."""
    now = disturbance(pair, np.random.default_rng(seed))
    result = wsdesc.register(now.source, now.target, **FAST)
    assert result.success
    return now.displacement(result.T_target_source)


@pytest.mark.parametrize("name", EXACT)
@sample
@given(seed=st.integers(0, 2**32 - 1))
def test_what_changes_nothing_changes_nothing(pair, before, name, seed):
    assert abs(off_after(EXACT[name], pair, seed) - pair.displacement(before.T_target_source)) < SAME


@pytest.mark.parametrize("name", LOSSY)
@sample
@given(seed=st.integers(0, 2**32 - 1))
def test_what_takes_something_away_is_borne_or_said(pair, before, name, seed):
    assert off_after(LOSSY[name], pair, seed) < RIGHT


@sample
@given(seed=st.integers(0, 2**32 - 1))
def test_a_pose_of_nothing_is_not_called_a_success(pair, seed):
    rng = np.random.default_rng(seed)
    noise = rng.uniform(pair.target.min(axis=0), pair.target.max(axis=0), pair.target.shape)
    assert not wsdesc.register(pair.source, noise, **FAST).success
