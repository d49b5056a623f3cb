"""Output that all commands share: help with examples, tables, progress bars, warnings, exit codes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from wsdesc.core.errors import one_line

if TYPE_CHECKING:
    from wsdesc.core.progress import Advance, ProgressHook
    from wsdesc.registration.result import Pose

NO_SUCCESS = 1  # exit code: the command ran, but the result is not a success
BAD_INPUT = 2  # exit code: a file, an option or the machine does not allow the work

Rows = list[tuple[str, str]]


class CommandsWithExamples(TyperGroup):
    """A group of commands whose help begins with the examples of all of them."""

    examples: ClassVar[str]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(self.examples)
        super().format_help(ctx, formatter)


class CommandWithExamples(TyperCommand):
    """A command whose help begins with its own examples, and names arguments in capitals as its text does."""

    examples: ClassVar[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            if parameter.param_type_name == "argument" and parameter.metavar is None:
                parameter.metavar = str(parameter.name).upper()

    def invoke(self, ctx: Any) -> Any:
        from wsdesc.core.file_parts import expand_home

        def expand(value: Any) -> Any:  # the shell leaves --out=~/T.json as it is
            if isinstance(value, list | tuple):
                return type(value)(map(expand, value))
            return expand_home(value) if isinstance(value, Path) else value

        ctx.params = {name: expand(value) for name, value in ctx.params.items()}
        return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        name = ctx.command_path.removeprefix(ctx.find_root().command_path)  # the program may be renamed
        own = [line for line in self.examples.splitlines() if line.startswith(f"  wsdesc{name} ")]
        formatter.write("\n".join(["Examples:", *own, "", ""]))
        super().format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write = formatter.write_dl

        def write_without_python_types(rows: Any, *args: Any, **kwargs: Any) -> None:
            rows = [(re.sub(r"list\[(\w+)\]", lambda m: m[1].lower(), name), text) for name, text in rows]
            write(rows, *args, **kwargs)

        formatter.write_dl = write_without_python_types
        super().format_options(ctx, formatter)


def usage_error_line(error: Exception) -> str | None:
    """Return one line for an error of typer about the command line; None for other errors and for help."""
    if not hasattr(error, "format_message") or "\n" in error.format_message():
        return None
    from wsdesc.core.options import rephrase

    text = one_line(error.format_message())
    if invalid := re.fullmatch(r"Invalid value for '(.+?)'(?: / '.+?')*: (.+)", text):
        text = f"{invalid[1]}: {rephrase(invalid[2])}"
    context = getattr(error, "ctx", None)
    return f"{text.rstrip('.')}. Help: {'wsdesc' if context is None else context.command_path} --help"


def print_table(title: str, rows: Rows) -> None:
    """Print two columns under a title, with lines and colours only on a terminal."""
    if not sys.stdout.isatty():
        width = max((len(name) for name, _ in rows), default=0)
        print(title, *(f"  {name:<{width}}  {value}".rstrip() for name, value in rows), "", sep="\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    Console().print(table)


def matrix_rows(T: Pose) -> str:
    """Format a pose (4, 4), one line for each row."""
    return "\n".join(" ".join(f"{value:12.6f}" for value in row) for row in T)


def seconds_text(timings: Mapping[str, float]) -> str:
    """Format the total time, and the time of each step."""
    steps = ", ".join(f"{name} {seconds:.2f}" for name, seconds in timings.items())
    return f"{sum(timings.values()):.2f}: {steps}"


def print_written(paths: Iterable[Path | None]) -> None:
    """Print the names of the files that a command wrote; None stands for an output that was not requested."""
    if names := [str(path) for path in paths if path is not None]:
        print("written:", ", ".join(names))


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings on stderr, one line each."""
    for warning in warnings:
        print("warning:", warning, file=sys.stderr)


def exit_unless(success: bool) -> None:
    """End the command with the exit code of a result without success."""
    if not success:
        raise typer.Exit(NO_SUCCESS)


@contextmanager
def continue_hint() -> Iterator[None]:
    """Say that the same command continues an interrupted run."""
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        raise


@contextmanager
def progress_bars() -> Iterator[ProgressHook]:
    """Yield a progress hook that draws bars on a terminal, and nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description:<24}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        loading = bars.add_task("load libraries", total=None)

        @contextmanager
        def hook(name: str, total: int) -> Iterator[Advance]:
            bars.update(loading, visible=False)
            task = bars.add_task(name, total=total or None)
            yield lambda items: bars.advance(task, items)
            bars.update(task, total=1, completed=1)

        yield hook
