"""Report the progress of a computation, step by step, and measure how long each step takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter

Advance = Callable[[int], None]
"""Call it with the number of items finished since the last call."""

ProgressHook = Callable[[str, int], AbstractContextManager[Advance]]
"""Call it with a step's name and number of items (0 if unknown), and enter the result around the step."""


def no_progress(name: str, total: int) -> AbstractContextManager[Advance]:
    """Ignore all progress: the hook to use when no hook is given."""
    return nullcontext(lambda items: None)


class StepTimer:
    """Measure the seconds of each step and pass the steps on to a progress hook.

    Args:
        progress: Hook that is entered around each step, for example to draw a progress bar.
    """

    def __init__(self, progress: ProgressHook | None = None) -> None:
        self.progress = progress or no_progress
        self.seconds: dict[str, float] = {}  # by step name

    @contextmanager
    def __call__(self, name: str, total: int = 0) -> Iterator[Advance]:
        """Enter this around a step; steps of the same name add up."""
        start = perf_counter()
        with self.progress(name, total) as advance:
            yield advance
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start
