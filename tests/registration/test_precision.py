"""Single precision gives the pose of double precision."""

import numpy as np
import pytest

from wsdesc.datasets.synthetic import room_scans

precision = pytest.importorskip(
    "benchmarks.precision", reason="the benchmarks are not part of this distribution"
)

pytestmark = pytest.mark.slow


def count_within_limits(pairs):
    """Count the pairs of files whose pose in float32 is that in float64, within the promised limits."""
    differences = precision.measure_differences(pairs, "indoor-fast", "cpu", 600)
    ((variant, rows),) = differences.items()
    return precision.count_within_limits(variant, rows)


def test_synthetic_scans_far_from_the_origin(tmp_path):
    offset = np.array([4e5, 5e6, 100.0])  # as in geographic coordinates
    pairs = []
    for seed in range(3, 7):
        pairs.append((tmp_path / f"{seed}_0.npy", tmp_path / f"{seed}_1.npy"))
        for path, scan in zip(pairs[-1], room_scans(seed, 2, resolution=0.05), strict=True):
            np.save(path, scan.points + offset)
    # A keypoint on a plane without noise has an arbitrary x axis: it may move one of the poses.
    assert count_within_limits(pairs) >= 3


def test_real_scans(data_folder):
    scene = data_folder / "indoor" / "train" / "tum_fr1_desk"
    if not scene.is_dir():
        pytest.skip("the data folder has no tum_fr1_desk")
    assert count_within_limits([(scene / "cloud_bin_0.ply", scene / "cloud_bin_1.ply")]) == 1
