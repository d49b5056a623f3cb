"""Public functions refuse objects of a wrong type by one error that names the argument."""

import numpy as np
import pytest

import wsdesc

POINTS = np.random.default_rng(0).uniform(size=(100, 3))
FUNCTIONS = {
    "Adaptation.load": wsdesc.Adaptation.load,
    "Finding.load": wsdesc.Finding.load,
    "Map.build": lambda path: wsdesc.Map.build([POINTS], path),
    "Map.open": wsdesc.Map.open,
    "Reconstruction.load": wsdesc.Reconstruction.load,
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


@pytest.mark.parametrize("name", ["adapt", "reconstruct", "train"])
def test_a_folder_of_results_that_is_no_path_is_refused(name, tmp_path):
    with pytest.raises(wsdesc.WSDescError, match="out must be a path, not int"):
        getattr(wsdesc, name)(tmp_path, out=3)


@pytest.mark.parametrize("name", ["pairs", "train"])
@pytest.mark.parametrize("value", [3, True, {"a.ply": 1}, POINTS, [3]], ids=lambda v: type(v).__name__)
def test_a_training_refuses_scans_that_are_not_paths(name, value):
    with pytest.raises(wsdesc.WSDescError, match="training reads files and folders of scans"):
        getattr(wsdesc, name)(value)


@pytest.mark.parametrize("name", ["pairs", "train"])
def test_a_training_refuses_an_empty_list_of_scans(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(wsdesc.WSDescError, match="empty list"):
        getattr(wsdesc, name)([])


def test_an_open_file_is_not_a_list_of_scans(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with (tmp_path / "a.txt").open() as file:
        for function in (wsdesc.train, wsdesc.pairs, wsdesc.reconstruct, wsdesc.register_many):
            with pytest.raises(wsdesc.WSDescError, match="TextIOWrapper"):
                function(file)


@pytest.mark.parametrize("value", [None, 3, "a.ply", {"a": "b"}], ids=lambda v: type(v).__name__)
def test_pairs_that_are_no_list_are_refused(value):
    with pytest.raises(wsdesc.WSDescError, match="pairs must be a list"):
        wsdesc.register_many(value)


@pytest.mark.parametrize("value", [None, POINTS, "a.ply"], ids=lambda v: type(v).__name__)
def test_register_described_refuses_other_objects(value):
    with pytest.raises(wsdesc.WSDescError, match="the source must be a Description"):
        wsdesc.register_described(value, value)


def test_a_mapping_is_not_a_list_of_scans(tmp_path):
    with pytest.raises(wsdesc.WSDescError, match="dict"):
        wsdesc.reconstruct({"a": POINTS, "b": POINTS})


def test_a_map_refuses_nested_lists_of_scans(tmp_path):
    with pytest.raises(wsdesc.WSDescError):
        wsdesc.Map.build([(POINTS, POINTS)], tmp_path / "map")
    with pytest.raises(wsdesc.WSDescError, match="poses must be a list"):
        wsdesc.Map.build([POINTS], tmp_path / "map", poses=3)
