"""What the benchmarks share: a scan, pairs with their truth, a clock, tables."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from wsdesc import WSDescError, read_points
from wsdesc.core.errors import InputError

T = TypeVar("T")


class Pair(NamedTuple):
    """A line of gt.log, with its matrix of gt.info where there is one."""

    i: int
    j: int
    T_i_j: Tensor  # (4, 4) float64
    information: Tensor | None  # (6, 6)


def read_pairs(folder: Path) -> list[Pair]:
    """The pairs of gt.log, in its order."""
    from wsdesc.datasets.threedmatch import read_info, read_log

    information = {}
    if (folder / "gt.info").is_file():
        information = {(e.i, e.j): torch.as_tensor(e.information) for e in read_info(folder / "gt.info")}
    pairs = [
        Pair(e.i, e.j, torch.as_tensor(e.T_i_j).double(), information.get((e.i, e.j)))
        for e in read_log(folder / "gt.log")
    ]
    if not pairs:
        raise InputError(f"{folder}: its gt.log names no pairs")
    return pairs


def scan_or_room(path: str | None) -> Tensor:
    """The scan at `path` (N, 3), its middle at 0; without a path a synthetic room's."""
    if path is None:
        from wsdesc.datasets.synthetic import room_pair

        points = torch.as_tensor(room_pair(seed=0).source)
    else:
        points = torch.from_numpy(read_points(Path(path)))
    return (points - points.mean(0)).float()


def median_ms(work: Callable[[], object], repeats: int = 20, warm_up: int = 3) -> float:
    """Median wall-clock of `work` in ms; waits for the GPU where there is one."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def print_machine() -> None:
    """The line every table of figures needs above it."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores"
    print(f"{name}, {platform.machine()}, Python {sys.version.split()[0]}, torch {torch.__version__}")


def print_table(rows: list[tuple[str, str]]) -> None:
    """Two columns, aligned."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"  {name:<{width}}  {value}")


def print_rows(rows: list[list[str]]) -> None:
    """Aligned columns, the first one to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        print("  ".join([cells[0].ljust(widths[0]), *rest]))


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def watched(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """A progress bar on stderr where a person looks at it; `total` for items that come one by one."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    items, total = (list(items), None) if total is None else (items, total)
    off = not console.is_terminal
    yield from track(items, what, total, console=console, transient=True, disable=off)


def or_explain(work: Callable[[], None]) -> int:
    """Do it; what bad input causes is said in a line. The exit code of the command."""
    try:
        work()
    except WSDescError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
