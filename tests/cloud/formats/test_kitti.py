"""Binary files without a header, as of KITTI and nuScenes."""

import numpy as np
import pytest

from wsdesc.cloud.files import read_cloud, write_points
from wsdesc.core.errors import FileFormatError


@pytest.fixture
def sweep() -> np.ndarray:
    """Points with intensity and ring (400, 5); the length fits to rows of four and of five numbers."""
    rng = np.random.default_rng(0)
    points, ring = rng.normal(size=(400, 3)) * 20, rng.integers(0, 32, 400)
    return np.column_stack([points, rng.random(400), ring]).astype("<f4")


def test_kitti(tmp_path, sweep):
    for count in (1, 5, 399, 400):
        sweep[:count, :4].tofile(tmp_path / "000000.bin")
        cloud = read_cloud(tmp_path / "000000.bin")
        np.testing.assert_array_equal(cloud.points, sweep[:count, :3])
        np.testing.assert_array_equal(cloud.attributes["intensity"], sweep[:count, 3])
        assert cloud.attributes["intensity"].dtype == np.float32


@pytest.mark.parametrize("name", ["sweep.pcd.bin", "sweep.bin"])
def test_nuscenes(tmp_path, sweep, name):
    sweep[:, 3] *= 255
    sweep.tofile(tmp_path / name)
    cloud = read_cloud(tmp_path / name)
    np.testing.assert_array_equal(cloud.points, sweep[:, :3])
    np.testing.assert_array_equal(cloud.attributes["ring"], sweep[:, 4])


def test_nan_is_dropped(tmp_path, sweep):
    sweep[7, :3] = np.nan
    sweep[:, :4].tofile(tmp_path / "a.bin")
    assert read_cloud(tmp_path / "a.bin", nonfinite="drop").dropped == 1


@pytest.mark.parametrize("extra", [4, 5])
def test_written_as_read(tmp_path, sweep, extra):
    attributes = {"intensity": sweep[:, 3], "ring": sweep[:, 4]} if extra == 5 else {"intensity": sweep[:, 3]}
    write_points(tmp_path / "a.bin", sweep[:, :3], attributes)
    assert (tmp_path / "a.bin").read_bytes() == sweep[:, :extra].tobytes()


def test_other_binary_files_are_rejected(tmp_path, sweep):
    rng = np.random.default_rng(1)
    others = [
        sweep[:, :3].tobytes(),  # three numbers per point
        sweep[:, :4].astype("<f8").tobytes(),
        rng.bytes(4000),
        np.arange(1000, dtype="<i4").tobytes(),
        sweep[:, :4].tobytes()[:-1],
    ]
    for content in others:
        (tmp_path / "a.bin").write_bytes(content)
        with pytest.raises(FileFormatError, match=r"neither 4 float32 .* nor 5 .*; convert it"):
            read_cloud(tmp_path / "a.bin")
