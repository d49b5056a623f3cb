"""Devices and backends: names are checked without torch, wrong ones are refused with a remedy."""

import subprocess
import sys

import pytest
import torch

from wsdesc.core import devices
from wsdesc.core.devices import check_device, choose_backend, choose_device
from wsdesc.core.errors import InputError


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mps", "device 'mps' is not supported: choose cpu or cuda"),
        ("nonsense", "unknown device 'nonsense': choose cpu, cuda, or auto"),
        ("", "unknown device ''"),
        ("cuda:x", "unknown device 'cuda:x'"),
        ("cpu:0", "unknown device"),
    ],
)
def test_wrong_names_are_refused(name, message):
    with pytest.raises(InputError, match=message):
        choose_device(name)


def test_cuda_without_a_driver_is_refused(monkeypatch):
    monkeypatch.setattr(devices, "_has_gpu_driver", lambda: False)
    with pytest.raises(InputError, match="no CUDA device on this machine: choose device cpu"):
        check_device("cuda")


def test_a_missing_cuda_device_is_refused(monkeypatch):
    monkeypatch.setattr(devices, "_has_gpu_driver", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("cuda") == "cuda"
    with pytest.raises(InputError, match="no device cuda:1"):
        choose_device("cuda:1")


@pytest.mark.parametrize("available", [False, True])
def test_auto_prefers_cuda(monkeypatch, available):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    assert choose_device("auto") == ("cuda" if available else "cpu")


def test_torch_is_not_imported_for_the_cpu():
    code = (
        "import sys; from wsdesc.core.devices import choose_device\n"
        "choose_device('cpu'); print('torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_backends_of_the_cpu():
    points = torch.zeros(1, 3)
    assert choose_backend("auto", points) == "numba"
    assert choose_backend("reference", points) == "reference"
    with pytest.raises(InputError, match="unknown backend 'fast': choose auto, reference, numba, triton"):
        choose_backend("fast", points)
    with pytest.raises(InputError, match="the triton backend needs triton and points on a CUDA device"):
        choose_backend("triton", points)
    with pytest.raises(InputError, match="the numba backend needs points on the CPU, not on meta"):
        choose_backend("numba", points.to("meta"))
