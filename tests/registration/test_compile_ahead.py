"""Kernels of `wsdesc register` are compiled in helper processes at the first start."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba.core import sigutils

from wsdesc.core import kernel_cache
from wsdesc.core.kernels import Kernel
from wsdesc.registration import compile_ahead


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (kernel_cache, compile_ahead):
        monkeypatch.setattr(module, "kernel_folder", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize("kernel", compile_ahead.kernels_to_compile(), ids=lambda kernel: kernel.name)
def test_declared_types_fit_the_parameters(kernel: Kernel) -> None:
    types, _ = sigutils.normalize_signature(f"({kernel._types})")
    assert len(types) == len(inspect.signature(kernel.compiled.py_func).parameters)


@pytest.mark.skipif(kernel_cache.fcntl is None, reason="this platform has no file locks")
def test_two_processes_do_not_compile_the_same_kernel(folder: Path) -> None:
    with kernel_cache.compile_lock("one") as first, kernel_cache.compile_lock("one", wait=False) as second:
        assert first
        assert not second
    with kernel_cache.compile_lock("one", wait=False) as later:
        assert later


def test_kernels_compile_where_no_lock_file_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_cache, "kernel_folder", lambda: tmp_path / "missing" / "folder")
    with kernel_cache.compile_lock("one") as held:
        assert held


def test_helpers_start_only_if_kernels_are_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **options: started.append(args))
    monkeypatch.setattr(compile_ahead, "_usable_cores", lambda: 2)
    compile_ahead.start_helpers()
    assert len(started) == 1
    (folder / kernel_cache.COMPLETE).touch()
    compile_ahead.start_helpers()
    assert len(started) == 1


def test_helpers_are_optional(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **options: Any) -> None:
        raise OSError("no processes left")

    monkeypatch.setattr(subprocess, "Popen", fails)
    monkeypatch.setattr(compile_ahead, "_usable_cores", lambda: 2)
    compile_ahead.start_helpers()


@pytest.mark.slow
def test_a_kernel_compiled_ahead_is_loaded_from_the_cache(tmp_path: Path) -> None:
    ahead = "from wsdesc.cloud.sampling.cpu import _farthest_points as k; k.compile_declared()"
    used = "import torch; from wsdesc.cloud.sampling import farthest_points as f; f(torch.rand(99, 3), 9)"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "NUMBA_DEBUG_CACHE": "1"}
    printed = [
        subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for code in (ahead, used)
    ]
    assert "data saved" in printed[0]
    assert "data loaded" in printed[1]
    assert "data saved" not in printed[1]


@pytest.mark.slow
def test_register_uses_only_declared_types() -> None:
    code = """
from numba.core import sigutils
import wsdesc
from wsdesc.core import kernels
from wsdesc.datasets.synthetic import room_pair
from wsdesc.registration.compile_ahead import kernels_to_compile
compiled = {kernel.name for kernel in kernels_to_compile()}
room = room_pair(11)
used = {}
call = kernels.Kernel.__call__
def record(self, *args):
    used.setdefault(self.name, self)
    return call(self, *args)
kernels.Kernel.__call__ = record
assert wsdesc.register(room.source, room.target, device="cpu").success
for name, kernel in used.items():
    assert name in compiled, f"{name}: helpers do not compile it"
    assert kernel.compiled.signatures == [sigutils.normalize_signature(f"({kernel._types})")[0]], name
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
