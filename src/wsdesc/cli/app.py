"""The command `wsdesc`: all its commands, and the handling of errors and signals.

Commands import heavy libraries when they run, so that help and errors appear at once.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from wsdesc import __version__
from wsdesc.cli.ablate import ablate
from wsdesc.cli.adapt import adapt
from wsdesc.cli.add import add
from wsdesc.cli.benchmark import app as benchmark
from wsdesc.cli.demo import demo
from wsdesc.cli.describe import describe
from wsdesc.cli.distill import distill
from wsdesc.cli.find import find
from wsdesc.cli.info import info
from wsdesc.cli.locate import locate
from wsdesc.cli.map import build_map
from wsdesc.cli.match import match
from wsdesc.cli.merge import merge
from wsdesc.cli.output import BAD_INPUT, CommandsWithExamples, CommandWithExamples, usage_error_line
from wsdesc.cli.pairs import pairs
from wsdesc.cli.reconstruct import reconstruct
from wsdesc.cli.register import register
from wsdesc.cli.remove import remove
from wsdesc.cli.train import train
from wsdesc.cli.view import view
from wsdesc.core.errors import WSDescError

EXAMPLES = """\
Examples:
  wsdesc register a.ply b.las                 pose of a in the frame of b, with its confidence
  wsdesc register a.ply b.ply -o T.json --aligned a_in_b.ply --picture both.png
  wsdesc register a.ply b.ply --view          also show the result in a browser
  wsdesc register a.ply b.ply --up z          gravity is known: no tilted poses
  wsdesc register a.ply b.ply --initial T.txt --search-radius 0.5 --max-angle 10
  wsdesc find object.ply scene.ply            all instances of an object in a scene
  wsdesc find cad.stl scene.pcd --instances 1 -o found.json --aligned placed.ply
  wsdesc describe a.ply -o a.npz --resolution 0.025   describe a scan once, to register it often
  wsdesc match a.npz b.npz                    register two described scans
  wsdesc reconstruct scans/ -o model          poses of many scans in one frame, and the merged cloud
  wsdesc reconstruct scans/ -o model --view   also show all scans and edges in a browser
  wsdesc add model/ new.ply                   add scans to a model
  wsdesc add model/ today/ --fixed            the same, with the poses of old scans fixed
  wsdesc remove model/ scan_07.ply            remove scans from a model
  wsdesc merge model_a/ model_b/ -o model     merge two models
  wsdesc map scans/ -o site.map               map of scans in one frame, to locate others in it
  wsdesc map cloud.laz -o site.map            map of one large cloud
  wsdesc locate scan.ply site.map -o T.json   pose of a scan in a map
  wsdesc view scan.ply                        show a scan in a browser; also *.ply, or a folder
  wsdesc view T.json                          show the result of wsdesc register -o T.json
  wsdesc view a.ply b.ply T.json --matches    show two scans, a pose, and matches
  wsdesc view model --save page.html          write the page of a reconstruction to a file
  wsdesc demo                                 register two scans of a synthetic room
  wsdesc demo --seed 7 --out d7               another room, another folder
  wsdesc adapt scans/ -o mine                 adapt the descriptor to unlabelled scans of your own
  wsdesc adapt scans/ -o mine --minutes 10    the same with less time
  wsdesc train scans/ --out run               train a descriptor on unlabelled, overlapping scans
  wsdesc train --out run --resume             continue an interrupted training
  wsdesc distill indoor scans/ --out fast     train a small network to imitate a large one
  wsdesc pairs scans/                         list overlapping scans; needs no poses
  wsdesc ablate scans/ --test 3DMatch/ --synthetic 0.7   ablation table of the paper
  wsdesc benchmark 3dmatch 3DMatch/ --model indoor   tables of the paper; see wsdesc benchmark --help
  wsdesc info                                 versions, devices, weights

"""


class _Commands(CommandsWithExamples):
    """Print an error that bad input causes as one line, without a traceback."""

    examples = EXAMPLES

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _one_line_usage_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _one_line_usage_errors():
                return super().invoke(ctx)
        except WSDescError as error:
            print("error:", " ".join(str(error).split()), file=sys.stderr)
            sys.exit(BAD_INPUT)
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            print("error: out of memory; results finished so far are kept", file=sys.stderr)
            sys.exit(BAD_INPUT)
        except OSError as error:  # files raise errors of their own: this is standard output
            if error.errno not in (errno.ENOSPC, errno.EIO):
                raise
            print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
            sys.stdout = None  # nothing is left to flush at the exit
            sys.exit(BAD_INPUT)
        except KeyboardInterrupt:
            sys.exit(130)


@contextmanager
def _one_line_usage_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if (line := usage_error_line(error)) is None:
            raise
        print("error:", line, file=sys.stderr)
        sys.exit(BAD_INPUT)


class _Command(CommandWithExamples):
    examples = EXAMPLES


app = typer.Typer(
    cls=_Commands,
    help="Align 3D scans, and train the descriptor behind it on unlabelled scans.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for command in (
    register,
    find,
    describe,
    match,
    reconstruct,
    add,
    remove,
    merge,
    build_map,
    locate,
    view,
    demo,
    adapt,
    train,
    distill,
    pairs,
    ablate,
    info,
):
    app.command(
        "map" if command is build_map else None,
        cls=_Command,
        no_args_is_help=command in (train, ablate),  # else a training of hours on synthetic rooms starts
    )(command)
app.add_typer(benchmark, name="benchmark")


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, _exit_on_signal)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it: >&-
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    atexit.register(gc.freeze)  # else Python searches all objects of torch for garbage, which takes 0.4 s
    app(prog_name="wsdesc")


def _exit_on_signal(number: int, frame: Any) -> None:
    """Exit by an exception, so that temporary files are removed; a second signal ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)


def _is_out_of_memory(error: Exception) -> bool:
    """Recognize the RuntimeErrors of torch, too."""
    text = str(error)
    return isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text


def _print_version(requested: bool) -> None:
    if requested:
        print(f"wsdesc {__version__}")
        raise typer.Exit


@app.callback()
def _common_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Version of wsdesc.")
    ] = False,
) -> None:
    pass
