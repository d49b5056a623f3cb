"""The commands around learning: `wsdesc train`, `wsdesc distill` and `wsdesc pairs`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from wsdesc.learning.run import Progress

Scans = Annotated[
    list[Path] | None, typer.Argument(help="Folders of scans, time-ordered by name; none: synthetic rooms.")
]
PairMode = Annotated[
    str, typer.Option("--pairs", help="How overlapping scans are found: order, overlap, both.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]
Steps = Annotated[int | None, typer.Option(min=1, help="How many steps.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Of all random choices.")]
Synthetic = Annotated[float | None, typer.Option(min=0, max=1, help="Share of steps on synthetic rooms.")]
Minutes = Annotated[float | None, typer.Option(min=0, help="Stop after so long; --resume goes on.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where a run in this folder stopped.")]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Keep curves of the log for TensorBoard.")]
Window = Annotated[int, typer.Option(min=1, help="Scans up to this far apart in order may be pairs.")]


def train(
    scans: Scans = None,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/wsdesc"),
    preset: Annotated[str, typer.Option(help="indoor, objects, or small for a laptop's minutes.")] = "indoor",
    config: Annotated[Path | None, typer.Option(help="YAML file of options, instead of a preset.")] = None,
    start: Annotated[str | None, typer.Option(help="Weights to begin with, a file or a name.")] = None,
    steps: Steps = None,
    seed: Seed = None,
    synthetic: Synthetic = None,
    device: Device = "auto",
    minutes: Minutes = None,
    resume: Resume = False,
    tensorboard: TensorBoard = False,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Learn from poses beside the scans instead, to compare with.")
    ] = False,
    self_training: Annotated[
        bool, typer.Option("--self-training", help="Learn from matches that the weights of --start find.")
    ] = False,
    oracle_loss: Annotated[str, typer.Option(help="Of the oracle: batch-hard or infonce.")] = "batch-hard",
) -> None:
    """Learn a descriptor from unlabelled scans that overlap. Stops and goes on at any time."""
    from wsdesc.learning import options as presets

    given: dict[str, Any] = {
        "steps": steps,
        "seed": seed,
        "start": start,
        "descriptor": None if start is None else _descriptor_of(start),
        "oracle": oracle_loss if oracle else None,
        "self_training": "infonce" if self_training else None,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if config:
        options = presets.TrainOptions.load(config, **changes)
    else:
        options = presets.TrainOptions.read({**presets.preset(preset).model_dump(), **changes})
    if synthetic is not None:
        data_options = {**options.data.model_dump(), "synthetic": synthetic}
        options = presets.TrainOptions.read({**options.model_dump(), "data": data_options})
    _check_board(tensorboard)

    from wsdesc.core.devices import choose_device
    from wsdesc.learning.data import gather
    from wsdesc.learning.oracle import held_out_motions, posed_source
    from wsdesc.learning.run import Source
    from wsdesc.learning.run import train as run
    from wsdesc.learning.self_training import found_source
    from wsdesc.learning.validate import validate

    with bars_and_watch() as (bars, watch):
        data = gather(list(scans or []), options, say=say, progress=watch)
        source: Source = data.source
        if options.oracle:
            source = posed_source(data, options)
        elif options.self_training:
            source = found_source(data, options, choose_device(device))
        if data.graph is not None:
            out.mkdir(parents=True, exist_ok=True)
            data.graph.save(out / "pairs.json")
        known = held_out_motions(data)
        held_out = [(p, q, T_q_p) for (p, q), T_q_p in zip(data.held_out, known, strict=True)]

        def look(trainer: Any) -> dict[str, float]:
            report = validate(trainer.model, held_out, keypoints=options.keypoints, loss=trainer.loss)
            figures = report.rigidity._asdict() | (report.truth._asdict() if report.truth else {})
            return {f"held_out_{name}": value for name, value in figures.items() if name != "pairs"}

        weights = run(
            options,
            source,
            out,
            device=choose_device(device),
            resume=resume,
            stop_after=60 * minutes if minutes is not None else float("inf"),
            validate=look if held_out else None,
            watch=show_steps(bars, options.steps),
            tensorboard=tensorboard,
        )
    _say_end("train", weights, out)


def distill(
    teacher: Annotated[str, typer.Argument(help="Weights to imitate, a file or a name.")],
    scans: Annotated[
        list[Path] | None, typer.Argument(help="Folders of scans; none: synthetic rooms.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/fast"),
    width: Annotated[float, typer.Option(min=0.03, max=4, help="Factor on the network's channels.")] = 0.25,
    steps: Steps = None,
    seed: Seed = None,
    synthetic: Synthetic = None,
    device: Device = "auto",
    minutes: Minutes = None,
    resume: Resume = False,
    tensorboard: TensorBoard = False,
) -> None:
    """Teach a narrow, fast network the descriptors of a trained one, on any scans. Needs no pairs."""
    _check_board(tensorboard)
    from wsdesc.core.devices import choose_device
    from wsdesc.descriptor.model import WSDesc
    from wsdesc.learning.data import gather_clouds
    from wsdesc.learning.distill import distill as run
    from wsdesc.learning.distill import student_options, student_source

    model = WSDesc.from_pretrained(teacher)
    changes: dict[str, Any] = {"steps": steps, "seed": seed, "distill": {"teacher": teacher}}
    if synthetic is not None:
        changes["data"] = {"synthetic": synthetic}
    given = {name: value for name, value in changes.items() if value is not None}
    options = student_options(model, width, **given)
    with bars_and_watch() as (bars, watch):
        clouds = gather_clouds(scans, options, say=say, progress=watch) if scans else []
        source, held_out = student_source(clouds, options)
        weights = run(
            model,
            source,
            options,
            out,
            held_out=held_out,
            device=choose_device(device),
            resume=resume,
            stop_after=60 * minutes if minutes is not None else float("inf"),
            watch=show_steps(bars, options.steps),
            tensorboard=tensorboard,
        )
    _say_end("distill", weights, out)


def pairs(
    scans: Annotated[list[Path], typer.Argument(help="Folders of scans, time-ordered by name.")],
    mode: PairMode = "both",
    window: Window = 4,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Keep the graph of pairs in this file.")
    ] = None,
) -> None:
    """Which scans overlap, and by how much: the pairs a training would learn from. Reads no poses."""
    from wsdesc.learning.data import gather
    from wsdesc.learning.options import TrainOptions

    options = TrainOptions.read({"data": {"pairs": mode, "window": window}})
    with bars_and_watch() as (_, watch):
        data = gather(scans, options, say=say, progress=watch)
    if data.graph is not None and out is not None:
        data.graph.save(out)
        print(f"written: {out}")


def say(line: str) -> None:
    """Tell a person, at once."""
    print(line, flush=True)


def _say_end(command: str, weights: Path | None, out: Path) -> None:
    again = f"stopped; go on with: wsdesc {command} … --out {out} --resume"
    say(f"weights: {weights}" if weights else again)


def _check_board(wanted: bool) -> None:
    if wanted:
        from wsdesc.learning.tensorboard import check_installed

        check_installed()


def _descriptor_of(weights: str) -> dict[str, Any]:
    from wsdesc.descriptor import pretrained

    return pretrained.load(pretrained.find(weights))[0].model_dump()


@contextmanager
def bars_and_watch() -> Iterator[tuple[Any, Any]]:
    """Progress bars on a terminal, and what the steps before training are watched with."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:

        @contextmanager
        def watch(name: str, total: int) -> Iterator[Any]:
            task = bars.add_task(name, total=total)
            yield lambda done: bars.advance(task, done)
            bars.remove_task(task)

        yield bars, watch


def show_steps(bars: Any, steps: int) -> Any:
    """A bar with loss, support, skipped steps and speed; lines now and then where there is no terminal."""
    task = bars.add_task("train", total=steps)

    def show(now: Progress) -> None:
        text = (
            f"loss {now.report.loss:.4f} ({now.terms[0]} {now.report.orthogonality:.4f}"
            f", {now.terms[1]} {now.report.cycle:.4f})"
            f"  support {now.report.support:.3f}  skipped {now.skipped}"
            f"  {now.pairs_per_second:.1f} pairs/s, waiting {now.waiting:.0%}"
        )
        bars.update(task, completed=now.step, description=text)
        if bars.disable and (now.step % 50 == 0 or now.step == now.steps):
            print(f"step {now.step} of {now.steps}: {text}", file=sys.stderr, flush=True)

    return show
