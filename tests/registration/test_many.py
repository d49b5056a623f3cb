"""`register_many`: the results of `register`, and errors of single pairs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import wsdesc
from wsdesc import Registration, WSDescError, register, register_many
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import room_pair
from wsdesc.registration import many

KEYPOINTS = 150


@pytest.fixture(scope="module")
def scans() -> tuple[np.ndarray, np.ndarray]:
    pair = room_pair(3)
    return pair.source, pair.target


def test_results_are_those_of_register_in_the_order_of_the_pairs(scans):
    a, b = scans
    results = register_many([(a, b), (b, a)], keypoints=KEYPOINTS, device="cpu")
    for result, pair in zip(results, [(a, b), (b, a)], strict=True):
        assert isinstance(result, Registration)
        expected = register(*pair, keypoints=KEYPOINTS, device="cpu")
        assert np.array_equal(result.T_target_source, expected.T_target_source)
        assert result.confidence == expected.confidence


def test_a_broken_pair_says_why_and_the_others_finish(scans, tmp_path):
    a, b = scans
    missing = tmp_path / "missing.ply"
    good, unreadable, flat = register_many(
        [(a, b), (missing, b), (a[:, :2], b)], keypoints=KEYPOINTS, device="cpu"
    )
    assert isinstance(good, Registration)
    assert good.evidence is not None
    assert isinstance(unreadable, WSDescError)
    assert "missing.ply" in str(unreadable)
    assert isinstance(flat, WSDescError)
    assert "(N, 3)" in str(flat)


@pytest.mark.slow
def test_processes_give_the_same_bits(scans, tmp_path):
    a, b = scans
    pairs = [(a, b), (b, a), (tmp_path / "missing.ply", b)]
    serial = register_many(pairs, jobs=1, keypoints=KEYPOINTS, device="cpu")
    parallel = register_many(pairs, jobs=2, keypoints=KEYPOINTS, device="cpu")
    for one, other in zip(serial[:2], parallel[:2], strict=True):
        assert np.array_equal(one.T_target_source, other.T_target_source)
    assert str(serial[2]) == str(parallel[2])


def test_out_of_memory_is_tried_again_alone_and_then_reported(scans, monkeypatch):
    calls = []

    def fail_at_first(*pair, **options):
        calls.append(pair)
        if len(calls) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return register(*pair, **options)

    monkeypatch.setattr(many, "register", fail_at_first)
    (result,) = register_many([scans], keypoints=KEYPOINTS, device="cpu")
    assert isinstance(result, Registration)
    assert len(calls) == 2

    def always_fail(*pair, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(many, "register", always_fail)
    (result,) = register_many([scans], keypoints=KEYPOINTS, device="cpu")
    assert isinstance(result, WSDescError)
    assert "out of GPU memory" in str(result)


def test_a_lost_gpu_is_an_error_of_the_pair(scans, monkeypatch):
    def fail(*pair, **options):
        raise RuntimeError("CUDA error: device not available")

    monkeypatch.setattr(many, "register", fail)
    (result,) = register_many([scans], keypoints=KEYPOINTS, device="cpu")
    assert isinstance(result, WSDescError)
    assert "device not available" in str(result)


def test_bad_arguments_are_refused_before_any_work(scans):
    with pytest.raises(InputError, match="pair 1"):
        register_many([scans, scans[0]])
    with pytest.raises(WSDescError, match="keypoint"):
        register_many([scans], keypointz=5)
    with pytest.raises(WSDescError, match="no-such-model"):
        register_many([scans], model="no-such-model")
    with pytest.raises(InputError, match="jobs"):
        register_many([scans], jobs=0)
    assert register_many([]) == []


def test_workers_fit_the_machine(monkeypatch):
    monkeypatch.setattr(many.os, "cpu_count", lambda: 4)
    assert many._workers(100, 50, "cpu") == 4
    assert many._workers(None, 2, "cpu") == 1
    assert many._workers(None, 50, "cpu") == 4
    assert many._workers(3, 1, "cuda") == 1


def test_it_is_a_public_name():
    assert "register_many" in wsdesc.__all__
