"""Descriptions of scans: choose keypoints, describe, extend, save and load."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import wsdesc
from wsdesc.cloud.clean import clean
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.progress import StepTimer
from wsdesc.descriptor.describe import load_model
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.options import DescribeOptions
from wsdesc.descriptor.preparation import prepare_scan, prepare_scans

RESOLUTION = 0.05


@pytest.fixture(scope="module")
def network() -> wsdesc.WSDesc:
    torch.manual_seed(0)
    return wsdesc.WSDesc(width=0.0625, resolution=8, dimension=16).eval()


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    """A bent sheet, two metres wide, far from the origin."""
    x, y = np.random.default_rng(0).uniform(-1, 1, (2, 4000))
    return np.stack([x, y, 0.3 * np.sin(3 * x) + 0.2 * np.cos(5 * y + x)], axis=1) + 500.0


@pytest.fixture(scope="module")
def description(network: wsdesc.WSDesc, points: np.ndarray) -> Description:
    return wsdesc.describe(points, model=network, keypoints=30, resolution=RESOLUTION)


def test_shapes_and_coordinates(description: Description, points: np.ndarray) -> None:
    assert description.descriptors.shape == (30, 16)
    assert description.frames.shape == (30, 3, 3)
    assert description.keypoints.shape == (30, 3)
    assert description.keypoints.abs().amax() < 3 / description.unit
    distance = np.linalg.norm(description.scan_keypoints[:, None] - points[None], axis=2).min(axis=1)
    assert distance.max() < RESOLUTION


def test_extending_equals_describing_at_once(
    description: Description, network: wsdesc.WSDesc, points: np.ndarray
) -> None:
    prepared = prepare_scan(clean(points), RESOLUTION, "WSDesc", 0, 10)
    assert prepared.missing(30) == 10
    first = prepared.extend(network, 30)
    assert first.missing(30) == 0
    more = first.with_keypoints(30, 0)
    assert more.missing(30) == 20
    done: list[int] = []
    whole = more.extend(network, 30, done.append)
    assert sum(done) == 20
    assert torch.equal(whole.order, description.order)
    torch.testing.assert_close(whole.descriptors, description.descriptors, rtol=0, atol=1e-5)
    assert torch.equal(whole.frames, description.frames)
    assert whole.extend(network, 30) is whole


def test_prepare_scans_equals_prepare_scan(points: np.ndarray) -> None:
    clouds = [clean(points), clean(points[::2])]
    prepared = prepare_scans(clouds, (RESOLUTION, RESOLUTION), "name", 3, 25)
    for scan, cloud in zip(prepared, clouds, strict=True):
        single = prepare_scan(cloud, RESOLUTION, "name", 3, 25)
        assert torch.equal(scan.points, single.points)
        assert torch.equal(scan.order, single.order)
        assert len(scan.descriptors) == 0


def test_save_and_load(description: Description, tmp_path: Path) -> None:
    description.save(tmp_path / "a.npz")
    loaded = Description.load(tmp_path / "a.npz")
    for name in ("points", "order", "descriptors", "frames"):
        assert torch.equal(getattr(loaded, name), getattr(description, name))
    np.testing.assert_array_equal(loaded.T_scan_local, description.T_scan_local)
    assert (loaded.resolution, loaded.model) == (description.resolution, description.model)
    loaded.check_comparable(description)


def test_wrong_files_are_named(description: Description, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"a\.txt: a description is saved as \.npz"):
        description.save(tmp_path / "a.txt")
    assert not (tmp_path / "a.txt").exists()
    with pytest.raises(FileFormatError, match=r"missing\.npz: cannot be read: No such file"):
        Description.load(tmp_path / "missing.npz")


def test_range_image_is_saved_in_metres_of_the_model(
    network: wsdesc.WSDesc, points: np.ndarray, tmp_path: Path
) -> None:
    at = points.mean(0) + np.array([0, 0, 2])
    made = wsdesc.describe(points, model=network, keypoints=5, resolution=RESOLUTION, viewpoint=at)
    made.to("cpu").save(tmp_path / "a.npz")
    loaded = Description.load(tmp_path / "a.npz")
    for one in (made, loaded):
        assert one.viewpoint is not None
        assert one.range_image is not None
        assert one.viewpoint.source == "given"
        np.testing.assert_array_equal(one.viewpoint.position, at)
        position = one.in_scan_frame(torch.from_numpy(one.range_image.viewpoint[None]))
        np.testing.assert_allclose(position[0], at, atol=1e-6)
        assert 1.3 < one.range_image.free.max() * one.unit < 3
    np.testing.assert_array_equal(made.range_image.free, loaded.range_image.free)  # type: ignore[union-attr]


def test_damaged_range_images_are_refused(network: wsdesc.WSDesc, points: np.ndarray, tmp_path: Path) -> None:
    made = wsdesc.describe(points, model=network, keypoints=5, resolution=RESOLUTION, viewpoint=points[0])
    made.save(tmp_path / "a.npz")
    arrays = dict(np.load(tmp_path / "a.npz"))
    for name, value in [
        ("free_ranges", np.zeros((6, 4, 4))),
        ("free_ranges", np.full((6, 128, 128), np.nan)),
        ("local_viewpoint", np.zeros(2)),
        ("viewpoint", np.full(3, np.inf)),
        ("viewpoint_source", "nobody"),
    ]:
        np.savez(tmp_path / "b.npz", **{**arrays, name: value})
        with pytest.raises(FileFormatError, match="not a description"):
            Description.load(tmp_path / "b.npz")


def test_files_of_earlier_versions_stay_readable(description: Description, tmp_path: Path) -> None:
    """They have an offset instead of `T_scan_local`; the other keys are the same."""
    description.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    assert set(arrays) == {"points", "order", "descriptors", "frames", "T_scan_local", "resolution", "model"}
    del arrays["T_scan_local"]
    offset = np.array([4e5, 5e6, 100.0])
    np.savez(tmp_path / "b.npz", **arrays, offset=offset)
    loaded = Description.load(tmp_path / "b.npz")
    expected = offset + loaded.unit * loaded.keypoints.double().numpy()
    np.testing.assert_array_equal(loaded.scan_keypoints, expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("order", torch.tensor([10**6])),
        ("frames", torch.zeros(2, 3, 3)),
        ("descriptors", torch.full((30, 16), torch.nan)),
        ("resolution", 0.0),
    ],
)
def test_inconsistent_files_are_refused(
    name: str, value: Tensor | float, description: Description, tmp_path: Path
) -> None:
    replace(description, **{name: value}).save(tmp_path / "a.npz")
    with pytest.raises(FileFormatError, match=r"a\.npz"):
        Description.load(tmp_path / "a.npz")


def test_descriptions_that_cannot_be_compared(description: Description) -> None:
    with pytest.raises(InputError, match="different models, WSDesc and other"):
        description.check_comparable(replace(description, model="other"))
    with pytest.raises(InputError, match=r"different resolutions, 0\.05 and 0\.1"):
        description.check_comparable(replace(description, resolution=0.1))


def test_progress_reports_every_keypoint(network: wsdesc.WSDesc, points: np.ndarray) -> None:
    steps: dict[str, int] = {}
    counts: list[int] = []

    class Step:
        def __init__(self, name: str, total: int) -> None:
            steps[name] = total

        def __enter__(self) -> object:
            return counts.append

        def __exit__(self, *error: object) -> None:
            return None

    wsdesc.describe(points, model=network, keypoints=20, resolution=RESOLUTION, progress=Step)  # type: ignore[arg-type]
    assert steps == {"read": 0, "prepare": 0, "describe": 20}
    assert sum(counts) == 20
    assert StepTimer(None).seconds == {}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"keypoints": 0}, "keypoints"),
        ({"resolution": -1.0}, "resolution"),
        ({"seed": -1}, "seed"),
        ({"device": "tpu"}, "tpu"),
        ({"model": "kitchen-sink"}, "kitchen-sink: unknown model"),
        ({"resolution": 5.0}, "1 point is left at the resolution 5"),
    ],
)
def test_invalid_options(option: dict[str, object], message: str, points: np.ndarray) -> None:
    with pytest.raises(wsdesc.WSDescError, match=message):
        wsdesc.describe(points, **option)  # type: ignore[arg-type]


def test_the_signature_has_the_defaults_of_the_options() -> None:
    import inspect

    parameters = inspect.signature(wsdesc.describe).parameters
    defaults = DescribeOptions()
    for name, field in DescribeOptions.model_fields.items():
        assert parameters[name].default == getattr(defaults, name)
        assert field.description


def test_weights_of_a_training_run(network: wsdesc.WSDesc, points: np.ndarray, tmp_path: Path) -> None:
    network.save(tmp_path / "model.safetensors")
    loaded, name = load_model(tmp_path, "cpu")
    assert name == str(tmp_path)
    assert load_model(tmp_path, "cpu")[0] is loaded
    described = wsdesc.describe(points, model=tmp_path, keypoints=5, resolution=RESOLUTION, device="cpu")
    assert described.descriptors.shape == (5, 16)


def test_models_are_found_without_torch() -> None:
    code = (
        "import sys; from wsdesc.descriptor import pretrained\n"
        "print(pretrained.find('indoor').name, {'torch', 'safetensors', 'numpy'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["indoor.safetensors", "set()"]


@pytest.mark.gpu
def test_cuda_describes_as_the_cpu(
    network: wsdesc.WSDesc, points: np.ndarray, description: Description
) -> None:
    import copy

    on_cuda = copy.deepcopy(network).cuda()
    cuda = wsdesc.describe(points, model=on_cuda, keypoints=30, resolution=RESOLUTION)
    assert cuda.points.device.type == "cpu"
    torch.testing.assert_close(cuda.points, description.points, rtol=0, atol=1e-5)
    prepared = description.with_keypoints(60, 0).to("cuda")
    extended = prepared.extend(on_cuda, 60)
    assert extended.descriptors.device.type == "cuda"
    expected = description.with_keypoints(60, 0).extend(network, 60)
    distance = (extended.descriptors.cpu() - expected.descriptors).norm(dim=1)
    assert (distance < 1e-3).double().mean() > 0.95  # a few frames flip at a threshold


@pytest.mark.gpu
def test_prepare_scans_on_cuda(points: np.ndarray) -> None:
    (scan,) = prepare_scans([clean(points)], (RESOLUTION,), "name", 0, 10, "cuda")
    assert scan.points.is_cuda
    assert len(scan.order) == 10
    assert len(scan.with_keypoints(25, 0).order) == 25
