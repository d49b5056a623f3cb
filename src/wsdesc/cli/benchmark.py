"""`wsdesc benchmark`: evaluate models and peers with the protocols of the paper."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from wsdesc.cli.benchmark_options import (
    MethodArguments,
    check_arguments,
    evaluate_and_print,
    find_methods,
    open_executor,
)
from wsdesc.cli.options import Jobs, Scheduler, field_option, join_counts, read_counts
from wsdesc.cli.output import CommandsWithExamples, CommandWithExamples
from wsdesc.evaluation.options import EthOptions, PairwiseOptions, ShapeOptions, TimingOptions

EXAMPLES = """\
Examples:
  wsdesc benchmark 3dmatch 3DMatch/ --model indoor --out results/     indoor scans, Table 1 of the paper
  wsdesc benchmark 3dmatch 3DMatch/ --model indoor --rotated          scans rotated at random, Table 2
  wsdesc benchmark 3dmatch 3DMatch/ --model indoor --keypoints 5000,1000,250
  wsdesc benchmark 3dmatch 3DMatch/ --register indoor-fast --peer kiss-matcher    full pipelines
  wsdesc benchmark 3dmatch 3DMatch/ --model indoor --peer spinnet --peer-weights peers/   learned peers
  wsdesc benchmark modelnet40 modelnet40_ply_hdf5_2048/ --model objects --limit 100
  wsdesc benchmark eth ETH/ --model indoor                            outdoor laser scans
  wsdesc benchmark pairs scans/ --register indoor-fast                your own scans, in any format and unit
  wsdesc benchmark timing 3DMatch/ --model indoor                     times, and how they grow

"""


class _Benchmarks(CommandsWithExamples):
    examples = EXAMPLES


class _Benchmark(CommandWithExamples):
    examples = EXAMPLES


app = typer.Typer(
    cls=_Benchmarks,
    help="Evaluate models and peers with the protocols of the paper. An interrupted run continues when it is "
    "started again. Results are tables in OUT/NAME/results.md, .json and .csv.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_PAIRWISE, _ETH, _SHAPES, _TIMING = PairwiseOptions(), EthOptions(), ShapeOptions(), TimingOptions()
_KEYPOINTS = join_counts(_PAIRWISE.keypoints)
_SIZES, _COUNTS = join_counts(_TIMING.sizes), join_counts(_TIMING.counts)

Root = Annotated[Path, typer.Argument(help="Folder of the data set.")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="Weights (file, run folder or name) whose descriptors are evaluated, or untrained; NAME=FILE "
        "renames them. Repeatable.",
    ),
]
Pipelines = Annotated[
    list[str] | None,
    typer.Option("--register", help="Weights whose full `register` pipeline is evaluated. Repeatable."),
]
Peers = Annotated[
    list[str] | None, typer.Option("--peer", help="Peer to compare with, for example fpfh. Repeatable.")
]
PeerWeights = Annotated[
    Path | None,
    typer.Option("--peer-weights", metavar="DIR", help="Folder of the weights of learned peers."),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of results; each benchmark has a subfolder.")]
Device = Annotated[str, typer.Option(help="Device of the models and learned peers: cpu, cuda or auto.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Existing results are discarded.")]
Seed = Annotated[int, field_option(PairwiseOptions, "seed")]
Keypoints = Annotated[str, field_option(PairwiseOptions, "keypoints", metavar="N,…")]
Rotated = Annotated[bool, field_option(PairwiseOptions, "rotated", "--rotated")]
LowOverlap = Annotated[bool, field_option(PairwiseOptions, "low_overlap", "--low-overlap")]
Solver = Annotated[str, field_option(PairwiseOptions, "solver")]
Voxel = Annotated[float, field_option(PairwiseOptions, "voxel")]
Unit = Annotated[float | None, field_option(PairwiseOptions, "unit")]


def _run_pairwise(
    run: Callable[..., Any],
    root: Path,
    options: PairwiseOptions,
    methods: MethodArguments,
    out: Path,
    fresh: bool,
    jobs: int,
    scheduler: str | None,
) -> None:
    with open_executor(jobs, scheduler, methods.device) as executor:
        evaluate_and_print(run, root, options, find_methods(methods), out, fresh=fresh, executor=executor)


def _pairwise_command(module: str, runner: str, default_unit: float | None, text: str) -> Callable[..., None]:
    """Make the function of a command on pairs of scans; the runner is imported when it is called."""

    def command(
        root: Root,
        model: Models = None,
        register: Pipelines = None,
        peer: Peers = None,
        peer_weights: PeerWeights = None,
        out: Out = Path("results"),
        unit: Unit = default_unit,
        keypoints: Keypoints = _KEYPOINTS,
        rotated: Rotated = _PAIRWISE.rotated,
        low_overlap: LowOverlap = _PAIRWISE.low_overlap,
        solver: Solver = _PAIRWISE.solver,
        voxel: Voxel = _PAIRWISE.voxel,
        seed: Seed = _PAIRWISE.seed,
        device: Device = "auto",
        jobs: Jobs = 1,
        scheduler: Scheduler = None,
        fresh: Fresh = False,
    ) -> None:
        check_arguments(root, model, register, device)
        options = PairwiseOptions.read(
            {
                "keypoints": read_counts(keypoints, "--keypoints"),
                "rotated": rotated,
                "low_overlap": low_overlap,
                "unit": unit,
                "solver": solver,
                "voxel": voxel,
                "seed": seed,
            }
        )
        run = getattr(import_module(f"wsdesc.evaluation.{module}"), runner)
        methods = MethodArguments(model, register, peer, device, peer_weights)
        _run_pairwise(run, root, options, methods, out, fresh, jobs, scheduler)

    command.__doc__ = text
    return command


threedmatch = app.command("3dmatch", cls=_Benchmark)(
    _pairwise_command(
        "threedmatch",
        "run_threedmatch",
        _PAIRWISE.unit,
        "Evaluate on indoor scans in the layout of 3DMatch. Figures: IR, FMR, RR by R1 and by R2.",
    )
)
pairs = app.command("pairs", cls=_Benchmark)(
    _pairwise_command(
        "own_pairs",
        "run_pairs",
        None,
        """Evaluate on pairs of your own scans. They may have any readable format and unit.

        ROOT is a folder of scans or a folder of such folders. Each needs the true poses of pairs, in it or in
        FOLDER-evaluation beside it: gt.log with numbers, or pairs.txt with file names ("TARGET SOURCE", then
        the four rows of T_target_source). The number of a scan is the last number in its name if the names
        differ only in that, otherwise its position in natural order, starting at 0.
        """,
    )
)


@app.command("eth", cls=_Benchmark)
def eth(
    root: Root,
    model: Models = None,
    register: Pipelines = None,
    peer: Peers = None,
    peer_weights: PeerWeights = None,
    out: Out = Path("results"),
    keypoints: Keypoints = _KEYPOINTS,
    solver: Solver = _ETH.solver,
    voxel: Voxel = _ETH.voxel,
    seed: Seed = _ETH.seed,
    device: Device = "auto",
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    fresh: Fresh = False,
) -> None:
    """Evaluate on outdoor laser scans: FMR.

    A scene has files SCENE/Hokuyo_0.ply or .csv, and gt.log or tables of poses and overlaps.
    """
    check_arguments(root, model, register, device)
    options = EthOptions.read(
        {"keypoints": read_counts(keypoints, "--keypoints"), "solver": solver, "voxel": voxel, "seed": seed}
    )
    from wsdesc.evaluation.eth import run_eth

    methods = MethodArguments(model, register, peer, device, peer_weights)
    _run_pairwise(run_eth, root, options, methods, out, fresh, jobs, scheduler)


@app.command("modelnet40", cls=_Benchmark)
def modelnet40(
    root: Root,
    model: Models = None,
    register: Pipelines = None,
    peer: Peers = None,
    peer_weights: PeerWeights = None,
    out: Out = Path("results"),
    protocol: Annotated[list[str] | None, field_option(ShapeOptions, "protocols", "--protocol")] = None,
    limit: Annotated[int | None, field_option(ShapeOptions, "limit")] = _SHAPES.limit,
    unit: Annotated[float, field_option(ShapeOptions, "unit")] = _SHAPES.unit,
    seed: Seed = _SHAPES.seed,
    device: Device = "auto",
    fresh: Fresh = False,
) -> None:
    """Evaluate on partial views of shapes. Figures: pose errors by the protocols of PRNet and RPM-Net."""
    check_arguments(root, model, register, device)
    given: dict[str, Any] = {"protocols": tuple(protocol)} if protocol else {}
    options = ShapeOptions.read({"limit": limit, "unit": unit, "seed": seed, **given})
    from wsdesc.evaluation.modelnet40 import run_modelnet40

    methods = find_methods(MethodArguments(model, register, peer, device, peer_weights))
    evaluate_and_print(run_modelnet40, root, options, methods, out, fresh=fresh)


@app.command("timing", cls=_Benchmark)
def timing(
    root: Root,
    model: Models = None,
    register: Pipelines = None,
    peer: Peers = None,
    peer_weights: PeerWeights = None,
    out: Out = Path("results"),
    pairs: Annotated[int, field_option(TimingOptions, "pairs")] = _TIMING.pairs,
    keypoints: Annotated[int, field_option(TimingOptions, "keypoints")] = _TIMING.keypoints,
    repeats: Annotated[int, field_option(TimingOptions, "repeats")] = _TIMING.repeats,
    sizes: Annotated[str, field_option(TimingOptions, "sizes")] = _SIZES,
    counts: Annotated[str, field_option(TimingOptions, "counts")] = _COUNTS,
    unit: Annotated[float, field_option(TimingOptions, "unit")] = _TIMING.unit,
    seed: Seed = _TIMING.seed,
    device: Annotated[str, typer.Option(help="Device of the models: cpu, cuda or all.")] = "all",
) -> None:
    """Measure times of descriptors and pairs. Tables show how they grow with points and keypoints."""
    check_arguments(root, model, register, "auto" if device == "all" else device)
    options = TimingOptions.read(
        {
            "pairs": pairs,
            "keypoints": keypoints,
            "repeats": repeats,
            "sizes": read_counts(sizes, "--sizes"),
            "counts": read_counts(counts, "--counts"),
            "unit": unit,
            "seed": seed,
        }
    )
    from wsdesc.core.devices import choose_device
    from wsdesc.evaluation.timing import run_timing

    names = ("cpu", "auto") if device == "all" else (device,)
    devices = list(dict.fromkeys(map(choose_device, names)))
    methods = find_methods(MethodArguments(model, register, peer, "cpu", peer_weights))
    evaluate_and_print(run_timing, root, options, methods, out, devices=devices)
