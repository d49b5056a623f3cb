"""Outliers are removed, surfaces stay."""

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from wsdesc.cloud.outliers import remove_outliers
from wsdesc.cloud.sampling import voxel_downsample

RESOLUTION = 0.03


@pytest.fixture(scope="module")
def downsampled(room):
    return voxel_downsample(torch.from_numpy(room.source), RESOLUTION)


def test_a_scan_without_outliers_is_unchanged(downsampled):
    assert remove_outliers(downsampled, RESOLUTION) is downsampled


@pytest.mark.parametrize("share", [0.15, 0.3])
def test_outliers_are_removed_and_surfaces_stay(room, share):
    rng = np.random.default_rng(0)
    count = int(share / (1 - share) * len(room.source))
    outliers = rng.uniform(room.source.min(axis=0), room.source.max(axis=0), (count, 3))
    cloud = voxel_downsample(
        torch.from_numpy(np.vstack([room.source, outliers]).astype(np.float32)), RESOLUTION
    )
    kept = remove_outliers(cloud, RESOLUTION)
    near = torch.from_numpy(cKDTree(room.source).query(cloud)[0] < RESOLUTION)
    stays = torch.from_numpy(cKDTree(kept).query(cloud)[0] == 0)
    assert float(stays[near].double().mean()) > 0.97
    assert float(stays[~near].double().mean()) < 0.15


def test_few_or_equal_points_stay():
    for cloud in (torch.zeros(1, 3), torch.rand(3, 3), torch.zeros(80, 3)):
        assert len(remove_outliers(cloud, RESOLUTION)) == len(cloud)
