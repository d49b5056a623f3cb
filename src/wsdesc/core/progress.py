"""Steps of a computation that somebody may watch, and how long each took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter

Advance = Callable[[int], None]  # so many items more are done
Watch = Callable[[str, int], AbstractContextManager[Advance]]  # name of a step, and the number of its items


class StepTimer:
    """Enter it around each step. `watch` is entered as well: progress bars hang there."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.watch = watch or (lambda name, total: nullcontext(lambda done: None))
        self.seconds: dict[str, float] = {}  # by step

    @contextmanager
    def __call__(self, name: str, total: int = 0) -> Iterator[Advance]:
        """A step of that name, and of so many items."""
        start = perf_counter()
        with self.watch(name, total) as advance:
            yield advance
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start
