"""Fit of the confidence to labelled poses."""

import numpy as np
import pytest
from benchmarks.calibrate import Group, fit, main, parser, read_base
from benchmarks.common import run_command

from wsdesc.alignment.confidence import ConfidenceModel
from wsdesc.alignment.evidence import FEATURES
from wsdesc.core.errors import InputError

NAMES = list(FEATURES)


@pytest.fixture
def groups():
    """Pairs of two candidates: the last feature of the right one is smaller."""
    rng = np.random.default_rng(0)
    made = []
    for k in range(60):
        features = rng.normal(size=(2, len(NAMES)))
        features[:, -1] = rng.uniform(0.1, 0.5) * np.array([-1, 1])
        pair = ("file", "street", k, 0, 1)
        made.append(Group("street", pair, 0, 0.5, features, np.array([True, False]), np.ones(2, dtype=bool)))
    return made


def shipped(count):
    model = ConfidenceModel.load()
    return ConfidenceModel(model.knots[:count], model.log_odds[:count], model.bias, model.poses)


def test_fit_beside_a_model_keeps_its_functions(groups):
    base = shipped(len(NAMES) - 1)
    model = fit(groups, base)
    np.testing.assert_array_equal(model.log_odds[:-1], base.log_odds)
    assert model.bias == base.bias
    assert model.poses == base.poses + 120
    assert (np.diff(model.log_odds[-1]) <= 0).all(), "a larger gap never raises the confidence"
    assert model.log_odds[-1, 0] > model.log_odds[-1, -1] + 0.5


def test_base_has_the_first_features(tmp_path):
    path = tmp_path / "model.json"
    shipped(5).save(path, NAMES[:5])
    np.testing.assert_array_equal(read_base(path).knots, shipped(5).knots)
    shipped(2).save(path, NAMES[1:3])
    with pytest.raises(InputError, match="its features must be the first of"):
        read_base(path)


@pytest.mark.parametrize(
    ("content", "says"), [(None, "No such file"), (b"text", "no poses of"), (b"", "no poses of")]
)
def test_a_wrong_file_is_one_line(tmp_path, capsys, monkeypatch, content, says):
    path = tmp_path / "poses.npz"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr("sys.argv", ["calibrate", str(path), "-o", str(tmp_path / "out.json")])
    assert run_command(parser(), main) == 2
    assert capsys.readouterr().err.startswith(f"error: {path}: {says}")
