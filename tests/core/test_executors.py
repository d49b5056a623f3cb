"""Jobs are done once, wherever that is, and one run at a time owns a folder."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from wsdesc.core.errors import FileFormatError, InputError, MissingExtraError, WSDescError
from wsdesc.core.executors import Dask, Journal, Processes, Serial, choose, content_key, content_of, locked


def square(job):
    return {"square": job["x"] ** 2, "third": job["x"] / 3}


def die(job):
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(job):
    raise InputError(f"not {job['x']}")


JOBS = [{"x": x} for x in range(5)]
SQUARES = [square(job) for job in JOBS]


class Counting(Serial):
    def __init__(self, most=10**9):
        self.done, self.most = [], most

    def run(self, task, jobs):
        for number, result in super().run(task, jobs):
            if len(self.done) == self.most:
                raise KeyboardInterrupt
            self.done.append(jobs[number])
            yield number, result


class TestExecutors:
    def test_serial(self):
        assert dict(Serial().run(square, JOBS)) == dict(enumerate(SQUARES))

    def test_processes_give_the_same_and_their_errors(self):
        here = Processes(2)
        for _ in range(2):
            assert dict(here.run(square, JOBS)) == dict(enumerate(SQUARES))
        with pytest.raises(InputError, match="not 0"):
            list(here.run(refuse, JOBS[:1]))
        assert list(here.run(square, JOBS[:1])) == [(0, SQUARES[0])]
        assert list(here.run(square, [])) == []
        here.close()

    def test_a_worker_that_dies_is_an_error_with_advice(self):
        with pytest.raises(WSDescError, match="--jobs"):
            list(Processes(1).run(die, JOBS[:1]))

    def test_choice(self):
        assert isinstance(choose(), Serial)
        assert isinstance(choose(3), Processes)
        with pytest.raises(InputError, match="at least 1"):
            choose(0)


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
    done = subprocess.run([sys.executable, tmp_path / "main.py"], stdout=subprocess.PIPE, timeout=60)
    assert done.returncode == -9
    patience = time.monotonic() + 20
    for worker in set(map(int, done.stdout.split())):
        while is_running(worker):
            assert time.monotonic() < patience, "a worker stayed"
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
    """What the adapter uses of `distributed.Client`."""

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
        there = choose(scheduler="tcp://here:1")
        assert list(there.run(square, JOBS)) == list(reversed(list(enumerate(SQUARES))))
        assert list(there.run(square, [])) == []
        assert there.client.timeout <= 10
        there.close()
        assert there.client.closed

    def test_an_error_takes_the_other_jobs_back(self, fake):
        there = Dask("tcp://here:1")
        with pytest.raises(InputError, match="not 4"):
            list(there.run(refuse, JOBS))
        assert len(there.client.cancelled) == 5

    @pytest.mark.parametrize(
        ("error", "says"),
        [
            (KilledWorker(), "again and again"),
            (concurrent.futures.CancelledError(), "scheduler did"),
            (ModuleNotFoundError("No module named 'wsdesc'"), "lacks this package"),
        ],
    )
    def test_what_goes_wrong_there_is_said(self, fake, error, says):
        def fail(job):
            raise error

        with pytest.raises(WSDescError, match=says):
            list(Dask("tcp://here:1").run(fail, JOBS))

    def test_no_scheduler_or_no_workers_there(self, fake):
        with pytest.raises(InputError, match="no Dask scheduler answers at tcp://nowhere"):
            Dask("tcp://nowhere:1")
        with pytest.raises(InputError, match="has no workers"):
            list(Dask("tcp://idle:1").run(square, JOBS))

    def test_not_installed(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(MissingExtraError, match=r"wsdesc\[dask\]"):
            Dask("tcp://here:1")


class TestJournal:
    def test_nothing_is_done_twice(self, tmp_path):
        first, again = Counting(), Counting()
        assert Journal(tmp_path / "j").run(first, square, JOBS, JOBS) == SQUARES
        assert Journal(tmp_path / "j").run(again, square, JOBS, JOBS) == SQUARES
        assert (len(first.done), len(again.done)) == (5, 0)

    def test_same_identity_is_done_once(self, tmp_path):
        executor = Counting()
        results = Journal(tmp_path / "j").run(executor, square, JOBS[:2] * 2, JOBS[:2] * 2)
        assert results == SQUARES[:2] * 2
        assert len(executor.done) == 2

    def test_goes_on_after_a_kill(self, tmp_path):
        with pytest.raises(KeyboardInterrupt):
            Journal(tmp_path / "j").run(Counting(most=3), square, JOBS, JOBS)
        again, heard = Counting(), []
        assert Journal(tmp_path / "j").run(again, square, JOBS, JOBS, heard.append) == SQUARES
        assert again.done == JOBS[3:]
        assert heard == [3, 1, 1]

    @pytest.mark.parametrize("cut", [1, 20])
    def test_a_line_cut_off_is_done_again_and_only_that(self, tmp_path, cut):
        path = tmp_path / "j"
        Journal(path).run(Serial(), square, JOBS, JOBS)
        path.write_bytes(path.read_bytes()[:-cut])
        for expected in (JOBS[4:] if cut > 1 else [], []):
            again = Counting()
            assert Journal(path).run(again, square, JOBS, JOBS) == SQUARES
            assert again.done == expected

    def test_damage_in_the_middle_costs_that_line(self, tmp_path):
        path = tmp_path / "j"
        Journal(path).run(Serial(), square, JOBS, JOBS)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([lines[0], b"\xff\x00nonsense\n", b"[1]\n", *lines[2:]]))
        again = Counting()
        assert Journal(path).run(again, square, JOBS, JOBS) == SQUARES
        assert again.done == JOBS[1:2]

    def test_errors_are_tried_again(self, tmp_path):
        def unlucky(job):
            return {"error": "no"}

        for _ in range(2):
            executor = Counting()
            assert Journal(tmp_path / "j").run(executor, unlucky, JOBS[:1], JOBS[:1]) == [{"error": "no"}]
            assert len(executor.done) == 1

    def test_a_full_disk_is_said(self, tmp_path, monkeypatch):
        def full(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(FileFormatError, match="No space left"):
            Journal(tmp_path / "j").run(Serial(), square, JOBS, JOBS)


class TestLock:
    def test_two_runs_at_once_are_refused(self, tmp_path):
        refused = pytest.raises(InputError, match=rf"out: process {os.getpid()} is at work")
        with locked(tmp_path / "out"), refused, locked(tmp_path / "out"):
            pass
        with locked(tmp_path / "out"):
            pass

    def test_the_lock_of_a_dead_process_is_taken_over(self, tmp_path):
        code = (
            "import sys, time; from pathlib import Path; from wsdesc.core.executors import locked\n"
            f"with locked(Path({str(tmp_path)!r})):\n print('in', flush=True); time.sleep(60)"
        )
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert other.stdout.readline() == b"in\n"
        with pytest.raises(InputError, match=f"process {other.pid} is at work"), locked(tmp_path):
            pass
        other.kill()
        other.wait()
        other.stdout.close()
        with locked(tmp_path):
            assert (tmp_path / ".lock").read_text() == f"process {os.getpid()}"

    def test_a_folder_that_cannot_be(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(FileFormatError, match="cannot be made"), locked(tmp_path / "file" / "out"):
            pass


def test_content(tmp_path):
    for name in ("a.ply", "b.ply", "c.xyz", "d.ply"):
        (tmp_path / name).write_text("1" if name != "d.ply" else "2")
    a, b, c, d = (content_of(tmp_path / name) for name in ("a.ply", "b.ply", "c.xyz", "d.ply"))
    assert a == b
    assert len({a, c, d, content_of(tmp_path / "missing.ply")}) == 4
    assert content_key({"x": 1, "y": 2.5}) == content_key({"y": 2.5, "x": 1}) != content_key({"x": 1})
