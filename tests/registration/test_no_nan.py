"""No public function returns NaN, whatever the points."""

import dataclasses
import functools

import numpy as np
import pytest
import torch

import wsdesc
from wsdesc.datasets.synthetic import room_scans


def numbers_in(value):
    """Yield all arrays and numbers of a result."""
    if isinstance(value, torch.Tensor):
        yield value.detach().cpu().double().numpy()
    elif isinstance(value, np.ndarray | float | int):
        yield np.asarray(value, dtype=np.float64)
    elif dataclasses.is_dataclass(value):
        yield from numbers_in([getattr(value, field.name) for field in dataclasses.fields(value)])
    elif isinstance(value, dict):
        yield from numbers_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from numbers_in(item)


def without_nan(function):
    """Wrap a function so that NaN in its result fails the test; errors about the input are allowed."""

    @functools.wraps(function)
    def checked(*arguments, **options):
        try:
            result = function(*arguments, **options)
        except wsdesc.WSDescError:
            return None
        assert not any(np.isnan(numbers).any() for numbers in numbers_in(result)), function
        return result

    return checked


def test_check_finds_nan_at_any_depth():
    checked = without_nan(lambda value: value)
    assert checked({"a": (1.0, [torch.ones(2)])}) is not None
    result = wsdesc.Registration(np.eye(4), False, 0.0, 0.0, float("inf"), 0, 0, 1.0)
    assert checked(result) is result
    for bad in (
        [float("nan")],
        {"a": torch.tensor([0.0, torch.nan])},
        dataclasses.replace(result, rmse=np.nan),
    ):
        with pytest.raises(AssertionError):
            checked(bad)


@functools.cache
def difficult_clouds():
    """Make clouds without a unique pose, and clouds of extreme coordinates."""
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*2 * [np.linspace(0, 2, 30)], [0.0]), -1).reshape(-1, 3)
    ball = rng.normal(size=(800, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    room = room_scans(3, 1, resolution=0.1)[0].points.astype(np.float64)
    return {
        "plane": grid,
        "line": np.linspace(0, 3, 500)[:, None] * [1.0, 2.0, 0.5],
        "ball": ball,
        "two clusters": np.vstack([room[:300], room[:300] + 1e4]),
        "one point": np.ones((300, 3)),
        "twice each": np.vstack([room, room]),
        "tiny": 1e-6 * room,
        "huge": 1e9 * room,
        "far away": room + 1e7,
        "with NaN": np.vstack([room, np.full((5, 3), np.nan)]),
    }


FAST = {"keypoints": (30,), "hypotheses": 2, "refined": 1}


def call_register(cloud, folder):
    without_nan(wsdesc.register)(cloud, cloud[::2], **FAST)


def call_describe(cloud, folder):
    without_nan(wsdesc.describe)(cloud, keypoints=10)


def call_reconstruct(cloud, folder):
    without_nan(wsdesc.reconstruct)([cloud, cloud[::2]], keypoints=20)


def call_files(cloud, folder):
    without_nan(wsdesc.write_points)(folder / "a.ply", cloud)
    if (folder / "a.ply").exists():
        without_nan(wsdesc.read_points)(folder / "a.ply")


def call_layers(cloud, folder):
    """Compute frames, voxels and descriptors at several radii."""
    points = torch.from_numpy(cloud).float()
    for radius in (0.3, 1e-5, 1e8):
        frames = without_nan(wsdesc.local_frames)(points, points[:20], radius)
        if frames is not None:
            support = torch.full((20,), 4 * radius, requires_grad=True)
            voxels = without_nan(wsdesc.voxelize)(
                points, points[:20], frames.frames, support, 8, radius**2 / 90
            )
            if voxels is not None:
                gradient = torch.autograd.grad(voxels.sum(), support)
                assert not any(np.isnan(numbers).any() for numbers in numbers_in(gradient))
        model = wsdesc.WSDesc(width=0.0625, resolution=8).eval()
        with torch.inference_mode():
            without_nan(model)(points, points[:20], unit=radius / 0.3)


def call_losses(cloud, folder):
    """Compute losses of different and of equal descriptors."""
    points = torch.from_numpy(cloud[:40]).float()
    generator = torch.Generator().manual_seed(0)
    equal = torch.ones(40, 8).div(8**0.5)
    for features in (torch.nn.functional.normalize(torch.randn(40, 8, generator=generator)), equal):
        features = features.clone().requires_grad_()
        terms = without_nan(wsdesc.RigidityLoss())(points, features, points, features.flip(0))
        hard = without_nan(wsdesc.BatchHardLoss())(features, features.flip(0), points)
        assert terms is not None
        assert hard is not None
        if bool(terms.well_posed):  # training skips other steps
            gradient = torch.autograd.grad(terms.loss + hard, features)
            assert not any(np.isnan(numbers).any() for numbers in numbers_in(gradient))


CALLS = [
    pytest.param(call_register, marks=pytest.mark.slow),
    pytest.param(call_describe, marks=pytest.mark.slow),
    pytest.param(call_reconstruct, marks=pytest.mark.slow),
    call_files,
    pytest.param(call_layers, marks=pytest.mark.slow),
    call_losses,
]


@pytest.mark.parametrize("name", difficult_clouds())
@pytest.mark.parametrize("call", CALLS)
def test_no_nan_leaves_a_public_function(call, name, tmp_path):
    call(difficult_clouds()[name], tmp_path)
