"""The service by which processes share a GPU, with a stand-in for NVIDIA's program."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wsdesc.core import gpu_sharing
from wsdesc.core.executors import Processes
from wsdesc.core.gpu_sharing import share_gpu

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")

STAND_IN = """#!/bin/sh
if [ "$1" = -d ]; then touch "$CUDA_MPS_PIPE_DIRECTORY/running"; exit {status}; fi
read -r command
[ "$command" = quit ] && rm "$CUDA_MPS_PIPE_DIRECTORY/running"
"""


def folder_of_worker(job: int) -> str | None:
    return os.environ.get("CUDA_MPS_PIPE_DIRECTORY")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts the stand-in on the path; it starts unless `status` is an error."""

    def put(status: int = 0, probe: str = "") -> None:
        program = tmp_path / "bin" / "nvidia-cuda-mps-control"
        program.parent.mkdir()
        program.write_text(STAND_IN.format(status=status))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setattr(gpu_sharing, "_PROBE", probe)

    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setattr(gpu_sharing, "_SYSTEM_FOLDER", tmp_path / "system")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return put


def left_over(tmp_path: Path) -> list[Path]:
    return list(tmp_path.glob("wsdesc-mps-*"))


def test_the_service_runs_until_it_is_closed(install, tmp_path):
    install()
    service = share_gpu()
    assert service is not None
    folder = Path(service.environment["CUDA_MPS_PIPE_DIRECTORY"])
    assert (folder / "running").exists()
    service.close()
    assert left_over(tmp_path) == []


def test_workers_on_a_gpu_use_the_service_and_others_do_not(install, tmp_path):
    install()
    for device, expected in (("cuda", True), ("cpu", False)):
        workers = Processes(2, device)
        folders = {folder for _, folder in workers.run(folder_of_worker, [1, 2, 3])}
        assert all((folder is not None) == expected for folder in folders)
        workers.close()
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("broken", [{"status": 1}, {"probe": "raise SystemExit(1)"}])
def test_without_a_working_service_processes_take_turns(install, tmp_path, broken):
    install(**broken)
    assert share_gpu() is None
    assert left_over(tmp_path) == []


def test_a_service_of_the_user_or_the_system_is_left_alone(install, tmp_path, monkeypatch):
    install()
    (tmp_path / "system").mkdir()
    assert share_gpu() is None
    (tmp_path / "system").rmdir()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert share_gpu() is None


def test_the_service_ends_with_a_killed_process(install, tmp_path):
    install()
    script = (
        "import os, signal; from wsdesc.core import gpu_sharing as s; s._PROBE = ''\n"
        f"s._SYSTEM_FOLDER = s.Path({str(tmp_path / 'system')!r}); s.tempfile.tempdir = {str(tmp_path)!r}\n"
        "assert s.share_gpu(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    (folder,) = left_over(tmp_path)
    for _ in range(100):
        if not (folder / "running").exists():
            return
        time.sleep(0.1)
    pytest.fail("the service still runs")
