"""`wsdesc.find`: objects in scenes, absent objects, several instances, bad input."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

import wsdesc
from object_scenes import VIEWPOINT, bracket, pose, sampled, scene, wedge
from wsdesc import Finding, WSDescError
from wsdesc.core.geometry import transform

OBJECT = sampled(bracket(), 0.0025)


def error(T, truth, points=OBJECT):
    """ADD-S: mean distance to the nearest point of the object in the true pose."""
    return cKDTree(transform(points, truth)).query(transform(points, T))[0].mean()


@pytest.fixture(scope="module")
def finding():
    truth = pose(0.12, -0.15, yaw=0.9)
    return truth, wsdesc.find(OBJECT, scene(truth), viewpoint=VIEWPOINT)


def test_half_visible_object_is_found(finding):
    truth, result = finding
    assert result.success
    assert len(result.instances) == 1
    assert error(result.instances[0].T_scene_object, truth) < 0.002
    assert 0.25 < result.instances[0].visible < 0.8
    assert result.instances[0].rmse < 0.004


def test_pose_moves_the_object_into_the_scene(finding):
    truth, result = finding
    moved = result.instances[0].apply(OBJECT)
    assert np.abs(moved.mean(axis=0) - transform(OBJECT, truth).mean(axis=0)).max() < 0.003


def test_result_is_saved_and_loaded(finding, tmp_path):
    _, result = finding
    result.save(tmp_path / "found.json")
    loaded = Finding.load(tmp_path / "found.json")
    assert loaded.to_dict() == result.to_dict()
    assert "instances=1" in repr(loaded)


def test_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "other.json").write_text('{"instances": [{"T_scene_object": [[1]]}]}')
    with pytest.raises(WSDescError, match="not a finding"):
        Finding.load(tmp_path / "other.json")
    with pytest.raises(WSDescError, match="cannot be read"):
        Finding.load(tmp_path / "none.json")


@pytest.mark.slow
def test_unit_does_not_matter(finding):
    truth, _ = finding
    millimetres = wsdesc.find(1000 * OBJECT, 1000 * scene(truth), viewpoint=1000 * VIEWPOINT)
    T = millimetres.instances[0].T_scene_object.copy()
    T[:3, 3] /= 1000
    assert error(T, truth) < 0.002


@pytest.mark.slow
def test_all_instances_are_found_once():
    truths = [pose(0.05, -0.12, yaw=0.9), pose(0.3, -0.1, yaw=-1.0)]
    points = scene(*truths)
    result = wsdesc.find(OBJECT, points, viewpoint=VIEWPOINT)
    assert len(result.instances) == 2
    for truth in truths:
        assert min(error(instance.T_scene_object, truth) for instance in result.instances) < 0.003
    one = wsdesc.find(OBJECT, points, viewpoint=VIEWPOINT, instances=1)
    assert len(one.instances) == 1


@pytest.mark.slow
def test_absent_object_is_not_found():
    result = wsdesc.find(OBJECT, scene(pose(0.1, -0.1), thing=wedge()), viewpoint=VIEWPOINT)
    assert not result.success
    assert any("No instance found" in warning for warning in result.warnings)


def test_object_larger_than_the_scene_is_refused():
    with pytest.raises(WSDescError, match=r"object .* is larger than the scene"):
        wsdesc.find(100 * OBJECT, scene(pose(0, -0.1)))


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (np.zeros((100, 3)), "no extent"),
        (OBJECT[:10], "at least 50"),
        (np.full((100, 3), np.nan), "finite"),
        (np.empty((0, 3)), "no points"),
    ],
)
def test_unusable_objects_are_refused(thing, message):
    with pytest.raises(WSDescError, match=message):
        wsdesc.find(thing, scene(pose(0, -0.1)))


def test_flat_object_gives_a_warning_and_no_instance():
    plate = np.random.default_rng(0).uniform((-0.07, -0.05, 0), (0.07, 0.05, 0), (3000, 3))
    result = wsdesc.find(plate, scene(pose(0, -0.1)))
    assert not result.success
    assert "Is the object flat?" in result.warnings[-1]


def test_points_that_are_not_finite_are_counted():
    plate = np.random.default_rng(0).uniform((-0.07, -0.05, 0), (0.07, 0.05, 0), (3000, 3))
    plate[:3] = np.nan
    result = wsdesc.find(plate, scene(pose(0, -0.1)))
    assert result.warnings[-1] == "the object: 3 points that are not finite were ignored."


def test_object_without_a_surface_gives_a_warning_and_no_instance():
    cloud = np.random.default_rng(0).uniform(-0.05, 0.05, (3000, 3))
    assert not wsdesc.find(cloud, scene(pose(0, -0.1))).success


@pytest.mark.parametrize(
    "options", [{"instances": 0}, {"instances": "some"}, {"resolution": -1}, {"keypoints": 3}]
)
def test_invalid_options_are_refused(options):
    with pytest.raises(WSDescError, match=next(iter(options))):
        wsdesc.find(OBJECT, OBJECT, **options)


@pytest.mark.slow
def test_milk_carton_on_a_table(data_folder):
    folder = data_folder / "wild" / "object_in_scene"
    if not folder.is_dir():
        pytest.skip("no wild/object_in_scene")
    result = wsdesc.find(folder / "milk.pcd", folder / "milk_cartoon_all_small_clorox.pcd")
    assert result.success
    assert result.instances[0].visible > 0.8  # the object was cut out of a scan like this one
