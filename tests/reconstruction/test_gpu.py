"""Reconstruction on a GPU."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc import write_points
from wsdesc.core.geometry import inverse
from wsdesc.datasets.synthetic import room_scans
from wsdesc.reconstruction import tasks
from wsdesc.reconstruction.pipeline import reconstruct

pytestmark = pytest.mark.gpu


def test_pairs_are_registered_on_the_gpu(tmp_path, monkeypatch):
    devices = []
    find_candidates = tasks.find_candidates

    def record_devices(p, q, *arguments, **options):
        devices.extend([p.points.device.type, q.descriptors.device.type])
        return find_candidates(p, q, *arguments, **options)

    monkeypatch.setattr(tasks, "find_candidates", record_devices)
    poses = []
    for number, scan in enumerate(room_scans(3, 3, resolution=0.05)):
        R = Rotation.random(random_state=number).as_matrix()
        write_points(tmp_path / f"{number}.ply", scan.points @ R.T)
        T = np.eye(4)
        T[:3, :3] = R.T
        poses.append(scan.T_world_scan @ T)
    result = reconstruct(tmp_path, tmp_path / "model", device="cuda", keypoints=300, more_keypoints=0)
    assert set(devices) == {"cuda"}
    assert result.complete
    for number, T in enumerate(poses):
        error = result.T_world_scan[f"{number}.ply"] - inverse(poses[0]) @ T
        assert np.abs(error).max() < 0.1
