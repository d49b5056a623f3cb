"""Compiled kernels: cached on disk, announced once, with the same results from any thread and process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points
from wsdesc.core import kernel_cache, kernels
from wsdesc.descriptor.lrf import local_frames
from wsdesc.descriptor.voxelize import voxelize

FRAMES = """
import torch
from wsdesc.core import kernels
from wsdesc.descriptor.lrf import local_frames
kernels._NOTICE_SECONDS = 0.1
points = torch.rand(200, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([0.3, 0.3, 0.1])
frames = local_frames(points, points[:5])
print(round(float(frames.frames.square().sum()), 3), int(frames.reliable.sum()))
"""
CHOICE = """
import torch
from wsdesc.cloud.sampling import farthest_points
print(len(farthest_points(torch.rand(100, 3), 10)))
"""
COMPILING = "compiling CPU kernels"


def python(code: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run code in a new process with changed environment variables; None removes one."""
    env = {k: v for k, v in {**os.environ, **environment}.items() if v is not None}
    run = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    return run


def cached(folder: Path) -> list[Path]:
    return sorted((folder / "wsdesc").rglob("*.nb[ci]"))


@pytest.mark.slow
def test_kernels_are_cached_and_only_compiling_is_announced(tmp_path: Path) -> None:
    first = python(FRAMES, XDG_CACHE_HOME=str(tmp_path))
    assert first.stderr.count(COMPILING) == 1
    assert "kept for the next start" in first.stderr
    files = {path: path.stat().st_mtime_ns for path in cached(tmp_path)}
    assert any("_frames" in path.name for path in files)
    again = python(FRAMES, XDG_CACHE_HOME=str(tmp_path))
    assert again.stderr == ""
    assert again.stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in cached(tmp_path)} == files  # nothing is compiled again


@pytest.mark.slow
def test_the_temporary_folder_replaces_a_home_folder_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    folder = tmp_path / "temporary"
    folder.mkdir()
    run = python(CHOICE, XDG_CACHE_HOME=str(file / "cache"), TMPDIR=str(folder))
    assert run.stdout.strip() == "10"
    assert [path.name.split("-")[0] for path in folder.iterdir()] == ["wsdesc"]
    assert list(folder.rglob("*.nbc"))


@pytest.mark.slow
def test_kernels_work_without_any_cache_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    unusable = str(file / "below")
    # Without both folders, the system's temporary folder is used.
    run = python(CHOICE, XDG_CACHE_HOME=unusable, TMPDIR=unusable)
    assert run.stdout.strip() == "10"
    nowhere = f"import tempfile\ntempfile._candidate_tempdir_list = lambda: [{unusable!r}]\n"
    nobody = (
        "import pwd\n"
        "def unknown(uid): raise KeyError(uid)\n"
        "pwd.getpwuid = unknown\n"
        "from wsdesc.core.kernel_cache import cache_folder\n"
        "assert cache_folder() is None\n"
    )
    run = python(nowhere + nobody + CHOICE, XDG_CACHE_HOME=None, HOME=None)
    assert run.stdout.strip() == "10"


@pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can change the owner of files"
)
def test_compiled_code_of_another_user_is_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = tmp_path / "foreign" / "wsdesc"
    foreign.mkdir(parents=True)
    os.chown(foreign, 12345, 12345)
    monkeypatch.setenv("XDG_CACHE_HOME", str(foreign.parent))
    assert kernel_cache.cache_folder.__wrapped__() != foreign


def test_the_compile_notice_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(kernels, "_notice_given", threading.Event())
    for _ in range(2):
        kernels._log_notice()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert COMPILING in caplog.text


def test_compiling_starts_the_timer_of_the_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    noticed = threading.Event()
    monkeypatch.setattr(kernels, "_NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(kernels, "_log_notice", noticed.set)
    monkeypatch.setattr(kernels, "kernel_folder", lambda: None)  # an earlier test run may have compiled it

    def add_one(x: int) -> int:
        return x + 1

    function = kernels.Kernel(add_one)
    assert function(1) == 2
    assert noticed.wait(5)
    noticed.clear()
    assert function(2) == 3
    assert not noticed.is_set()


def test_the_cache_folder_of_other_numba_functions_stays() -> None:
    import numba

    before = numba.config.CACHE_DIR
    kernels.kernel(lambda x: x + 1)
    assert before == numba.config.CACHE_DIR


def test_kernels_from_several_threads_at_once() -> None:
    g = torch.Generator().manual_seed(0)
    clouds = [torch.rand(800, 3, generator=g) for _ in range(8)]

    def work(points: torch.Tensor) -> tuple[torch.Tensor, ...]:
        grid = NeighbourGrid.of(points)
        chosen = farthest_points(points, 100)
        frames = local_frames(grid, points[chosen])
        size = torch.tensor(0.8, requires_grad=True)
        voxels = voxelize(grid, points[chosen], frames.frames, size, 8)
        slope = torch.autograd.grad(voxels.sum(), size)[0]
        return chosen, frames.frames, voxels.detach(), slope, grid.within(points, 0.1).indices

    serial = [work(points) for points in clouds]
    with ThreadPoolExecutor(4) as pool:
        parallel = list(pool.map(work, clouds))
    for one, other in zip(serial, parallel, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.slow
def test_several_threads_compile_at_once(tmp_path: Path) -> None:
    code = """
import torch
from concurrent.futures import ThreadPoolExecutor
from wsdesc.cloud.sampling import farthest_points
points = torch.rand(300, 3)
with ThreadPoolExecutor(4) as pool:
    results = list(pool.map(lambda _: farthest_points(points, 20).tolist(), range(8)))
print(all(result == results[0] for result in results))
"""
    assert python(code, XDG_CACHE_HOME=str(tmp_path)).stdout.strip() == "True"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_a_forked_process_can_use_kernels() -> None:
    code = """
import os, signal, threading, torch, warnings
warnings.simplefilter("ignore")
from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.core.kernels import single_threaded_torch
torch.set_num_threads(2)
points = torch.rand(1000, 3)
grid = NeighbourGrid.of(points)
count = grid.count(points, 0.1)

def change_threads():
    while True:
        with single_threaded_torch():
            pass

threading.Thread(target=change_threads, daemon=True).start()  # as threads that start do
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(0 if torch.equal(grid.count(points, 0.1), count) else 1)
print(os.waitpid(child, 0)[1])
"""
    assert python(code).stdout.strip() == "0"


def test_an_error_in_a_chunk_is_raised(set_threads: Callable[[int], None]) -> None:
    def fails(start: int, stop: int) -> None:
        if start <= 64 < stop:
            raise ValueError("at 64")

    for threads in (1, 2):
        set_threads(threads)
        with pytest.raises(ValueError, match="at 64"):
            kernels.run_in_chunks(fails, 200, chunk=32)


@pytest.mark.parametrize("items", [0, 1, 31, 32, 33, 200])
@pytest.mark.parametrize("threads", [1, 2])
def test_chunks_cover_each_item_once(items: int, threads: int, set_threads: Callable[[int], None]) -> None:
    set_threads(threads)
    seen: list[int] = []
    kernels.run_in_chunks(lambda start, stop: seen.extend(range(start, stop)), items, chunk=32)
    assert sorted(seen) == list(range(items))


@pytest.mark.parametrize("threads", [1, 2])
def test_items_may_wait_for_chunks(threads: int, set_threads: Callable[[int], None]) -> None:
    """More items than threads, each with chunks: with one pool for both, all threads would wait forever."""
    set_threads(threads)

    def work(item: int) -> int:
        seen: list[int] = []
        kernels.run_in_chunks(lambda start, stop: seen.extend(range(start, stop)), 100, chunk=10)
        return item * len(seen)

    assert kernels.run_each(work, range(8)) == [100 * item for item in range(8)]


def test_an_error_in_an_item_is_raised(set_threads: Callable[[int], None]) -> None:
    for threads in (1, 2):
        set_threads(threads)
        with pytest.raises(ZeroDivisionError):
            kernels.run_each(lambda item: 1 // item, [2, 1, 0])


def test_items_share_the_threads_with_what_they_call() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        inner = kernels.run_each(lambda _: torch.get_num_threads(), range(8))
        assert inner == [1] * 8
        assert kernels.run_each(lambda _: torch.get_num_threads(), range(2)) == [2, 2]
        assert torch.get_num_threads() == 4
        nested = kernels.run_each(lambda a: kernels.run_each(lambda b: (a, b), range(3)), range(8))
        assert nested == [[(a, b) for b in range(3)] for a in range(8)]
    finally:
        torch.set_num_threads(before)


def test_torch_with_one_thread_leaves_the_others_to_kernels() -> None:
    before = torch.get_num_threads()
    default: list[int] = []

    def started_later() -> None:
        with kernels._torch_threads_lock:  # threads of pools may start at the same time
            default.append(torch.get_num_threads())

    try:
        torch.set_num_threads(3)
        with kernels.single_threaded_torch():
            assert torch.get_num_threads() == 1
            names = kernels.run_each(lambda _: threading.current_thread().name, range(6))
            assert all(name.startswith("wsdesc-items") for name in names)
            with kernels.single_threaded_torch():
                assert torch.get_num_threads() == 1
            thread = threading.Thread(target=started_later)
            thread.start()
            thread.join()
        assert torch.get_num_threads() == 3
        assert default[0] > 1  # other tests' pools may set it again, but never to 1
    finally:
        torch.set_num_threads(before)
