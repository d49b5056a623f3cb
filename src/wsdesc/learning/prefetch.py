"""Prepare the pairs of the next steps while the trainer works on the current one."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from wsdesc.core.rng import generator_of
from wsdesc.learning.sources import PairSource
from wsdesc.learning.trainer import PreparedPair, Trainer

_STEPS_AHEAD = 4


class Prefetcher:
    """Prepare the pairs of each step: ahead of time on separate streams on CUDA, on demand on the CPU.

    The pairs of a step depend only on its number.

    Args:
        source: Pairs of scans.
        trainer: Trainer that prepares them.
        rank: Rank of this process.
        processes: Number of processes.
    """

    def __init__(self, source: PairSource, trainer: Trainer, rank: int = 0, processes: int = 1) -> None:
        self.source, self.trainer = source, trainer
        self.rank, self.processes = rank, processes
        self.waited = 0.0  # seconds in total
        self._threads = ThreadPoolExecutor(2) if trainer.device.type == "cuda" else None
        if self._threads is not None:
            # Torch loads cuSOLVER at first use, which is not safe from two threads at once.
            torch.linalg.eigh(torch.eye(3, device=trainer.device))
        self._futures: dict[int, Future[tuple[list[PreparedPair], torch.cuda.Event]]] = {}

    def take(self, step: int) -> list[PreparedPair]:
        """Return this process's pairs of a step."""
        start = time.perf_counter()
        if self._threads is None:
            pairs = self._prepare(step)
        else:
            for ahead in range(step, step + _STEPS_AHEAD):
                if ahead not in self._futures:
                    self._futures[ahead] = self._threads.submit(self._prepare_on_stream, ahead)
            pairs, ready = self._futures.pop(step).result()
            torch.cuda.current_stream().wait_event(ready)
            _record_stream(pairs)
        self.waited += time.perf_counter() - start
        return pairs

    def close(self) -> None:
        """Stop preparing."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _prepare(self, step: int) -> list[PreparedPair]:
        count = self.trainer.options.pairs_per_step
        first = (step * self.processes + self.rank) * count
        seed = self.trainer.options.seed
        return [
            self.trainer.prepare(*self.source.pair(index), generator_of(seed, 0, index))
            for index in range(first, first + count)
        ]

    def _prepare_on_stream(self, step: int) -> tuple[list[PreparedPair], torch.cuda.Event]:
        with torch.cuda.stream(torch.cuda.Stream(self.trainer.device)):
            pairs = self._prepare(step)
            ready = torch.cuda.Event()
            ready.record()
        return pairs, ready


def _record_stream(pairs: list[PreparedPair]) -> None:
    """Tell the allocator that the current stream uses memory of another stream."""
    stream = torch.cuda.current_stream()
    for pair in pairs:
        for prepared in pair:
            for tensor in (prepared.keypoints, prepared.frames, *vars(prepared.grid).values()):
                tensor.record_stream(stream)
