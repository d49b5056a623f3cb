"""Methods are loaded by name."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from wsdesc import WSDesc, peers
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.evaluation.methods import Method, MethodFailure, load_methods
from wsdesc.evaluation.results import EvaluatedMethod
from wsdesc.evaluation.score import estimate_pose


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    WSDesc(width=0.1).save(tmp_path / "small.v2.safetensors")
    return tmp_path / "small.v2.safetensors"


def test_models_by_file_and_by_name(weights: Path) -> None:
    plain, named, untrained = load_methods([str(weights), f"w/o LRF={weights}", "untrained-fast"], [])
    assert (plain.name, plain.file_stem) == ("small.v2", "small.v2")
    assert (named.name, named.file_stem) == ("w/o LRF", "w_o_LRF")
    assert plain.fingerprint == named.fingerprint != ""
    assert [method.kind for method in (plain, named, untrained)] == ["model", "model", "untrained"]


def test_fingerprint_changes_with_the_weights(weights: Path) -> None:
    (before,) = load_methods([str(weights)], [])
    torch.manual_seed(1)
    WSDesc(width=0.1).save(weights)
    (after,) = load_methods([str(weights)], [])
    assert before.fingerprint != after.fingerprint


def test_untrained_weights_are_reproducible() -> None:
    first, second = (load_methods(["untrained-fast"], [])[0].describer for _ in range(2))
    assert isinstance(first, WSDesc)
    assert isinstance(second, WSDesc)
    assert torch.equal(first.network.head.weight, second.network.head.weight)


def test_peers_of_both_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        peers, "names", lambda kind=None: {"descriptor": ["d"], "pose": ["p"]}.get(kind, ["d", "p"])
    )
    monkeypatch.setattr(
        peers, "descriptor", lambda name, weights: lambda points, keypoints, unit=1.0: keypoints
    )
    monkeypatch.setattr(peers, "pose", lambda name, weights: lambda source, target, unit=1.0, *, seed=0: None)
    monkeypatch.setattr(peers, "origin", lambda name, weights: None)
    descriptor, pose = load_methods([], ["d", "p"])
    assert descriptor.describer is not None
    assert pose.estimator is not None
    assert descriptor.kind == pose.kind == "peer"
    with pytest.raises(InputError, match="unknown peer 'q': choose one of d, p"):
        load_methods([], ["q"])


def test_weights_of_peers_are_part_of_recipe_and_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = peers.WeightsOrigin("a test's weights, MIT", "tiny.safetensors 0123")
    monkeypatch.setattr(peers, "pose", lambda name, weights: lambda source, target, unit=1.0: None)
    monkeypatch.setattr(peers, "origin", lambda name, weights: origin)
    (method,) = load_methods([], ["icp"], peer_weights=tmp_path)
    assert method.recipe == {"peer": "icp", "device": "cpu", "weights": str(tmp_path)}
    assert method.fingerprint == "peer tiny.safetensors 0123"
    assert method.kind == "peer"
    assert EvaluatedMethod.of(method).weights == "tiny.safetensors 0123 (a test's weights, MIT)"


def _fails(*_: object) -> Tensor:
    raise ValueError("the matrix is singular\nsecond line")


def test_errors_of_a_peer_name_the_peer_and_the_pair() -> None:
    p = torch.rand(5, 3)
    with pytest.raises(MethodFailure, match=r"^bad, scan 3: the matrix is singular$"):
        Method("bad", describer=_fails).describe(p, p, 1.0, "scan 3")
    assert estimate_pose(Method("bad", estimator=_fails), p, p, 1.0, "pair 1 2") == (
        None,
        "bad, pair 1 2: the matrix is singular",
    )
    with pytest.raises(ValueError, match="singular"):  # own methods must not fail silently
        Method("own", describer=_fails, fingerprint="0123").describe(p, p, 1.0, "scan 3")


def test_pipeline_calls_register(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def register(source: np.ndarray, target: np.ndarray, **options: str) -> SimpleNamespace:
        calls.append((len(source), len(target), options))
        return SimpleNamespace(T_target_source=np.eye(4), inliers=len(calls) - 1)

    monkeypatch.setattr(import_module("wsdesc.registration.pipeline"), "register", register)
    model, pipeline = load_methods([str(weights)], [], "cpu", [str(weights)])
    assert pipeline.name == "register (small.v2)"
    assert pipeline.fingerprint not in ("", model.fingerprint)
    assert (model.kind, pipeline.kind) == ("model", "pipeline")
    assert pipeline.estimator is not None
    p, q = torch.rand(5, 3), torch.rand(4, 3)
    assert pipeline.estimator(p, q, 1.0) is None  # no inliers: no pose
    T = pipeline.estimator(p, q, 1.0)
    assert T is not None
    assert torch.equal(T, torch.eye(4, dtype=torch.float64))
    assert calls[0] == (5, 4, {"model": str(weights), "device": "cpu"})


def test_missing_peers_are_skipped_with_the_install_line(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "open3d", None)
    lines: list[str] = []
    methods = load_methods([str(weights)], ["fgr", "shot"], skip=lines.append)
    assert [method.name for method in methods] == ["small.v2", "shot"]
    (line,) = lines
    assert line.startswith("fgr is skipped: ")
    assert 'pip install "open3d>=' in line
    for skip in (None, lines.append):  # no callback, and no other method
        with pytest.raises(peers.PeerUnavailableError, match="pip install"):
            load_methods([], ["fgr"], skip=skip)


def test_no_method_and_equal_names_are_refused(weights: Path) -> None:
    with pytest.raises(InputError, match="--model, --register or --peer"):
        load_methods([], [])
    with pytest.raises(InputError, match="two methods are called small"):
        load_methods([str(weights), str(weights)], [])
    with pytest.raises(FileFormatError, match="nowhere"):
        load_methods(["nowhere"], [])
