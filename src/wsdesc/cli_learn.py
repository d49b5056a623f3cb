"""The commands around learning: `wsdesc train` and `wsdesc pairs`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from wsdesc.learn.run import Progress

Scans = Annotated[
    list[Path] | None, typer.Argument(help="Folders of scans, time-ordered by name; none: synthetic rooms.")
]
PairMode = Annotated[
    str, typer.Option("--pairs", help="How overlapping scans are found: order, overlap, both.")
]
Window = Annotated[int, typer.Option(min=1, help="Scans up to this far apart in order may be pairs.")]


def train(
    scans: Scans = None,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/wsdesc"),
    preset: Annotated[str, typer.Option(help="indoor, objects, or small for a laptop's minutes.")] = "indoor",
    config: Annotated[Path | None, typer.Option(help="YAML file of options, instead of a preset.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="How many steps.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of all random choices.")] = None,
    synthetic: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of steps on synthetic rooms.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after so long; --resume goes on.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a run in this folder stopped.")
    ] = False,
) -> None:
    """Learn a descriptor from unlabelled scans that overlap. Stops and goes on at any time."""
    from wsdesc.learn import options as presets

    base = presets.TrainOptions.load(config) if config else presets.preset(preset)
    changes: dict[str, Any] = {"steps": steps, "seed": seed}
    values = {**base.model_dump(), **{name: value for name, value in changes.items() if value is not None}}
    if synthetic is not None:
        values["data"]["synthetic"] = synthetic
    options = presets.TrainOptions.read(values)

    from wsdesc.learn.data import gather
    from wsdesc.learn.run import train as run
    from wsdesc.learn.validate import validate

    with _bars() as (bars, watch):
        data = gather(list(scans or []), options, say=_say, watch=watch)
        if data.graph is not None:
            out.mkdir(parents=True, exist_ok=True)
            data.graph.save(out / "pairs.json")

        def look(trainer: Any) -> dict[str, float]:
            report = validate(
                trainer.model, [(p, q, None) for p, q in data.held_out], keypoints=options.keypoints
            )
            return {f"held_out_{name}": value for name, value in report.rigidity._asdict().items()}

        weights = run(
            options,
            data.source,
            out,
            device=_device(device),
            resume=resume,
            stop_after=60 * minutes if minutes is not None else float("inf"),
            validate=look if data.held_out else None,
            watch=_show(bars, options.steps),
        )
    print(f"weights: {weights}" if weights else f"stopped; go on with: wsdesc train … --out {out} --resume")


def pairs(
    scans: Annotated[list[Path], typer.Argument(help="Folders of scans, time-ordered by name.")],
    mode: PairMode = "both",
    window: Window = 4,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Keep the graph of pairs in this file.")
    ] = None,
) -> None:
    """Which scans overlap, and by how much: the pairs a training would learn from. Reads no poses."""
    from wsdesc.learn.data import gather
    from wsdesc.learn.options import TrainOptions

    options = TrainOptions.read({"data": {"pairs": mode, "window": window}})
    with _bars() as (_, watch):
        data = gather(scans, options, say=_say, watch=watch)
    if data.graph is not None and out is not None:
        data.graph.save(out)
        print(f"written: {out}")


def _say(line: str) -> None:
    print(line, flush=True)


def _device(name: str) -> str:
    import torch

    from wsdesc.errors import InputError

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("there is no CUDA device here: choose --device cpu")
    return name


@contextmanager
def _bars() -> Iterator[tuple[Any, Any]]:
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


def _show(bars: Any, steps: int) -> Any:
    """A bar with loss, support, skipped steps and speed; lines now and then where there is no terminal."""
    task = bars.add_task("train", total=steps)

    def show(now: Progress) -> None:
        text = (
            f"loss {now.report.loss:.4f} (o {now.report.orthogonality:.4f}, c {now.report.cycle:.4f})"
            f"  support {now.report.support:.3f}  skipped {now.skipped}"
            f"  {now.pairs_per_second:.1f} pairs/s, waiting {now.waiting:.0%}"
        )
        bars.update(task, completed=now.step, description=text)
        if bars.disable and (now.step % 50 == 0 or now.step == now.steps):
            print(f"step {now.step} of {now.steps}: {text}", file=sys.stderr, flush=True)

    return show
