"""Search for the viewpoint of moved scans: it is found, or none is; it is never a wrong one."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.cloud.clean import clean_cloud
from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.viewpoint_search import search_viewpoint
from wsdesc.datasets.synthetic import room_scans
from wsdesc.datasets.synthetic.floor import floor_scans
from wsdesc.datasets.synthetic.survey import site_scans

SHIFT = np.array([40.0, -20.0, 7.0])


def moved(points, seed=0):
    return points @ Rotation.random(random_state=seed).as_matrix().T + SHIFT


@pytest.mark.slow
def test_viewpoint_of_a_moved_scan():
    points = moved(floor_scans(41, 1)[0].points.astype(np.float64))
    position = search_viewpoint(points)
    assert np.linalg.norm(position - SHIFT) < 0.3


@pytest.mark.slow
def test_viewpoint_of_a_scan_that_is_not_thinned():
    points = moved(site_scans("courtyard", 52, 1)[0].points.astype(np.float64))
    assert np.linalg.norm(search_viewpoint(points) - SHIFT) < 0.3


@pytest.mark.slow
def test_clouds_without_a_viewpoint():
    a, b = floor_scans(1, 2)
    T = np.linalg.inv(a.T_world_scan) @ b.T_world_scan
    merged = np.concatenate([a.points, b.points @ T[:3, :3].T + T[:3, 3]])
    assert search_viewpoint(merged) is None
    assert all(search_viewpoint(scan.points) is None for scan in room_scans(0, 2))


@pytest.mark.parametrize(
    "points",
    [np.zeros((10, 3)), np.array([[1.0, 2, 3]]), np.tile([1.0, 0, 0], (1000, 1)), np.ones((5, 3)) * 1e6],
)
def test_degenerate_points_have_none(points):
    assert search_viewpoint(points) is None


@pytest.mark.slow
def test_clean_cloud_searches_only_if_asked():
    cloud = Cloud(moved(floor_scans(41, 1)[0].points.astype(np.float64)))
    assert clean_cloud(cloud).viewpoint is None
    viewpoint = clean_cloud(cloud, search=True).viewpoint
    assert viewpoint.source == "detected"
    assert np.linalg.norm(viewpoint.position - SHIFT) < 0.3
    assert clean_cloud(cloud, "none", search=True).viewpoint is None
