"""The experiments as commands: `wsdesc benchmark 3dmatch`, `modelnet40`, `eth`, `pairs`, `timing`, `page`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from wsdesc.cli.benchmark_options import (
    find_methods,
    judge_and_print,
    open_executor,
    print_report,
    progress_bar,
    read_counts,
    shown_command,
)
from wsdesc.cli.output import CommandsWithExamples, CommandWithExamples

EXAMPLES = """\
Examples:
  wsdesc benchmark 3dmatch 3DMatch/ --model indoor --out results/     indoor fragments, the paper's Table 1
  wsdesc benchmark 3dmatch 3DMatch/ --model indoor --rotated          each fragment moved at random: Table 2
  wsdesc benchmark 3dmatch 3DMatch/ --model indoor --keypoints 5000,1000,250
  wsdesc benchmark 3dmatch 3DMatch/ --register indoor-fast --peer kiss-matcher    whole pipelines
  wsdesc benchmark modelnet40 modelnet40_ply_hdf5_2048/ --model objects --limit 100
  wsdesc benchmark eth ETH/ --model indoor                            outdoor laser scans
  wsdesc benchmark pairs scans/ --model indoor                        scans of your own, in any unit
  wsdesc benchmark timing 3DMatch/ --model indoor                     times, and how they grow
  wsdesc benchmark page results/ -o docs/benchmarks.md                all results on one page

"""


class _Benchmarks(CommandsWithExamples):
    examples = EXAMPLES


class _Benchmark(CommandWithExamples):
    examples = EXAMPLES


app = typer.Typer(
    cls=_Benchmarks,
    help="Measure models and peers as the paper does. A run that was stopped goes on when started again.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Root = Annotated[Path, typer.Argument(help="Folder of the data set.")]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", help="Weights by file or name, or untrained; NAME=FILE names them. Repeatable."),
]
Pipelines = Annotated[
    list[str] | None,
    typer.Option("--register", help="Weights, of which all that wsdesc register does is judged. Repeatable."),
]
Peers = Annotated[list[str] | None, typer.Option("--peer", help="What to compare with. Repeatable.")]
Out = Annotated[Path, typer.Option(help="Folder of results; each benchmark has its own below.")]
Device = Annotated[str, typer.Option(help="Of the models: cpu, cuda, or auto.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all random choices.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Throw away results that are there.")]
Keypoints = Annotated[str, typer.Option(help="How many of a fragment; several: 5000,2500,1000,500,250.")]
Rotated = Annotated[bool, typer.Option("--rotated", help="Turn every fragment at random, and shift it.")]
LowOverlap = Annotated[bool, typer.Option("--low-overlap", help="The pairs of the -evaluation-lo folders.")]
Solver = Annotated[str, typer.Option(help="What makes a pose of matches: ransac or consensus.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes that share the work.")]
Scheduler = Annotated[
    str | None, typer.Option(help="Dask scheduler that spreads the work, as tcp://host:8786.")
]
Voxel = Annotated[float, typer.Option(min=0, help="Cells that clouds are thinned by, in units; 0: not.")]


def _pairwise(runner: str, default_unit: float | None, text: str) -> Callable[..., None]:
    """A command on pairs of fragments, judged by `runner`."""

    def command(
        root: Root,
        model: Models = None,
        register: Pipelines = None,
        peer: Peers = None,
        out: Out = Path("results"),
        unit: Annotated[
            float | None, typer.Option(min=0, help="What counts as a metre in the files; none: found.")
        ] = default_unit,
        keypoints: Keypoints = "5000",
        rotated: Rotated = False,
        low_overlap: LowOverlap = False,
        solver: Solver = "ransac",
        voxel: Voxel = 0.025,
        seed: Seed = 0,
        device: Device = "auto",
        jobs: Jobs = 1,
        scheduler: Scheduler = None,
        fresh: Fresh = False,
    ) -> None:
        from wsdesc.evaluation import threedmatch
        from wsdesc.evaluation.pairwise import PairwiseOptions

        options = PairwiseOptions.read(
            {
                "keypoints": read_counts(keypoints),
                "rotated": rotated,
                "low_overlap": low_overlap,
                "unit": unit,
                "solver": solver,
                "voxel": voxel,
                "seed": seed,
            }
        )
        methods = find_methods(model, register, peer, device)
        with open_executor(jobs, scheduler) as executor:
            judge_and_print(
                getattr(threedmatch, runner), root, options, methods, out, fresh, executor=executor
            )

    command.__doc__ = text
    return command


threedmatch = app.command("3dmatch", cls=_Benchmark)(
    _pairwise(
        "run_threedmatch",
        1.0,
        "Indoor fragments in the layout of 3DMatch, in metres: IR, FMR, RR by R1 and by R2.",
    )
)
pairs = app.command("pairs", cls=_Benchmark)(
    _pairwise(
        "run_pairs",
        None,
        "Any scans in that layout, SCENE/cloud_bin_0.ply … and SCENE-evaluation/gt.log, in any unit.",
    )
)


@app.command(cls=_Benchmark)
def eth(
    root: Root,
    model: Models = None,
    register: Pipelines = None,
    peer: Peers = None,
    out: Out = Path("results"),
    keypoints: Keypoints = "5000",
    solver: Solver = "ransac",
    voxel: Voxel = 0.02,
    seed: Seed = 0,
    device: Device = "auto",
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    fresh: Fresh = False,
) -> None:
    """Outdoor laser scans, SCENE/Hokuyo_0.ply or .csv … with gt.log, or poses and overlaps: FMR."""
    from wsdesc.evaluation.eth import run_eth
    from wsdesc.evaluation.pairwise import PairwiseOptions

    options = PairwiseOptions.read(
        {"keypoints": read_counts(keypoints), "solver": solver, "voxel": voxel, "seed": seed}
    )
    methods = find_methods(model, register, peer, device)
    with open_executor(jobs, scheduler) as executor:
        judge_and_print(run_eth, root, options, methods, out, fresh, executor=executor)


@app.command(cls=_Benchmark)
def modelnet40(
    root: Root,
    model: Models = None,
    register: Pipelines = None,
    peer: Peers = None,
    out: Out = Path("results"),
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="prnet-clean, prnet-noisy, rpm-45, rpm-180; repeatable; all if not given."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="So many shapes, drawn at random.")] = None,
    unit: Annotated[float, typer.Option(min=0, help="What the model calls a metre, in the shapes.")] = 1.0,
    seed: Seed = 0,
    device: Device = "auto",
    fresh: Fresh = False,
) -> None:
    """Partial views of shapes: rotation and translation errors by the protocols of PRNet and RPM-Net."""
    from wsdesc.evaluation.modelnet40 import ShapeOptions, run_modelnet40

    given: dict[str, Any] = {"protocols": tuple(protocol)} if protocol else {}
    options = ShapeOptions.read({"limit": limit, "unit": unit, "seed": seed, **given})
    judge_and_print(run_modelnet40, root, options, find_methods(model, register, peer, device), out, fresh)


@app.command(cls=_Benchmark)
def timing(
    root: Root,
    model: Models = None,
    register: Pipelines = None,
    peer: Peers = None,
    out: Out = Path("results"),
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of fragments to time.")] = 5,
    keypoints: Annotated[int, typer.Option(min=1, help="Of a fragment.")] = 1000,
    repeats: Annotated[int, typer.Option(min=1, help="Of which the median counts.")] = 3,
    sizes: Annotated[str, typer.Option(help="Points of clouds.")] = "10000,30000,100000,300000,1000000",
    counts: Annotated[str, typer.Option(help="Numbers of keypoints.")] = "100,200,500,1000,2000,5000",
    unit: Annotated[float, typer.Option(min=0, help="What counts as a metre in the files.")] = 1.0,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="Of the models: cpu, cuda, or all there are.")] = "all",
) -> None:
    """Times of descriptors and of pairs, on CPU and GPU, and how they grow with points and keypoints."""
    from wsdesc.evaluation.timing import TimingOptions, run_timing

    options = TimingOptions.read(
        {
            "pairs": pairs,
            "keypoints": keypoints,
            "repeats": repeats,
            "sizes": read_counts(sizes),
            "counts": read_counts(counts),
            "unit": unit,
            "seed": seed,
        }
    )
    from wsdesc.core.devices import choose_device

    every = ("cpu", "auto") if device == "all" else (device,)
    devices = list(dict.fromkeys(map(choose_device, every)))
    methods = find_methods(model, register, peer, "cpu")
    with progress_bar() as progress:
        report = run_timing(
            root, methods, options, out, devices=devices, command=shown_command(), progress=progress
        )
    print_report(report, out)


@app.command(cls=_Benchmark)
def page(
    results: Annotated[Path, typer.Argument(help="Folder of results.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("docs/benchmarks.md"),
) -> None:
    """One page of all results: the command above each table, machine, date, n, and what to keep in mind."""
    from wsdesc.evaluation.page import make_page

    reports = make_page(results, out)
    print(f"{len(reports)} benchmarks: {', '.join(report.name for report in reports)}")
    print(f"written: {out}")
