"""Register many pairs of scans. A pair that fails does not stop the others."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from wsdesc.cloud.convert import Scan
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError, WSDescError
from wsdesc.core.executors import check_jobs, choose_executor
from wsdesc.core.file_parts import as_list
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.pretrained import find
from wsdesc.registration.options import RegisterOptions
from wsdesc.registration.pipeline import register
from wsdesc.registration.result import Registration

_PAIRS_PER_WORKER = 4  # a worker process needs seconds to start: fewer pairs are faster without it
_GPU_WORKERS = 8  # processes that share a GPU; each takes about 1.5 GB of its memory


@dataclass(frozen=True)
class _PairJob:
    source: Scan | Description
    target: Scan | Description
    options: dict[str, Any]


@dataclass(frozen=True)
class _OutOfMemory:
    """The GPU had no memory for a pair while other processes used it."""


def register_many(
    pairs: Iterable[tuple[Scan | Description, Scan | Description]],
    *,
    jobs: int | None = None,
    progress: ProgressHook | None = None,
    **options: Any,
) -> list[Registration | WSDescError]:
    """Register many pairs of scans, in several processes at once.

    Each result is that of `register(source, target, **options)`. Scans are files or in memory.

    Args:
        pairs: Pairs (source, target), in the forms that `register` takes.
        jobs: Number of processes, at most one per core. None chooses it: one process for a few pairs, else
            one per core, and not more than 8 on a GPU. Processes are spawned, so a script that uses them
            needs `if __name__ == "__main__":`.
        progress: Hook that is entered around the work, for a progress bar.
        options: Options of `register`, for all pairs.

    Returns:
        One entry per pair, in their order: the result, or the error of a pair that cannot be registered.

    Raises:
        WSDescError: An option is invalid, or a worker process died.
    """
    o = RegisterOptions.read(options)
    find(o.model)
    options = options | {"device": choose_device(o.device)}
    work = [_PairJob(*_as_pair(pair, number), options) for number, pair in enumerate(as_list(pairs, "pairs"))]
    results: list[Registration | WSDescError | _OutOfMemory] = [_OutOfMemory()] * len(work)
    executor = choose_executor(_workers(jobs, len(work), options["device"]), device=options["device"])
    try:
        with (progress or no_progress)("register pairs", len(work)) as advance:
            for number, result in executor.run(_register_pair, work):
                results[number] = result
                advance(1)
    finally:
        executor.close()
    return [_register_again(work[k]) if isinstance(r, _OutOfMemory) else r for k, r in enumerate(results)]


def _as_pair(pair: Any, number: int) -> tuple[Any, Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InputError(f"pair {number}: a tuple of two scans is needed, not {type(pair).__name__}")
    return pair[0], pair[1]


def _workers(jobs: int | None, pairs: int, device: str) -> int:
    cores = os.cpu_count() or 1
    if jobs is None:
        jobs = min(pairs // _PAIRS_PER_WORKER, cores if device == "cpu" else _GPU_WORKERS)
        jobs = max(1, jobs)
    return max(1, min(check_jobs(jobs), cores, pairs))


def _register_pair(job: _PairJob) -> Registration | WSDescError | _OutOfMemory:
    try:
        return register(job.source, job.target, **job.options)
    except WSDescError as error:
        return WSDescError(str(error))  # of a class that every process can unpickle
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return _OutOfMemory()
    except RuntimeError as error:  # such as a GPU that is no longer there
        return WSDescError(f"the registration stopped: {error}")


def _register_again(job: _PairJob) -> Registration | WSDescError:
    """Register a pair again after all others, when no other process uses the GPU."""
    result = _register_pair(job)
    if isinstance(result, _OutOfMemory):
        return WSDescError('out of GPU memory for this pair alone: use device="cpu", or a larger resolution')
    return result
