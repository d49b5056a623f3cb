"""How far a benchmark is, and how long it will take, on a terminal."""

from __future__ import annotations

import time
from typing import Any


class Bar:
    """Counts pieces of work of several kinds; the time left is that of each kind's pieces so far.

    Describing a fragment takes a thousand times as long as matching a pair: one average over both would
    promise nonsense.
    """

    def __init__(self, bars: Any) -> None:
        self._bars = bars  # of rich
        self._task: Any = None
        self._left: dict[str, int] = {}
        self._spent: dict[str, tuple[float, int]] = {}
        self._last = time.monotonic()

    def expect(self, what: str, **pieces: int) -> None:
        """New work: its name, and how many pieces of each kind."""
        if self._task is not None:
            self._bars.remove_task(self._task)
        total = sum(pieces.values())
        self._task = self._bars.add_task(what, total=max(total, 1), left="")
        self._left, self._spent = dict(pieces), {}
        self._last = time.monotonic()

    def done(self, kind: str) -> None:
        """One piece is done."""
        now = time.monotonic()
        seconds, count = self._spent.get(kind, (0.0, 0))
        self._spent[kind] = (seconds + now - self._last, count + 1)
        self._last = now
        self._left[kind] -= 1
        self._bars.update(self._task, advance=1, left=self._time_left())

    def _time_left(self) -> str:
        seconds = seconds_left(self._left, self._spent)
        return "" if seconds is None else f"{duration(seconds)} left"


def seconds_left(left: dict[str, int], spent: dict[str, tuple[float, int]]) -> float | None:
    """From pieces left and (seconds, pieces) so far, by kind; None while a kind has not been seen."""
    if any(count > 0 and kind not in spent for kind, count in left.items()):
        return None
    return sum(count * spent[kind][0] / spent[kind][1] for kind, count in left.items() if count > 0)


def duration(seconds: float) -> str:
    """For people: 12 s, 3 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
