"""Many small, independent jobs: done here, in processes, or on a cluster; and none of them twice.

A job is a dictionary of plain values, paths and content hashes rather than clouds, and so is its result: both
travel cheaply, and a journal on the disk can keep them. Results come back as jobs finish; whoever wants an
order has the job's number.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

from wsdesc.core.atomic import check_links
from wsdesc.core.errors import FileFormatError, InputError, MissingExtraError, WSDescError

Job = dict[str, Any]
Result = dict[str, Any]
Task = Callable[[Job], Result]  # a function of a module: processes find it by its name

_PATIENCE = 5  # seconds that a scheduler has to answer,
_WORKERS = 60  # and to have a worker: they may be started when work is asked for
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Executor(Protocol):
    """What does jobs."""

    def run(self, task: Task, jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        """The number and the result of each job, as they finish. The first exception ends it all."""

    def close(self) -> None:
        """Give back what it holds."""


class Serial:
    """One after the other, in this process."""

    def run(self, task: Task, jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        for number, job in enumerate(jobs):
            yield number, task(job)

    def close(self) -> None:
        pass


class Processes:
    """In processes of this machine, which share its cores; started afresh, as forks would inherit locks.

    They live until `close`, as each takes seconds to load the libraries.
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise InputError(f"the number of processes must be at least 1, not {workers}")
        self.workers = workers
        self.pool: ProcessPoolExecutor | None = None

    def run(self, task: Task, jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        if self.pool is None:
            threads = max(1, (os.cpu_count() or 1) // self.workers)
            self.pool = ProcessPoolExecutor(self.workers, get_context("spawn"), _begin, (threads,))
        done = False
        try:
            numbers = {self.pool.submit(task, job): number for number, job in enumerate(jobs)}
            for future in as_completed(numbers):
                yield numbers[future], future.result()
            done = True
        except BrokenProcessPool as error:
            raise WSDescError(
                "a worker process died, as happens where memory is short: try fewer --jobs; "
                "what is done is kept"
            ) from error
        finally:
            if not done:  # nobody waits for the rest
                self.close()

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
            self.pool = None


class Dask:
    """On the workers of a Dask scheduler, which need this package and see the files under the same paths."""

    def __init__(self, address: str) -> None:
        try:
            client = import_module("distributed").Client
        except ImportError as error:
            raise MissingExtraError("a Dask scheduler", "dask") from error
        try:
            self.client = client(address, timeout=_PATIENCE, set_as_default=False)
        except Exception as error:  # something else may listen there, and what it says leads anywhere
            raise InputError(f"no Dask scheduler answers at {address}: is it running there?") from error

    def run(self, task: Task, jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        if not jobs:
            return
        dask = import_module("distributed")
        try:
            self.client.wait_for_workers(1, timeout=_WORKERS)
        except dask.TimeoutError as error:
            raise InputError("the Dask scheduler has no workers: start some, or ask without it") from error
        futures = self.client.map(task, jobs, pure=False)
        numbers = {future.key: number for number, future in enumerate(futures)}
        try:
            for future in dask.as_completed(futures, loop=self.client.loop):
                yield numbers[future.key], future.result()
        except (dask.KilledWorker, dask.CancelledError) as error:
            raise WSDescError(
                "workers died again and again at the same job, as happens where memory is short, or the Dask "
                "scheduler did: what is done is kept"
            ) from error
        except ImportError as error:
            raise WSDescError(f"a Dask worker lacks this package, or a part of it: {error}") from error
        finally:
            self.client.cancel(futures)

    def close(self) -> None:
        self.client.close()


def choose(jobs: int = 1, scheduler: str | None = None) -> Executor:
    """The executor for so many jobs at a time, or for a scheduler if there is one."""
    if scheduler is not None:
        return Dask(scheduler)
    return Serial() if jobs == 1 else Processes(jobs)


class Journal:
    """Results on disk, one line each, found again by what they are results of.

    Results that say "error" are not kept: the next run may be luckier, with another package or more memory.
    A line that was being written when the machine stopped, or that is damaged, is as if it were not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: dict[str, Result] = {}
        try:
            data = path.read_bytes() if path.exists() else b""
            if data and not data.endswith(b"\n"):
                with path.open("ab") as file:
                    file.write(b"\n")  # so that what is appended begins a line
        except OSError as error:
            raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
        for line in data.splitlines():
            try:
                entry = json.loads(line)
                self._kept[entry["key"]] = dict(entry["result"])
            except (ValueError, TypeError, KeyError, RecursionError):
                continue

    def run(
        self,
        executor: Executor,
        task: Task,
        jobs: Sequence[Job],
        identities: Sequence[Mapping[str, Any]],
        advance: Callable[[int], None] = lambda done: None,
    ) -> list[Result]:
        """The results of all jobs, in their order; those with an identity that is known are not done again.

        An identity holds all that the result depends on, content instead of paths. Jobs with the same are
        done once.
        """
        keys = [content_key(task.__name__, identity) for identity in identities]
        waiting = {key: k for k, key in reversed(list(enumerate(keys))) if key not in self._kept}
        numbers = sorted(waiting.values())
        advance(len(jobs) - len(numbers))
        for number, result in executor.run(task, [jobs[k] for k in numbers]):
            self._keep(keys[numbers[number]], result)
            advance(1)
        return [self._kept[key] for key in keys]

    def _keep(self, key: str, result: Result) -> None:
        line = json.dumps({"key": key, "result": result}, allow_nan=False)
        self._kept[key] = json.loads(line)["result"]  # as it would be read back: same bits after a resume
        if "error" in result:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FileFormatError(f"{self.path}: cannot be written: {error.strerror or error}") from error


def content_key(*parts: Any) -> str:
    """A hash of plain values, the same on every machine."""
    text = json.dumps(parts, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def content_of(path: str | Path) -> str:
    """A hash of what a file holds, and as what it is read; where it cannot be, a word that none equals."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() + Path(path).suffix.lower()
    except OSError:
        return f"unreadable {path}"


def make_folder(folder: Path) -> None:
    """Make a folder for results, or take one that is there if nothing in it leads elsewhere."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_links(folder)
    except OSError as error:
        raise FileFormatError(f"{folder}: cannot be made: {error.strerror or error}") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder. The system drops the lock of a process that dies, however it does."""
    make_folder(folder)
    try:
        file = (folder / ".lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise FileFormatError(f"{folder}: cannot be written into: {error.strerror or error}") from error
    with file:
        if not _take(file):
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise InputError(f"{folder}: {holder} is at work in it; wait, or name another folder")
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield  # closing the file gives the lock back; its name stays, as removing it would race with others


def _take(file: Any) -> bool:
    """Whether the lock of an open file was free, and now is ours."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(1 << 20)  # a byte far behind the text, which others shall be able to read
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _begin(threads: int) -> None:
    """Before a worker loads any library: its share of the cores, unless the user said otherwise."""
    for name in _THREADS:
        os.environ.setdefault(name, str(threads))
    end_with_parent()


def end_with_parent() -> None:
    """Have this worker process end with the one that started it, which when killed tells nobody."""
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()
