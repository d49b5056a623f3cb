"""Outliers go, surfaces stay."""

import numpy as np
import pytest
import torch

from wsdesc.cloud.outliers import without_strays
from wsdesc.cloud.sampling import voxel_downsample

RESOLUTION = 0.03


@pytest.fixture(scope="module")
def thinned(room):
    return voxel_downsample(torch.from_numpy(room.source), RESOLUTION)


def test_a_scan_without_outliers_stays_as_it_is(thinned):
    assert without_strays(thinned, RESOLUTION) is thinned


@pytest.mark.parametrize("share", [0.15, 0.3])
def test_outliers_go_and_hardly_anything_else(room, share):
    rng = np.random.default_rng(0)
    count = int(share / (1 - share) * len(room.source))
    anywhere = rng.uniform(room.source.min(axis=0), room.source.max(axis=0), (count, 3))
    cloud = voxel_downsample(
        torch.from_numpy(np.vstack([room.source, anywhere]).astype(np.float32)), RESOLUTION
    )
    kept = without_strays(cloud, RESOLUTION)
    surface = torch.from_numpy(room.source)
    near = torch.tensor([bool((surface - p).norm(dim=1).min() < RESOLUTION) for p in cloud[::10]])
    stays = (cloud[::10, None] == kept[None]).all(-1).any(1)
    assert float(stays[near].double().mean()) > 0.97
    assert float(stays[~near].double().mean()) < 0.15


def test_few_points_and_equal_ones():
    for cloud in (torch.zeros(1, 3), torch.rand(3, 3), torch.zeros(80, 3)):
        assert len(without_strays(cloud, RESOLUTION)) == len(cloud)
