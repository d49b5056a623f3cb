"""The command line. Heavy imports stand inside the commands, so that help is there at once."""

from __future__ import annotations

import re
import signal
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wsdesc import __version__
from wsdesc.cli import ablate as cli_ablate
from wsdesc.cli import benchmark as cli_benchmark
from wsdesc.cli import reconstruct as cli_reconstruct
from wsdesc.cli import register as cli_register
from wsdesc.cli import train as cli_learn
from wsdesc.cli import view as cli_view
from wsdesc.cli.output import CommandsWithExamples, CommandWithExamples, Rows, print_table, progress
from wsdesc.core.errors import WSDescError

if TYPE_CHECKING:
    from wsdesc.view.demo import Report

EXAMPLES = """\
Examples:
  wsdesc register a.ply b.las      the pose of a in the frame of b, and how far to trust it
  wsdesc register a.ply b.ply -o T.json --aligned moved.ply --picture both.png
  wsdesc describe a.ply -o a.npz --resolution 0.025   descriptors, to be matched later
  wsdesc match a.npz b.npz         register two scans that are described already
  wsdesc register a.ply b.ply --view   the same, and a page in the browser; --save page.html: into a file
  wsdesc view a.ply b.ply T.json   look at two scans and a pose
  wsdesc view a.ply b.ply T.json --matches --save page.html   one file that shows it offline
  wsdesc reconstruct scans/ -o model   many scans in one frame: poses, merged cloud, report
  wsdesc reconstruct scans/ -o model --view   and a page of all of them, with the pairs behind it
  wsdesc demo                      register two scans of a synthetic room and look at the result
  wsdesc demo --seed 7 --out d7    another room, written to another folder
  wsdesc train scans/ --out run    learn a descriptor from unlabelled scans that overlap
  wsdesc train --out run --resume  go on where it was stopped; without scans: synthetic rooms
  wsdesc distill indoor scans/ --out fast   a quarter as wide a network learns the descriptors of another
  wsdesc pairs scans/              which of them overlap, without any pose
  wsdesc ablate scans/ --test 3DMatch/ --synthetic 0.7   the paper's ablation table
  wsdesc info                      what is installed and which devices it would use

"""

_SHOWN = ("torch", "triton", "numba", "numpy", "scipy", "small_gicp")
_REQUIREMENT = re.compile(r"""^([\w.-]+).*;\s*extra\s*==\s*['"]([\w-]+)['"]""")


class _Commands(CommandsWithExamples):
    """No traceback for what a user can cause."""

    examples = EXAMPLES

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except WSDescError as error:
            print("error:", " ".join(str(error).split()), file=sys.stderr)
            sys.exit(2)
        except (MemoryError, RuntimeError) as error:
            if not _lacks_memory(error):
                raise
            print("error: this needs more memory than there is; what is finished is kept", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            sys.exit(130)


class _Command(CommandWithExamples):
    examples = EXAMPLES


app = typer.Typer(
    cls=_Commands,
    help="Align 3D scans, and learn to do it from unlabelled scans.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


app.command(cls=_Command)(cli_register.register)
app.command(cls=_Command)(cli_register.describe)
app.command(cls=_Command)(cli_register.match)
app.command(cls=_Command)(cli_reconstruct.reconstruct)
app.command(cls=_Command)(cli_view.view)
app.command(cls=_Command)(cli_learn.train)
app.command(cls=_Command)(cli_learn.pairs)
app.command(cls=_Command)(cli_ablate.ablate)
app.add_typer(cli_benchmark.app, name="benchmark")
app.command(cls=_Command)(cli_learn.distill)


def main() -> None:
    signal.signal(signal.SIGTERM, _end)
    app(prog_name="wsdesc")


def _end(number: int, frame: Any) -> None:
    """Leave in order, so that temporary files go and workers end; whoever asks twice is not kept waiting."""
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)


def _lacks_memory(error: Exception) -> bool:
    """Torch says it as a RuntimeError, on either kind of device."""
    text = str(error)
    return isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text


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
        print_table(title, rows())


@app.command(cls=_Command)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for picture, clouds and pose.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Another seed is another room.")] = 0,
) -> None:
    """Register two partial scans of a synthetic room; some ten seconds. Exits with 1 if the pose is wrong."""
    with progress() as watch:
        from wsdesc.view import demo as steps

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

    from wsdesc.core.devices import default_backend

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
    from wsdesc.core.kernels import cache_folder
    from wsdesc.descriptor import pretrained

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
    result = report.result
    rows = [
        ("points", f"{report.points[0]} source, {report.points[1]} target, overlap {report.overlap:.0%}"),
        ("start", f"source displaced by {_error(report.moved)}"),
        ("matches", f"{result.inliers} of {result.matches} agree with the pose found"),
        ("confidence", f"{result.confidence:.3f}"),
        ("truth", f"off by {_error(report.error)}"),
    ]
    print_table(f"wsdesc demo, seed {seed}", rows)
    seconds = [*result.timings.items(), ("together", sum(result.timings.values()))]
    print_table("seconds", [(name, f"{value:6.2f}") for name, value in seconds])
    verdict = "registered" if report.right else "NOT registered"
    degrees, metres = report.error
    print(f"{verdict}: rotation error {degrees:.2f}°, translation error {100 * metres:.1f} cm")
    print("written:", ", ".join(str(out / name) for name in files))


def _error(error: tuple[float, float]) -> str:
    degrees, metres = error
    return f"{degrees:.2f}° and {100 * metres:.1f} cm"
