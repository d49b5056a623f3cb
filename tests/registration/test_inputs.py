"""Registration of scans in other forms than arrays: same result, whatever library holds the points."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import trimesh
from scipy.spatial.transform import Rotation

import wsdesc
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import transform
from wsdesc.datasets.synthetic import room_scans
from wsdesc.evaluation.metrics import rotation_error_deg, translation_error

FAST = {"keypoints": 300}


@pytest.fixture(scope="module")
def pair():
    a, b = room_scans(5, 2, resolution=0.05)
    return a.points.astype(np.float64), b.points.astype(np.float64)


@pytest.fixture(scope="module")
def result(pair):
    return wsdesc.register(*pair, **FAST)


@pytest.fixture(scope="module")
def descriptions(pair, result):
    return [wsdesc.describe(points, resolution=result.resolution, **FAST) for points in pair]


@pytest.mark.parametrize(
    "convert",
    [
        lambda points: torch.from_numpy(points).requires_grad_(),
        lambda points: np.column_stack([points, np.ones(len(points))]),
        lambda points: np.asfortranarray(points).astype(">f8"),
        lambda points: dict(zip("xyz", points.T, strict=True)),
        lambda points: SimpleNamespace(points=points),
        trimesh.PointCloud,
        wsdesc.Cloud,
    ],
    ids=["tensor", "columns", "Fortran", "mapping", "points", "trimesh", "Cloud"],
)
def test_descriptions_do_not_depend_on_the_form(pair, descriptions, result, convert):
    described = wsdesc.describe(convert(pair[0]), resolution=result.resolution, **FAST)
    assert torch.equal(described.descriptors, descriptions[0].descriptors)
    np.testing.assert_array_equal(described.T_scan_local, descriptions[0].T_scan_local)


def test_register_takes_different_forms(pair, result):
    other = wsdesc.register(torch.from_numpy(pair[0]), trimesh.PointCloud(pair[1]), **FAST)
    np.testing.assert_array_equal(other.T_target_source, result.T_target_source)


def test_open3d_clouds_from_end_to_end(pair, result):
    o3d = pytest.importorskip("open3d")
    source, target = (o3d.geometry.PointCloud(o3d.utility.Vector3dVector(points)) for points in pair)
    other = wsdesc.register(source, target, **FAST)
    np.testing.assert_array_equal(other.T_target_source, result.T_target_source)
    near = np.asarray(other.apply(source).compute_point_cloud_distance(target)) < 2 * other.resolution
    assert abs(near.mean() - other.overlap) < 0.15


def test_register_takes_two_descriptions(descriptions, result):
    other = wsdesc.register(*descriptions)
    np.testing.assert_array_equal(
        other.T_target_source, wsdesc.register_described(*descriptions).T_target_source
    )
    np.testing.assert_allclose(other.T_target_source, result.T_target_source, atol=1e-3)
    wrong = wsdesc.describe(descriptions[0].in_scan_frame(descriptions[0].points), resolution=0.1, **FAST)
    with pytest.raises(InputError, match="different resolutions"):
        wsdesc.register(wrong, descriptions[1])


def test_a_description_and_a_scan_are_refused(pair, descriptions):
    with pytest.raises(InputError, match="the target must be a Description"):
        wsdesc.register(descriptions[0], pair[1])
    with pytest.raises(InputError, match="the source must be a Description"):
        wsdesc.register(pair[0], descriptions[1])
    with pytest.raises(InputError, match="Description is no scan"):
        wsdesc.describe(descriptions[0])
    with pytest.raises(InputError, match="NoneType: pass an array"):
        wsdesc.register(pair[0], None)


def test_inverse_is_the_registration_of_the_swapped_scans(pair, result):
    swapped, inverse = wsdesc.register(*pair[::-1], **FAST), result.inverse()
    np.testing.assert_allclose(inverse.T_target_source, swapped.T_target_source, atol=2e-3)
    assert inverse.overlap == pytest.approx(swapped.overlap, abs=0.01)
    assert inverse.overlap_target == pytest.approx(swapped.overlap_target, abs=0.01)
    np.testing.assert_allclose(inverse.information.matrix, swapped.information.matrix, atol=1e-3)
    np.testing.assert_allclose(inverse.information.centre, swapped.information.centre, atol=1e-2)
    scale = np.abs(swapped.covariance).max()
    np.testing.assert_allclose(inverse.covariance, swapped.covariance, atol=0.1 * scale)
    np.testing.assert_allclose(inverse.covariance_centre, swapped.covariance_centre, atol=1e-2)
    assert inverse.described == result.described[::-1]
    np.testing.assert_allclose(inverse.inverse().information.matrix, result.information.matrix, atol=1e-12)


@pytest.mark.slow
def test_a_model_is_registered_with_a_scan_of_it(tmp_path):
    def placed(x, y, z):
        return trimesh.transformations.translation_matrix([x, y, z])

    parts = [
        trimesh.creation.box((1, 0.6, 0.4)),
        trimesh.creation.cylinder(0.15, 0.9, transform=placed(0.2, 0.1, 0.3)),
        trimesh.creation.box((0.2, 0.2, 0.8), transform=placed(-0.3, -0.15, 0.2)),
    ]
    model = trimesh.util.concatenate(parts)
    surface, _ = trimesh.sample.sample_surface(model, 60_000, seed=1)
    seen = surface[surface @ [0.5, 0.3, 0.8] > -0.12]
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = Rotation.random(random_state=2).as_matrix(), [3, -2, 1]
    scan = transform(seen, T) + np.random.default_rng(0).normal(0, 0.001, seen.shape)
    model.export(tmp_path / "model.stl")
    for source in (model, tmp_path / "model.stl"):
        result = wsdesc.register(source, scan)
        assert result.success
        assert rotation_error_deg(result.T_target_source, T) < 0.5
        assert translation_error(result.T_target_source, T) < 0.005
