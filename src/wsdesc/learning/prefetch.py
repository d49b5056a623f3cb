"""Pairs for the trainer, made ready while it works on others."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from wsdesc.core.rng import generator_of
from wsdesc.learning.sources import PairSource
from wsdesc.learning.trainer import PreparedPair, Trainer

_AHEAD = 4  # steps


class Feed:
    """Prepared pairs of each step. On CUDA they are prepared ahead, on streams of their own; elsewhere when
    asked for. Either way what a step gets depends on its number alone."""

    def __init__(self, source: PairSource, trainer: Trainer, rank: int = 0, processes: int = 1) -> None:
        self.source, self.trainer = source, trainer
        self.rank, self.processes = rank, processes
        self.waited = 0.0  # seconds, in all
        self._threads = ThreadPoolExecutor(2) if trainer.device.type == "cuda" else None
        if (
            self._threads is not None
        ):  # torch loads this library at first use, and not from two threads at once
            torch.linalg.eigh(torch.eye(3, device=trainer.device))
        self._coming: dict[int, Future[tuple[list[PreparedPair], torch.cuda.Event]]] = {}

    def take(self, step: int) -> list[PreparedPair]:
        """The pairs of this step for this process."""
        start = time.perf_counter()
        if self._threads is None:
            pairs = self._prepare(step)
        else:
            for number in range(step, step + _AHEAD):
                if number not in self._coming:
                    self._coming[number] = self._threads.submit(self._prepare_aside, number)
            pairs, ready = self._coming.pop(step).result()
            torch.cuda.current_stream().wait_event(ready)
            _hand_over(pairs)
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
            self.trainer.prepare(*self.source.pair(number), generator_of(seed, 0, number))
            for number in range(first, first + count)
        ]

    def _prepare_aside(self, step: int) -> tuple[list[PreparedPair], torch.cuda.Event]:
        with torch.cuda.stream(torch.cuda.Stream(self.trainer.device)):
            pairs = self._prepare(step)
            ready = torch.cuda.Event()
            ready.record()
        return pairs, ready


def _hand_over(pairs: list[PreparedPair]) -> None:
    """Tell the allocator that memory of another stream is in use on this one."""
    stream = torch.cuda.current_stream()
    for pair in pairs:
        for scene in pair:
            for tensor in (scene.keypoints, scene.frames, *vars(scene.grid).values()):
                tensor.record_stream(stream)
