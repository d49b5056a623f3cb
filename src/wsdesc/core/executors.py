"""Run many small, independent jobs: in this process, in worker processes, or on a Dask cluster.

A job and its result are small values that can be pickled. A job is typically a frozen dataclass with paths
and content hashes instead of scans. Results arrive as jobs finish, each with its job's number.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from importlib import import_module
from multiprocessing import current_process, get_context, parent_process
from multiprocessing.synchronize import Event
from numbers import Integral
from threading import Thread
from typing import Protocol, TypeVar

from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError, MissingExtraError, WSDescError
from wsdesc.core.gpu_sharing import GpuSharing, share_gpu

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

NOT_STARTED = (
    "no worker process could start: a script that uses several processes needs "
    'if __name__ == "__main__": before its calls'
)
_CONNECT_SECONDS = 5  # limit for the scheduler's answer
_WORKER_SECONDS = 60  # limit for the first worker; clusters may start workers on demand
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Executor(Protocol):
    """Runs jobs."""

    def run(self, task: Callable[[JobT], ResultT], jobs: Sequence[JobT]) -> Iterator[tuple[int, ResultT]]:
        """Yield the number and result of each job as it finishes; the first exception ends the iteration.

        Args:
            task: Function at the top level of a module, so that other processes can import it.
            jobs: Arguments of the calls.
        """

    def close(self) -> None:
        """Release processes and connections."""


class Serial:
    """Runs jobs one after the other in this process."""

    def run(self, task: Callable[[JobT], ResultT], jobs: Sequence[JobT]) -> Iterator[tuple[int, ResultT]]:
        for number, job in enumerate(jobs):
            yield number, task(job)

    def close(self) -> None:
        pass


class Processes:
    """Runs jobs in worker processes that share this machine's cores.

    Workers are spawned, as forked ones would inherit held locks. They live until `close`, since each needs
    seconds to import its libraries.

    Args:
        workers: Number of processes.
        device: Device of the jobs. Processes on a GPU compute at the same time, where the driver allows it.
    """

    def __init__(self, workers: int, device: str = "cpu") -> None:
        if workers < 1:
            raise InputError(f"the number of processes must be at least 1, not {workers}")
        end_if_starting()
        self.workers, self.device = workers, device
        self.pool: ProcessPoolExecutor | None = None
        self._sharing: GpuSharing | None = None
        self._started: Event | None = None

    def run(self, task: Callable[[JobT], ResultT], jobs: Sequence[JobT]) -> Iterator[tuple[int, ResultT]]:
        if self.pool is None:
            threads = max(1, (os.cpu_count() or 1) // self.workers)
            self._sharing = share_gpu() if self.device.startswith("cuda") else None
            context = get_context("spawn")
            self._started = context.Event()
            start = threads, self._sharing.environment if self._sharing else {}, self._started
            self.pool = ProcessPoolExecutor(self.workers, context, _start_worker, start)
        finished = False
        try:
            calls = (pickle.dumps((task, job)) for job in jobs)
            numbers = {self.pool.submit(_run_pickled, call): number for number, call in enumerate(calls)}
            for future in as_completed(numbers):
                yield numbers[future], pickle.loads(future.result())
            finished = True
        except BrokenProcessPool as error:
            if self._started is not None and not self._started.is_set():
                raise WSDescError(NOT_STARTED) from error
            raise WSDescError(
                "a worker process died, probably for lack of memory: use fewer processes; "
                "finished jobs are kept"
            ) from error
        finally:
            if not finished:  # cancel the remaining jobs
                self.close()

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
            self.pool = None
        if self._sharing is not None:
            self._sharing.close()
            self._sharing = None


class Dask:
    """Runs jobs on the workers of a Dask scheduler.

    Workers need this package, and must see the files under the same paths.

    Args:
        address: Address of the scheduler, such as "tcp://host:8786".
    """

    def __init__(self, address: str) -> None:
        try:
            client = import_module("distributed").Client
        except ImportError as error:
            raise MissingExtraError("a Dask scheduler", "dask") from error
        try:
            self.client = client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except Exception as error:  # another program may listen at that port and answer anything
            raise InputError(f"no Dask scheduler answers at {address}: is it running?") from error

    def run(self, task: Callable[[JobT], ResultT], jobs: Sequence[JobT]) -> Iterator[tuple[int, ResultT]]:
        if not jobs:
            return
        dask = import_module("distributed")
        try:
            self.client.wait_for_workers(1, timeout=_WORKER_SECONDS)
        except dask.TimeoutError as error:
            raise InputError(
                "the Dask scheduler has no workers: start workers, or run without a scheduler"
            ) from error
        futures = self.client.map(task, jobs, pure=False)
        numbers = {future.key: number for number, future in enumerate(futures)}
        try:
            for future in dask.as_completed(futures, loop=self.client.loop):
                yield numbers[future.key], future.result()
        except (dask.KilledWorker, dask.CancelledError) as error:
            raise WSDescError(
                "several Dask workers died at the same job, probably for lack of memory, or the scheduler "
                "stopped: finished jobs are kept"
            ) from error
        except ImportError as error:
            raise WSDescError(
                f"a Dask worker lacks this package or one of its dependencies: {error}"
            ) from error
        finally:
            self.client.cancel(futures)

    def close(self) -> None:
        self.client.close()


def choose_executor(jobs: int = 1, scheduler: str | None = None, device: str = "cpu") -> Executor:
    """Return the executor for parallel jobs on a device, or for the address of a Dask scheduler."""
    if scheduler is not None:
        return Dask(scheduler)
    return Serial() if jobs == 1 else Processes(jobs, choose_device(device))


def check_jobs(jobs: int) -> int:
    """Refuse an invalid number of processes.

    Raises:
        InputError: It is no whole number of at least 1.
    """
    if isinstance(jobs, bool) or not isinstance(jobs, Integral):
        raise InputError(f"jobs: a whole number of processes is needed, not {jobs!r}")
    if jobs < 1:
        raise InputError(f"jobs: at least 1 process is needed, not {jobs}")
    return int(jobs)


@contextmanager
def open_executor(
    executor: Executor | None = None, jobs: int = 1, device: str = "auto"
) -> Iterator[Executor]:
    """Yield the given executor, or one of `jobs` processes that ends with the block.

    Raises:
        InputError: Both are given, or the number of processes is invalid.
    """
    if executor is None:
        with closing(choose_executor(check_jobs(jobs), device=device)) as opened:
            yield opened
    elif check_jobs(jobs) != 1:
        raise InputError("jobs and executor: use one of them")
    else:
        yield executor


def end_if_starting() -> None:
    """End a worker process that runs the user's script while it starts: the script has no main guard.

    The process ends without a message, since its parent says what the script lacks.
    """
    if getattr(current_process(), "_inheriting", False):
        raise SystemExit(1)


def end_with_parent() -> None:
    """End this worker process when its parent ends, also when the parent is killed."""
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()


def _run_pickled(call: bytes) -> bytes:
    """Run a task in a worker; call and result are pickled here.

    A pool would pass tensors by shared files, one by one, and a busy worker answers each request late. This
    limited 8 processes to about 20 registrations per second on a GPU.
    """
    task, job = pickle.loads(call)
    return pickle.dumps(task(job))


def _start_worker(threads: int, environment: dict[str, str], started: Event) -> None:
    """Limit a new worker's threads to its share of the cores, unless the user set the variables.

    Args:
        threads: Number of threads.
        environment: Further variables.
        started: Set here, so that the parent knows that workers can start.
    """
    started.set()
    os.environ.update(environment)
    for name in _THREAD_VARIABLES:  # libraries read them when they are imported
        os.environ.setdefault(name, str(threads))
    end_with_parent()
