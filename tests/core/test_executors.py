"""Executors return the same results in this process, in worker processes and on a Dask cluster."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from wsdesc.core.errors import InputError, MissingExtraError, WSDescError
from wsdesc.core.executors import Dask, Processes, Serial, choose_executor, open_executor


def square(job):
    return {"square": job["x"] ** 2, "third": job["x"] / 3}


def die(job):
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(job):
    raise InputError(f"not {job['x']}")


JOBS = [{"x": x} for x in range(5)]
SQUARES = [square(job) for job in JOBS]


def test_serial():
    assert dict(Serial().run(square, JOBS)) == dict(enumerate(SQUARES))


def test_processes_return_results_and_errors():
    executor = Processes(2)
    for _ in range(2):
        assert dict(executor.run(square, JOBS)) == dict(enumerate(SQUARES))
    with pytest.raises(InputError, match="not 0"):
        list(executor.run(refuse, JOBS[:1]))
    assert list(executor.run(square, JOBS[:1])) == [(0, SQUARES[0])]
    assert list(executor.run(square, [])) == []
    executor.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_a_dead_worker_is_an_error_with_advice():
    with pytest.raises(WSDescError, match="fewer processes"):
        list(Processes(1).run(die, JOBS[:1]))


UNGUARDED = """
import wsdesc
from wsdesc.core.executors import Processes
from wsdesc.core.geometry import inverse

try:
    list(Processes(2).run(inverse, [None] * 4))
except wsdesc.WSDescError as error:
    print(error)
"""


def test_a_script_without_main_guard_is_told_so_in_one_line(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    script = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=60
    )
    assert "__main__" in script.stdout
    assert len(script.stdout.splitlines()) == 1
    assert script.stderr == ""


def test_open_executor():
    given = Serial()
    with open_executor(given) as executor:
        assert executor is given
    with open_executor(jobs=2, device="cpu") as executor:
        assert dict(executor.run(square, JOBS)) == dict(enumerate(SQUARES))
    assert executor.pool is None
    with pytest.raises(InputError, match="jobs and executor"), open_executor(given, jobs=2):
        pass
    for wrong in (0, -1, True, 1.5, "2"):
        with pytest.raises(InputError, match="jobs"), open_executor(jobs=wrong):
            pass


def test_choose_executor():
    assert isinstance(choose_executor(), Serial)
    assert isinstance(choose_executor(3), Processes)
    with pytest.raises(InputError, match="at least 1"):
        choose_executor(0)


ORPHAN = """
import os, signal
from tests_orphan import sleep
from wsdesc.core.executors import Processes

if __name__ == "__main__":
    workers = Processes(2)
    for number, result in workers.run(sleep, [{"seconds": 0}, {"seconds": 0}, {"seconds": 600}]):
        print(result["process"], flush=True)
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
"""
SLEEP = """
import os, time
def sleep(job):
    time.sleep(job["seconds"])
    return {"process": os.getpid()}
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_workers_end_when_their_parent_is_killed(tmp_path):
    (tmp_path / "tests_orphan.py").write_text(SLEEP)
    (tmp_path / "main.py").write_text(ORPHAN)
    parent = subprocess.run([sys.executable, tmp_path / "main.py"], stdout=subprocess.PIPE, timeout=60)
    assert parent.returncode == -9
    deadline = time.monotonic() + 20
    for worker in set(map(int, parent.stdout.split())):
        while is_running(worker):
            assert time.monotonic() < deadline, "a worker outlived its parent"
            time.sleep(0.05)


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class FakeFuture:
    def __init__(self, key, function, job):
        self.key, self.result = key, lambda: function(job)


class KilledWorker(Exception):
    pass


class FakeClient:
    """The part of `distributed.Client` that the executor uses."""

    def __init__(self, address, timeout, set_as_default):
        if "nowhere" in address:
            raise OSError("timed out")
        self.cancelled, self.closed, self.timeout, self.loop = [], False, timeout, None
        self.workers = "idle" not in address

    def wait_for_workers(self, count, timeout):
        if not self.workers:
            raise TimeoutError

    def map(self, function, jobs, pure):
        assert not pure
        return [FakeFuture(f"{function.__name__}-{job['x']}", function, job) for job in jobs]

    def cancel(self, futures):
        self.cancelled += futures

    def close(self):
        self.closed = True


class TestDask:
    @pytest.fixture
    def fake(self, monkeypatch):
        module = types.ModuleType("distributed")
        module.Client, module.as_completed = FakeClient, lambda futures, loop: reversed(list(futures))
        module.KilledWorker, module.CancelledError = KilledWorker, concurrent.futures.CancelledError
        module.TimeoutError = TimeoutError
        monkeypatch.setitem(sys.modules, "distributed", module)

    def test_results_have_the_numbers_of_their_jobs(self, fake):
        executor = choose_executor(scheduler="tcp://host:1")
        assert list(executor.run(square, JOBS)) == list(reversed(list(enumerate(SQUARES))))
        assert list(executor.run(square, [])) == []
        assert executor.client.timeout <= 10
        executor.close()
        assert executor.client.closed

    def test_an_error_cancels_the_other_jobs(self, fake):
        executor = Dask("tcp://host:1")
        with pytest.raises(InputError, match="not 4"):
            list(executor.run(refuse, JOBS))
        assert len(executor.client.cancelled) == 5

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (KilledWorker(), "workers died at the same job"),
            (concurrent.futures.CancelledError(), "the scheduler stopped"),
            (ModuleNotFoundError("No module named 'wsdesc'"), "lacks this package"),
        ],
    )
    def test_failures_of_the_cluster_are_reported(self, fake, error, message):
        def fail(job):
            raise error

        with pytest.raises(WSDescError, match=message):
            list(Dask("tcp://host:1").run(fail, JOBS))

    def test_no_scheduler_or_no_workers(self, fake):
        with pytest.raises(InputError, match="no Dask scheduler answers at tcp://nowhere"):
            Dask("tcp://nowhere:1")
        with pytest.raises(InputError, match="has no workers"):
            list(Dask("tcp://idle:1").run(square, JOBS))

    def test_dask_is_not_installed(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(MissingExtraError, match="pip install"):
            Dask("tcp://host:1")
