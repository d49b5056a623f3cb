"""Single precision gives the pose of double precision."""

import numpy as np
import pytest

from wsdesc.datasets.synthetic import room_scans

precision = pytest.importorskip(
    "benchmarks.precision", reason="the benchmarks are not part of this distribution"
)

pytestmark = pytest.mark.slow


def check(source, target):
    """Check that the pose of two files in float32 is that in float64, within the promised limits."""
    # With fewer keypoints, one on a plane without noise, whose x axis is arbitrary, can move the pose.
    differences = precision.measure_differences([(source, target)], "indoor-fast", "cpu", 600)
    assert [precision.count_within_limits(variant, rows) for variant, rows in differences.items()] == [1]


def test_synthetic_scans_far_from_the_origin(tmp_path):
    offset = np.array([4e5, 5e6, 100.0])  # as in geographic coordinates
    for number, scan in enumerate(room_scans(3, 2, resolution=0.05)):
        np.save(tmp_path / f"{number}.npy", scan.points + offset)
    check(tmp_path / "0.npy", tmp_path / "1.npy")


def test_real_scans(data_folder):
    scene = data_folder / "indoor" / "train" / "tum_fr1_desk"
    if not scene.is_dir():
        pytest.skip("the data folder has no tum_fr1_desk")
    check(scene / "cloud_bin_0.ply", scene / "cloud_bin_1.ply")
