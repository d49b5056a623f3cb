"""Priors on real scans: a levelled laser scanner in a building, and a depth camera in a kitchen."""

import numpy as np
import pytest
from tests.poses import largest_difference, perturbed

import wsdesc
from wsdesc.datasets.threedmatch import read_log

SCENES = {
    "building": ("tls/building", "tls/building-evaluation", np.array([0, 0, 1.0])),
    "kitchen": ("indoor/test/kitchen", "indoor/test/kitchen-evaluation", np.array([0, -1.0, 0])),
}
HERE = {"search_radius": 0, "max_angle": 0}  # refinement only

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=SCENES)
def pair(request, data_folder):
    """Source, target, the true pose, and up in the target."""
    scans, evaluation, up = SCENES[request.param]
    if not (data_folder / evaluation / "gt.log").is_file():
        pytest.skip(f"the data folder has no {evaluation}")
    truth = read_log(data_folder / evaluation / "gt.log")[0]
    source, target = (
        wsdesc.read_points(data_folder / scans / f"cloud_bin_{k}.ply") for k in (truth.j, truth.i)
    )
    return source, target, truth.T_i_j, up


@pytest.fixture(scope="module")
def described(pair):
    resolution = wsdesc.register(pair[0], pair[1], initial=pair[2], **HERE).resolution
    return [wsdesc.describe(points, resolution=resolution, keypoints=1200) for points in pair[:2]]


def test_right_priors_keep_the_right_pose(pair, described):
    source, _, T, up = pair
    up_source = T[:3, :3].T @ up
    guess = perturbed(T, source, 5, 0.2, 0)
    for known in (
        {"up": (up_source, up)},
        {"axis": (up_source, up)},
        {"initial": guess, "search_radius": 0.5, "max_angle": 10},
        {"initial": perturbed(T, source, 1, 0.05, 1), **HERE},
        {"overlap_at_least": 0.2},
    ):
        result = wsdesc.register(*described, **known)
        assert largest_difference(source, result.T_target_source, T) < 0.3, known
        assert result.success, (known, result.warnings)


def test_wrong_priors_give_no_success(pair, described):
    source, _, T, up = pair
    up_source = T[:3, :3].T @ up
    for known in (
        {"up": (up_source, -up)},
        {"axis": (up_source, np.cross(up, [1.0, 2.0, 3.0]))},
        {"initial": perturbed(T, source, 90, 2.0, 0), "search_radius": 0.5, "max_angle": 10},
        {"initial": perturbed(T, source, 45, 1.0, 1), **HERE},
        {"overlap_at_least": 0.999},
    ):
        result = wsdesc.register(*described, **known)
        assert not result.success, known
        assert any("The best pose without" in warning for warning in result.warnings), known


@pytest.mark.parametrize("offset", [(0.0, 0.0, 0.0), (431_250.0, 5_411_800.0, 320.0)])
def test_levelled_building_has_a_known_axis(data_folder, offset):
    """Scans of a levelled scanner rotate about z only, also in map coordinates."""
    folder = data_folder / "tls"
    if not (folder / "building").is_dir():
        pytest.skip("the data folder has no tls/building")
    truth = read_log(folder / "building-evaluation" / "gt.log")[0]
    source = wsdesc.read_points(folder / "building" / f"cloud_bin_{truth.j}.ply")
    target = wsdesc.read_points(folder / "building" / f"cloud_bin_{truth.i}.ply") + np.array(offset)
    result = wsdesc.register(source, target, axis="z")
    assert result.success
    np.testing.assert_allclose(result.rotation[2], [0, 0, 1], atol=1e-9)
    T = truth.T_i_j.copy()
    T[:3, 3] += offset
    assert largest_difference(source, result.T_target_source, T) < 0.1
