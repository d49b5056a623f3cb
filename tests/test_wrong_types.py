"""Public functions refuse objects of a wrong type by one error that names the argument."""

import numpy as np
import pytest

import wsdesc

POINTS = np.random.default_rng(0).uniform(size=(100, 3))
FUNCTIONS = {
    "Finding.load": wsdesc.Finding.load,
    "Map.build": lambda path: wsdesc.Map.build([POINTS], path),
    "Map.open": wsdesc.Map.open,
    "Registration.load": wsdesc.Registration.load,
    "WSDesc.from_pretrained": wsdesc.WSDesc.from_pretrained,
    "read_cloud": wsdesc.read_cloud,
    "read_points": wsdesc.read_points,
    "write_cloud": lambda path: wsdesc.write_cloud(path, POINTS),
    "write_points": lambda path: wsdesc.write_points(path, POINTS),
}


@pytest.mark.parametrize(
    "value", [None, 3, True, ["a.ply"], {}, b"a.ply", POINTS], ids=lambda v: type(v).__name__
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_object_that_is_no_path_is_refused(name, value):
    with pytest.raises(wsdesc.WSDescError, match=f"must be a path, not {type(value).__name__}"):
        FUNCTIONS[name](value)


def test_show_refuses_a_file_that_is_no_path():
    with pytest.raises(wsdesc.WSDescError, match="must be a path, not int"):
        wsdesc.show(POINTS, save=3)


@pytest.mark.parametrize("model", [None, 3])
def test_an_object_that_is_no_model_is_refused(model):
    with pytest.raises(wsdesc.WSDescError, match=r"model"):
        wsdesc.describe(POINTS, model=model)
