"""Single precision is enough, and no public function answers with a number that is none."""

import dataclasses
import functools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import wsdesc
from wsdesc.datasets.synthetic import room_scans

PRECISION = Path(__file__).parent.parent / "benchmarks" / "precision.py"


def compare_precisions(*scans):
    if not PRECISION.is_file():
        pytest.skip("the benchmarks are not part of this distribution")
    command = [sys.executable, PRECISION, *map(str, scans), "--keypoints", "80"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "within 0.05° and 1.0 mm: 1 of 1" in done.stdout


def test_float32_finds_the_pose_of_float64(tmp_path):
    far = np.array([4e5, 5e6, 100.0])  # as in geographic coordinates
    for number, fragment in enumerate(room_scans(3, 2, resolution=0.05)):
        np.save(tmp_path / f"{number}.npy", fragment.points + far)
    compare_precisions(tmp_path / "0.npy", tmp_path / "1.npy")


def test_the_same_on_real_scans(data_folder):
    scene = data_folder / "indoor" / "train" / "tum_fr1_desk"
    if not scene.is_dir():
        pytest.skip("the data folder has no tum_fr1_desk")
    compare_precisions(scene / "cloud_bin_0.ply", scene / "cloud_bin_1.ply")


def numbers_in(value):
    """All arrays and numbers that a result is made of."""
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
    """The function, which must not let NaN out; that it refuses its input is an answer."""

    @functools.wraps(function)
    def watched(*arguments, **options):
        try:
            result = function(*arguments, **options)
        except wsdesc.WSDescError:
            return None
        assert not any(np.isnan(numbers).any() for numbers in numbers_in(result)), function
        return result

    return watched


def test_the_watcher_sees_nan_wherever_it_is():
    watched = without_nan(lambda value: value)
    assert watched({"a": (1.0, [torch.ones(2)])}) is not None
    result = wsdesc.Registration(np.eye(4), False, 0.0, 0.0, float("inf"), 0, 0, 1.0)
    assert watched(result) is result
    for bad in (
        [float("nan")],
        {"a": torch.tensor([0.0, torch.nan])},
        dataclasses.replace(result, rmse=np.nan),
    ):
        with pytest.raises(AssertionError):
            watched(bad)


def awkward_clouds():
    """Clouds that leave something undetermined, or that are near the end of the numbers."""
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
    without_nan(wsdesc.registration.pipeline)(cloud, cloud[::2], **FAST)


def call_describe(cloud, folder):
    without_nan(wsdesc.descriptor)(cloud, keypoints=10)


def call_reconstruct(cloud, folder):
    without_nan(wsdesc.reconstruction.pipeline)([cloud, cloud[::2]], keypoints=20)


def call_files(cloud, folder):
    """Written and read back."""
    without_nan(wsdesc.write_points)(folder / "a.ply", cloud)
    if (folder / "a.ply").exists():
        without_nan(wsdesc.read_points)(folder / "a.ply")


def call_layers(cloud, folder):
    """Frames, voxels and descriptors of the cloud as it is, in its own unit and in another."""
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
    """Keypoints of the cloud; descriptors that all differ, and that are all the same."""
    points = torch.from_numpy(cloud[:40]).float()
    generator = torch.Generator().manual_seed(0)
    alike = torch.ones(40, 8).div(8**0.5)
    for features in (torch.nn.functional.normalize(torch.randn(40, 8, generator=generator)), alike):
        features = features.clone().requires_grad_()
        terms = without_nan(wsdesc.RigidityLoss())(points, features, points, features.flip(0))
        hard = without_nan(wsdesc.BatchHardLoss())(features, features.flip(0), points)
        assert terms is not None
        assert hard is not None
        if bool(terms.well_posed):  # a training leaves the other steps out
            gradient = torch.autograd.grad(terms.loss + hard, features)
            assert not any(np.isnan(numbers).any() for numbers in numbers_in(gradient))


CALLS = {
    call_register: ["register", "Registration"],
    call_describe: ["describe"],
    call_reconstruct: ["reconstruct", "Reconstruction"],
    call_files: ["write_points", "read_points"],
    call_layers: ["local_frames", "voxelize", "WSDesc"],
    call_losses: ["RigidityLoss", "BatchHardLoss"],
}


def test_every_public_name_is_looked_at():
    assert {name for names in CALLS.values() for name in names} == set(wsdesc.__all__) - {"WSDescError"}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_no_nan_leaves_a_public_function(call, tmp_path):
    for cloud in awkward_clouds().values():
        call(cloud, tmp_path)
