"""The command line. Heavy imports stand inside the commands, so that help is there at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from wsdesc import __version__, cli_learn
from wsdesc.errors import WSDescError

if TYPE_CHECKING:
    from wsdesc.demo import Advance, Report

EXAMPLES = """\
Examples:
  wsdesc demo                      register two scans of a synthetic room and look at the result
  wsdesc demo --seed 7 --out d7    another room, written to another folder
  wsdesc train scans/ --out run    learn a descriptor from unlabelled scans that overlap
  wsdesc train --out run --resume  go on where it was stopped; without scans: synthetic rooms
  wsdesc pairs scans/              which of them overlap, without any pose
  wsdesc info                      what is installed and which devices it would use

"""

_SHOWN = ("torch", "triton", "numba", "numpy", "scipy", "small_gicp")
_REQUIREMENT = re.compile(r"""^([\w.-]+).*;\s*extra\s*==\s*['"]([\w-]+)['"]""")

Rows = list[tuple[str, str]]


class _Commands(TyperGroup):
    """Examples first, and no traceback for what a user can cause."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(EXAMPLES)
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except WSDescError as error:
            print("error:", " ".join(str(error).split()), file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            sys.exit(130)


class _Command(TyperCommand):
    """The examples of this command first."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        own = [line for line in EXAMPLES.splitlines() if line.startswith(f"  wsdesc {self.name} ")]
        formatter.write("\n".join(["Examples:", *own, "", ""]))
        super().format_help(ctx, formatter)


app = typer.Typer(
    cls=_Commands,
    help="Align 3D scans, and learn to do it from unlabelled scans.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


app.command(cls=_Command)(cli_learn.train)
app.command(cls=_Command)(cli_learn.pairs)


def main() -> None:
    app(prog_name="wsdesc")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"wsdesc {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What holds for all commands."""


@app.command(cls=_Command)
def info() -> None:
    """Versions, devices and backends, extras, weights."""
    sections = {"versions": _versions, "devices": _devices, "extras": _extras, "files": _files}
    for title, rows in sections.items():
        _print_table(title, rows())


@app.command(cls=_Command)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for picture, clouds and pose.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Another seed is another room.")] = 0,
) -> None:
    """Register two partial scans of a synthetic room; some ten seconds. Exits with 1 if the pose is wrong."""
    with _progress() as watch:
        from wsdesc import demo as steps  # brings torch

        report = steps.run(out, seed, watch)
    _print_report(report, out, seed, steps.FILES)
    if not report.right:
        raise typer.Exit(1)


def _versions() -> Rows:
    import platform

    own = [("wsdesc", __version__), ("python", platform.python_version())]
    return own + [(name, _version(name) or "not installed") for name in _SHOWN]


def _devices() -> Rows:
    import torch

    from wsdesc.describe.backends import default_backend

    backend = default_backend(torch.device("cpu"))
    rows = [("cpu", f"{torch.get_num_threads()} threads, voxelization by {backend}")]
    for index in range(torch.cuda.device_count()):
        device = torch.device("cuda", index)
        name = torch.cuda.get_device_name(device)
        rows.append((str(device), f"{name}, voxelization by {default_backend(device)}"))
    if len(rows) == 1:
        rows.append(("cuda", "none found"))
    return rows


def _extras() -> Rows:
    """Each optional group of packages, as the package itself declares them."""
    try:
        declared = metadata.requires("wsdesc") or []
    except metadata.PackageNotFoundError:
        return [("unknown", "wsdesc is used without being installed")]
    members: dict[str, list[str]] = {}
    for requirement in declared:
        if (found := _REQUIREMENT.match(requirement)) and found[2] != "dev":
            members.setdefault(found[2], []).append(found[1])
    rows = []
    for extra, names in members.items():
        versions = {name: _version(name) for name in names}
        if all(versions.values()):
            rows.append((extra, ", ".join(f"{name} {version}" for name, version in versions.items())))
        else:
            absent = ", ".join(name for name, version in versions.items() if not version)
            rows.append((extra, f'without {absent}; type: pip install "wsdesc[{extra}]"'))
    return rows


def _files() -> Rows:
    from wsdesc.describe import pretrained
    from wsdesc.kernels import cache_folder

    folder = cache_folder()
    return [
        ("compiled kernels", f"below {folder}" if folder else "not kept: no folder can be written"),
        ("weights in the box", ", ".join(pretrained.available()) or "none yet: descriptors are untrained"),
    ]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _print_report(report: Report, out: Path, seed: int, files: tuple[str, ...]) -> None:
    share = report.right_matches / max(report.matches, 1)
    rows = [
        ("descriptor", report.descriptor),
        ("points", f"{report.points[0]} source, {report.points[1]} target, overlap {report.overlap:.0%}"),
        ("start", f"source displaced by {_error(report.moved)}"),
        ("keypoints", f"{report.keypoints[0]} + {report.keypoints[1]}"),
        ("matches", f"{report.matches} mutual, {report.right_matches} of them right: {share:.1%} inliers"),
        ("RANSAC", f"{report.inliers} agree, {report.samples} samples, off by {_error(report.coarse_error)}"),
        ("refined", f"off by {_error(report.error)}"),
    ]
    _print_table(f"wsdesc demo, seed {seed}", rows)
    seconds = [*report.seconds.items(), ("together", sum(report.seconds.values()))]
    _print_table("seconds", [(name, f"{value:6.2f}") for name, value in seconds])
    verdict = "registered" if report.right else "NOT registered"
    degrees, metres = report.error
    print(f"{verdict}: rotation error {degrees:.2f}°, translation error {100 * metres:.1f} cm")
    print("written:", ", ".join(str(out / name) for name in files))


def _error(error: tuple[float, float]) -> str:
    degrees, metres = error
    return f"{degrees:.2f}° and {100 * metres:.1f} cm"


def _print_table(title: str, rows: Rows) -> None:
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
def _progress() -> Iterator[Any]:
    """What steps are watched with: bars and spinners on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description:<24}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        waiting = progress.add_task("load libraries", total=None)

        @contextmanager
        def watch(name: str, total: int) -> Iterator[Advance]:
            progress.update(waiting, visible=False)
            task = progress.add_task(name, total=total or None)
            yield lambda done: progress.advance(task, done)
            progress.update(task, total=1, completed=1)

        yield watch
