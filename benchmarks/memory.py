"""Measure the memory of a process and its children."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path


class MemoryMonitor:
    """Measure the peak memory of this process and its children together, in GiB, twice a second.

    Pages that processes share count once.
    """

    def __init__(self) -> None:
        self.peak = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            self.peak = max(self.peak, sum(map(_memory, [os.getpid(), *_children(os.getpid())])))


def _children(process: int) -> list[int]:
    """Return the processes below one, at all depths."""
    descendants: list[int] = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, file.read_text().split()):
                descendants += [child, *_children(child)]
    return descendants


def _memory(process: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 2**20
    return 0.0
