"""How commands speak to people: help that begins with examples, tables, and progress bars on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from wsdesc.core.progress import Advance

Rows = list[tuple[str, str]]


class CommandsWithExamples(TyperGroup):
    """A group whose help begins with the examples of all its commands."""

    examples: ClassVar[str]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(self.examples)
        super().format_help(ctx, formatter)


class CommandWithExamples(TyperCommand):
    """A command whose help begins with those examples that are its own."""

    examples: ClassVar[str]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        called = ctx.command_path.removeprefix(ctx.find_root().command_path)  # whatever the program is called
        own = [line for line in self.examples.splitlines() if line.startswith(f"  wsdesc{called} ")]
        formatter.write("\n".join(["Examples:", *own, "", ""]))
        super().format_help(ctx, formatter)


def print_table(title: str, rows: Rows) -> None:
    """Two columns under a title; lines and colours only where a person looks at them."""
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


@contextmanager
def progress() -> Iterator[Any]:
    """What steps are watched with: bars and spinners on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description:<24}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        waiting = bars.add_task("load libraries", total=None)

        @contextmanager
        def watch(name: str, total: int) -> Iterator[Advance]:
            bars.update(waiting, visible=False)
            task = bars.add_task(name, total=total or None)
            yield lambda done: bars.advance(task, done)
            bars.update(task, total=1, completed=1)

        yield watch
