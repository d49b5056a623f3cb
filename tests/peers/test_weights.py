"""Weights of learned peers: complete, of the right shapes, from safetensors only."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from wsdesc.peers import PeerUnavailableError
from wsdesc.peers.weights import find_files, fingerprint, load_network

SOURCE = "a test's weights, MIT"


class Peer:
    """A peer class with one weight file."""

    SOURCE = SOURCE
    FILES = ("tiny.safetensors",)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def tensors() -> dict[str, Tensor]:
    return {f"module.{name}": tensor.clone() for name, tensor in network().state_dict().items()}


def load(folder: Path, values: dict[str, Tensor], leftovers: tuple[str, ...] = ()) -> nn.Module:
    save_file(values, folder / "tiny.safetensors")
    return load_network(network(), folder, "tiny.safetensors", SOURCE, prefix="module.", leftovers=leftovers)


def test_all_tensors_are_loaded(tmp_path: Path) -> None:
    values = tensors()
    loaded = load(tmp_path, values)
    torch.testing.assert_close(loaded.state_dict()["0.weight"], values["module.0.weight"])
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def test_a_missing_tensor_has_its_shape_in_the_message(tmp_path: Path) -> None:
    values = tensors()
    del values["module.0.bias"]
    with pytest.raises(PeerUnavailableError, match=r"tiny.safetensors: no tensor 0.bias, .*\(4,\).*MIT"):
        load(tmp_path, values)


def test_a_wrong_shape_is_refused(tmp_path: Path) -> None:
    values = tensors() | {"module.0.weight": torch.zeros(4, 5)}
    with pytest.raises(PeerUnavailableError, match=r"0.weight has shape \(4, 5\), expected \(4, 3\)"):
        load(tmp_path, values)


def test_only_listed_leftovers_are_ignored(tmp_path: Path) -> None:
    values = tensors() | {"module.extra.weight": torch.zeros(2)}
    with pytest.raises(PeerUnavailableError, match=r"unknown tensor extra.weight"):
        load(tmp_path, values)
    load(tmp_path, values, leftovers=("extra.",))


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    values = tensors()
    values["module.0.bias"][1] = torch.nan
    with pytest.raises(PeerUnavailableError, match=r"0.bias has values that are not finite"):
        load(tmp_path, values)


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "tiny.safetensors").write_bytes(pickle.dumps({"0.weight": [1.0]}))
    with pytest.raises(PeerUnavailableError, match="not a safetensors file"):
        load_network(network(), tmp_path, "tiny.safetensors", SOURCE)


def test_missing_files_are_named_with_their_source(tmp_path: Path) -> None:
    with pytest.raises(PeerUnavailableError, match=r"--peer-weights DIR .*MIT"):
        find_files(None, Peer)
    with pytest.raises(PeerUnavailableError, match=r"tiny.safetensors: no such file .*MIT"):
        find_files(tmp_path, Peer)


def test_the_fingerprint_depends_on_the_content(tmp_path: Path) -> None:
    load(tmp_path, tensors())
    first = fingerprint(tmp_path, Peer)
    load(tmp_path, tensors() | {"module.0.bias": torch.ones(4)})
    assert first.startswith("tiny.safetensors ")
    assert fingerprint(tmp_path, Peer) != first
