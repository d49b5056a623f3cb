"""Registration as an object: files, dictionaries and text."""

import json

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc import Registration
from wsdesc.core.errors import FileFormatError


@pytest.fixture
def result():
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec([0.1, 1 / 3, -0.2]).as_matrix()
    T[:3, 3] = [4.5e5 + 1 / 3, -2.0, 0.1]
    warnings = ["A second pose fits nearly as well."]
    return Registration(T, True, 0.987654321, 0.5, 0.008, 40, 700, 0.025, warnings, {"read": 0.5})


def test_json_file_keeps_all_values(result, tmp_path):
    result.save(tmp_path / "a.json")
    loaded = Registration.load(tmp_path / "a.json")
    np.testing.assert_array_equal(loaded.T_target_source, result.T_target_source)
    assert loaded.to_dict() == result.to_dict()
    assert json.loads((tmp_path / "a.json").read_text()) == result.to_dict()


def test_infinite_rmse_survives_a_file(tmp_path):
    Registration(np.eye(4), False, 0.0, 0.0, float("inf"), 0, 0, 0.025).save(tmp_path / "a.json")
    assert Registration.load(tmp_path / "a.json").rmse == float("inf")


def test_text_file_has_the_matrix_only(result, tmp_path):
    result.save(tmp_path / "a.txt")
    np.testing.assert_allclose(np.loadtxt(tmp_path / "a.txt"), result.T_target_source, rtol=1e-11)


def test_other_extensions_are_refused(result, tmp_path):
    with pytest.raises(FileFormatError, match=r"a\.png: .*\.json or \.txt"):
        result.save(tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"T_target_source": [[1]]}',
        "1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n",
        "\xff",
    ],
)
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text, encoding="latin-1")
    with pytest.raises(FileFormatError, match=r"a\.json"):
        Registration.load(tmp_path / "a.json")


def test_invalid_pose_is_refused(result, tmp_path):
    values = result.to_dict()
    values["T_target_source"][0][0] = 2.0
    (tmp_path / "a.json").write_text(json.dumps(values))
    with pytest.raises(FileFormatError, match=r"a\.json"):
        Registration.load(tmp_path / "a.json")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileFormatError, match=r"missing\.json: cannot be read"):
        Registration.load(tmp_path / "missing.json")


def test_text_is_a_few_lines(result):
    text = str(result)
    assert "success, confidence 0.988" in text
    assert "warning: A second pose" in text
    assert len(text.splitlines()) <= 12
    assert repr(result) == "Registration(success=True, confidence=0.988, overlap=0.50, rmse=0.008)"
