"""What the benchmark commands share: who is judged, the bar, the command as a page shows it, the report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsdesc.core.executors import Executor
    from wsdesc.evaluation.methods import Method
    from wsdesc.evaluation.report import Report


def judge_and_print(
    run: Callable[..., Report],
    root: Path,
    options: Any,
    methods: list[Method],
    out: Path,
    fresh: bool,
    **spread: Any,
) -> None:
    """Run a benchmark under the bar; `spread` goes to it as it is."""
    with progress_bar() as progress:
        report = run(
            root, methods, options, out, command=shown_command(), fresh=fresh, progress=progress, **spread
        )
    print_report(report, out)


def open_executor(jobs: int, scheduler: str | None) -> closing[Executor]:
    """What does the work, closed in the end: this process, several, or a Dask cluster."""
    from wsdesc.core.executors import choose_executor

    return closing(choose_executor(jobs, scheduler))


def find_methods(
    models: list[str] | None, pipelines: list[str] | None, peers: list[str] | None, device: str
) -> list[Method]:
    """Who is judged; peers that cannot run here are skipped, in a line on stderr."""
    from wsdesc.core.devices import choose_device
    from wsdesc.evaluation.methods import load_methods

    def skip(line: str) -> None:
        print(line, file=sys.stderr)

    return load_methods(models or [], peers or [], choose_device(device), pipelines or [], skip)


def read_counts(text: str) -> tuple[int, ...]:
    """Numbers above 0 between commas."""
    from wsdesc.core.errors import InputError

    try:
        counts = tuple(int(word) for word in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise InputError(f"expected numbers above 0, separated by commas, not {text!r}")
    return counts


def shown_command() -> str:
    """This command without the folders of this machine: a page tells what was run, not where."""

    def shown(word: str) -> str:
        label, sign, value = word.rpartition("=")
        path = Path(value).expanduser()
        name = f"{path.name}/" if path.is_dir() else path.name
        here = path.exists() or path.is_absolute()
        return f"{label}{sign}{name.removesuffix('.safetensors')}" if here else word

    return shlex.join(["wsdesc", *map(shown, sys.argv[1:])])


@contextmanager
def progress_bar() -> Iterator[Any]:
    """A bar with the time left where a person looks at it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from wsdesc.evaluation.progress import Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    left = TextColumn("{task.fields[left]}")
    with Progress(*columns, left, console=console, transient=True, disable=not console.is_terminal) as bars:
        yield Bar(bars)


def print_report(report: Report, out: Path) -> None:
    """What was measured here, without the rows that only the paper has."""
    print(f"{report.title}: {report.samples}")
    for remark in report.remarks:
        print(f"- {remark}")
    for table in report.tables:
        print()
        print(table.without_paper().markdown())
    print(f"written: {out / report.name}")
