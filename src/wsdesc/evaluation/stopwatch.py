"""Measure the time of a method on its device."""

from __future__ import annotations

import time

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
