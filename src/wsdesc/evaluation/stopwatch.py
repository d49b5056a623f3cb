"""Measure wall-clock times, also of work on a GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch


class Stopwatch:
    """Wall-clock time since its creation. It waits for the GPU where the method runs on one."""

    def __init__(self, device: str) -> None:
        self._on_gpu = torch.device(device).type == "cuda"
        self._start = self._now()

    def seconds(self) -> float:
        """Return the time since the creation."""
        return self._now() - self._start

    def _now(self) -> float:
        if self._on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()


def median_ms(work: Callable[[], object], repeats: int = 20, warm_up: int = 1) -> float:
    """Measure the median wall-clock time in ms, with the GPU synchronised.

    Args:
        work: Function that is timed.
        repeats: Number of timed calls.
        warm_up: Calls before them, which compile kernels and fill caches.
    """
    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)
