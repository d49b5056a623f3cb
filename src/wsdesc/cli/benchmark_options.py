"""Shared parts of the benchmark commands: options, methods, progress bars, printed results."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wsdesc.evaluation.options import UNTRAINED, split_model

if TYPE_CHECKING:
    from wsdesc.core.executors import Executor
    from wsdesc.core.progress import Advance
    from wsdesc.evaluation.methods import Method
    from wsdesc.evaluation.results import BenchmarkResults


class MethodArguments(NamedTuple):
    """Arguments of a command that name the methods to evaluate."""

    models: list[str] | None
    pipelines: list[str] | None
    peers: list[str] | None
    device: str
    peer_weights: Path | None


def evaluate_and_print(
    run: Callable[..., BenchmarkResults],
    root: Path,
    options: Any,
    methods: list[Method],
    out: Path,
    **arguments: Any,
) -> None:
    """Run a benchmark with progress bars and print its tables; `arguments` are passed on."""
    with progress_bars() as progress:
        results = run(root, methods, options, out, command=shown_command(), progress=progress, **arguments)
    print(results.markdown())
    print(f"written: {out / results.name}")


def open_executor(jobs: int, scheduler: str | None, device: str) -> closing[Executor]:
    """Open the executor of jobs on a device: this process, several processes, or a Dask cluster."""
    from wsdesc.core.executors import choose_executor

    return closing(choose_executor(jobs, scheduler, device))


def find_methods(arguments: MethodArguments) -> list[Method]:
    """Load the methods; peers without their package or weights are skipped with a line on stderr."""
    from wsdesc.core.devices import choose_device
    from wsdesc.evaluation.methods import load_methods

    def skip(line: str) -> None:
        print(line, file=sys.stderr)

    return load_methods(
        arguments.models or [],
        arguments.peers or [],
        choose_device(arguments.device),
        arguments.pipelines or [],
        skip,
        arguments.peer_weights,
    )


def check_arguments(root: Path, models: list[str] | None, pipelines: list[str] | None, device: str) -> None:
    """Refuse a missing folder, unknown weights and devices before torch is imported."""
    from wsdesc.cli.checks import check_exist
    from wsdesc.core.devices import check_device
    from wsdesc.descriptor import pretrained

    check_exist([root])
    check_device(device)
    sources = [split_model(model)[1] for model in models or []]
    for source in [*(source for source in sources if source not in UNTRAINED), *(pipelines or [])]:
        pretrained.find(source)


def shown_command() -> str:
    """Return the command line with paths shortened to their last part, as it is shown in reports."""

    def shorten(word: str) -> str:
        label, sign, value = word.rpartition("=")
        path = Path(value).expanduser()
        name = f"{path.name}/" if path.is_dir() else path.name
        is_path = path.exists() or path.is_absolute()
        return f"{label}{sign}{name.removesuffix('.safetensors')}" if is_path else word

    return shlex.join(["wsdesc", *map(shorten, sys.argv[1:])])


@contextmanager
def progress_bars() -> Iterator[Any]:
    """Yield a progress hook that draws bars with the remaining time, only on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:

        @contextmanager
        def hook(name: str, total: int) -> Iterator[Advance]:
            task = bars.add_task(name, total=total or None)
            try:
                yield lambda items: bars.advance(task, items)
            finally:
                bars.remove_task(task)

        yield hook
