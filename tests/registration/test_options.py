"""Options of register: one model, one signature, one documentation."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

import wsdesc
from wsdesc.core.errors import InputError
from wsdesc.registration.options import RegisterOptions

OTHER_PARAMETERS = {"source", "target", "surfaces", "progress", "unknown"}


@pytest.mark.parametrize("function", [wsdesc.register, wsdesc.register_described])
def test_signature_and_docstring_agree_with_the_options(function):
    parameters = inspect.signature(function).parameters
    defaults = {name: p.default for name, p in parameters.items() if name not in OTHER_PARAMETERS}
    options = {name: field.default for name, field in RegisterOptions.model_fields.items()}
    assert defaults == {name: options[name] for name in defaults}
    assert all(f"        {name}: " in function.__doc__ for name in parameters)


def test_register_has_every_option():
    assert set(RegisterOptions.model_fields) <= set(inspect.signature(wsdesc.register).parameters)


def test_every_option_has_a_description():
    assert all(field.description for field in RegisterOptions.model_fields.values())


def test_keypoints_are_one_number_or_several():
    assert RegisterOptions.read({"keypoints": 500}).keypoints == (500,)
    assert RegisterOptions.read({"keypoints": [500, 900]}).keypoints == (500, 900)


def test_numbers_of_numpy_and_devices_of_torch_are_accepted():
    values = {
        "keypoints": np.int64(500),
        "seed": np.int32(3),
        "resolution": np.float32(0.5),
        "refine": np.True_,
    }
    options = RegisterOptions.read(values | {"device": torch.device("cpu")})
    assert options == RegisterOptions(keypoints=(500,), seed=3, resolution=0.5, refine=True, device="cpu")
    assert type(options.seed) is int
    assert RegisterOptions.read({"resolution": torch.tensor(0.5)}).resolution == 0.5
    assert RegisterOptions.read({"device": torch.device("cuda", 1)}).device == "cuda:1"
    with pytest.raises(InputError, match=r"^seed: must be a number, not True"):
        RegisterOptions.read({"seed": np.True_})


def test_model_may_be_a_path():
    assert RegisterOptions.read({"model": Path("runs") / "mine"}).model == str(Path("runs") / "mine")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keypoint": 100}, "unknown option 'keypoint': did you mean 'keypoints'"),
        ({"keypoints": ()}, "keypoints: "),
        ({"keypoints": 2}, r"keypoints.*3"),
        ({"keypoints": True}, "keypoints: "),
        ({"resolution": 0.0}, "resolution: "),
        ({"resolution": float("nan")}, "resolution: "),
        ({"solver": "icp"}, "solver: "),
        ({"hypotheses": 0}, "hypotheses: "),
        ({"refined": 0}, "refined: "),
        ({"seed": -1}, "seed: "),
    ],
)
def test_invalid_options_are_refused_before_scans_are_read(options, message):
    with pytest.raises(InputError, match=message):
        wsdesc.register("missing.ply", "missing.ply", **options)
