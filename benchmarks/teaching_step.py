"""Time a step of teaching and of distillation, and each of its parts.

    python -m benchmarks.teaching_step SCANS --device cuda
    python -m benchmarks.teaching_step SCANS --device cuda --profile        # and every kernel

SCANS is a folder of scans in metres, at least two. The figures do not depend on matches, so that random
points count as matches. The first table times whole steps as `wsdesc adapt` makes them, with pairs that
threads prepare; the second one the parts of a step, each with a synchronization around it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.common import make_parser, print_machine, print_rows, print_table, run_command
from wsdesc.adaptation.trainer import AdaptTrainer, UnmatchedPair
from wsdesc.cloud.files import read_points
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.core.rng import generator_of
from wsdesc.descriptor.model import WSDesc
from wsdesc.evaluation.stopwatch import median_ms
from wsdesc.learning.distillation import student_options
from wsdesc.learning.distiller import Distiller
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.prefetch import Prefetcher
from wsdesc.learning.trainer import PreparedPair, Trainer

_RESOLUTION = 0.025  # metres
_WARM_UP = 8  # steps


class RandomMatches:
    """Successive scans; random points of both count as matches, except in every tenth pair."""

    def __init__(self, clouds: Sequence[Tensor], matched: bool = True) -> None:
        self.clouds, self.matched = clouds, matched

    def pair(self, index: int) -> tuple[Tensor, ...]:
        """Return points (N, 3) and (M, 3), and matches (K, 2)."""
        p, q = (self.clouds[(index + k) % len(self.clouds)] for k in (0, 1))
        if not self.matched:
            return p, q
        count = 0 if index % 10 == 9 else 4000
        columns = [torch.randint(len(c), (count,), generator=generator_of(index, len(c))) for c in (p, q)]
        return p, q, torch.stack(columns, 1)

    def close(self) -> None:
        """Do nothing: no worker processes exist."""


def teaching_options(model: WSDesc, keypoints: int, compiled: bool) -> TrainOptions:
    """Return the options of teaching these weights, as `wsdesc adapt` has them."""
    return TrainOptions.read(
        {
            "descriptor": model.options.model_dump(),
            "start": "indoor",
            "self_training": "infonce",
            "keypoints": keypoints,
            "learning_rate": 1e-6,
            "compile": compiled,
        }
    )


def time_steps(trainer: Trainer, source: RandomMatches, steps: int) -> tuple[float, float]:
    """Return milliseconds per step, and the share of them spent waiting for pairs."""
    prefetcher = Prefetcher(source, trainer)  # type: ignore[arg-type]
    try:
        for step in range(_WARM_UP + len(source.clouds)):  # grids and frames of all scans
            trainer.step(prefetcher.take(step))
        begin, waited = time.perf_counter(), prefetcher.waited
        for step in range(100, 100 + steps):
            trainer.step(prefetcher.take(step))
        seconds = time.perf_counter() - begin
    finally:
        prefetcher.close()
    return 1000 * seconds / steps, (prefetcher.waited - waited) / seconds


def time_parts(trainer: AdaptTrainer, source: RandomMatches) -> list[tuple[str, str]]:
    """Time the parts of a teaching step, each alone."""
    model = trainer.model

    def prepare(index: int) -> PreparedPair:
        p, q, matches = source.pair(index)
        return trainer.prepare(p, q, matches, generator_of(index))

    pair, unmatched = prepare(0), prepare(9)
    assert isinstance(unmatched, UnmatchedPair)
    voxels = torch.cat([model.voxels(pair.p), model.voxels(pair.q)])
    fixed = voxels.detach()
    descriptors = trainer._compute_descriptors(fixed).detach().float()

    def network(inputs: Tensor) -> None:
        trainer._compute_descriptors(inputs).float().sum().backward()

    def without_gradient(inputs: Tensor) -> None:
        with torch.no_grad():
            trainer._compute_descriptors(inputs)

    def loss(rigid: bool) -> None:
        p, q = descriptors.clone().requires_grad_().chunk(2)
        if rigid:
            trainer.loss(unmatched.p.keypoints, p, unmatched.q.keypoints, q).loss.backward()
        else:
            trainer.match_loss(p, q, pair.p.keypoints).backward()

    def update() -> None:
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        trainer._update(True)

    parts: dict[str, Callable[[], object]] = {
        "prepare a pair": lambda: prepare(0),
        "voxels": lambda: model.voxels(pair.p),
        "voxels, gradient of the support": lambda: model.voxels(pair.p).sum().backward(),
        "network, forward": lambda: without_gradient(fixed),
        "network, forward and backward, constant voxels": lambda: network(fixed),
        "network, forward and backward": lambda: network(fixed.clone().requires_grad_()),
        "InfoNCE, one direction": lambda: loss(False),
        "rigidity loss": lambda: loss(True),
        "clip and update": update,
        "step, matches": lambda: trainer.step([pair]),
        "step, rigidity": lambda: trainer.step([unmatched]),
    }
    return [(name, f"{median_ms(part, 10):.2f} ms") for name, part in parts.items()]


def time_convolutions(model: WSDesc, count: int) -> list[list[str]]:
    """Time each convolution in bf16: forward, and gradients of its weights and of its input."""
    rows = [["convolution", "forward", "weights", "input"]]
    x = torch.rand(count, 1, *[model.options.resolution] * 3, device="cuda", dtype=torch.bfloat16)
    for layer in model.network.convolutions:
        x = x.contiguous(memory_format=torch.channels_last_3d)
        weight = layer.weight.detach().bfloat16().contiguous(memory_format=torch.channels_last_3d)
        stride, padding = layer.stride, layer.padding
        y = torch.nn.functional.conv3d(x, weight, None, stride, padding)
        g = torch.randn_like(y)

        def back(mask: list[bool], x: Tensor = x, w: Tensor = weight, g: Tensor = g, s=stride, p=padding):  # type: ignore[no-untyped-def]
            torch.ops.aten.convolution_backward(g, x, w, None, s, p, (1, 1, 1), False, (0, 0, 0), 1, mask)

        def forward(x: Tensor = x, w: Tensor = weight, s=stride, p=padding):  # type: ignore[no-untyped-def]
            torch.nn.functional.conv3d(x, w, None, s, p)

        times = (forward, lambda: back([False, True, False]), lambda: back([True, False, False]))
        name = f"{x.shape[1]} → {y.shape[1]}, {y.shape[2]}³"
        rows.append([name, *(f"{median_ms(part, 5):.2f}" for part in times)])
        x = y
    return rows


def main(arguments: argparse.Namespace) -> None:
    device = choose_device(arguments.device)
    files = sorted(arguments.scans.glob("*.ply"))[: arguments.count]
    if len(files) < 2:
        raise InputError(f"{arguments.scans}: at least two .ply files are needed")
    points = [torch.from_numpy(read_points(file)).float() for file in files]
    clouds = [voxel_downsample(cloud - cloud.mean(0), _RESOLUTION) for cloud in points]
    print_machine()
    rows = [["step", "ms", "waiting"]]
    trainers: dict[str, AdaptTrainer] = {}
    for name, weights, compiled in (
        ("teach the full network", "indoor", False),
        ("teach the fast network", "indoor-fast", False),
        ("teach the full network, compiled", "indoor", True),
    ):
        if compiled and not arguments.compile:
            continue
        model = WSDesc.from_pretrained(weights)
        trainer = AdaptTrainer(teaching_options(model, arguments.keypoints, compiled), device)
        trainer.load_start(model)
        figures = time_steps(trainer, RandomMatches(clouds), arguments.steps)
        rows.append([name, f"{figures[0]:.1f}", f"{figures[1]:.0%}"])
        print(rows[-1], flush=True)
        trainers[name] = trainer
    full, fast = WSDesc.from_pretrained("indoor"), WSDesc.from_pretrained("indoor-fast")
    options = student_options(
        full, descriptor=fast.options.model_dump(), keypoints=arguments.keypoints // 2, compile=False
    )
    figures = time_steps(Distiller(full, options, device), RandomMatches(clouds, False), arguments.steps)
    rows.append(["distil", f"{figures[0]:.1f}", f"{figures[1]:.0%}"])
    print_rows(rows)
    for name, trainer in trainers.items():
        print(name)
        print_table(time_parts(trainer, RandomMatches(clouds)))
    if device.startswith("cuda"):
        for benchmark in (False, True):
            torch.backends.cudnn.benchmark = benchmark
            print(f"convolutions in ms, cuDNN benchmark {benchmark}")
            print_rows(time_convolutions(full.cuda(), 2 * arguments.keypoints))
        torch.backends.cudnn.benchmark = False
    if arguments.profile:
        profile(trainers["teach the full network"], RandomMatches(clouds))


def profile(trainer: AdaptTrainer, source: RandomMatches) -> None:
    """Print the kernels of a step."""
    p, q, matches = source.pair(0)
    pair: PreparedPair = trainer.prepare(p, q, matches, generator_of(0))
    with torch.profiler.profile() as record:
        trainer.step([pair])
    key = "self_cuda_time_total" if trainer.device.type == "cuda" else "self_cpu_time_total"
    print(record.key_averages().table(sort_by=key, row_limit=30, max_name_column_width=70))


def parser() -> argparse.ArgumentParser:
    parser = make_parser("teaching_step", __doc__)
    parser.add_argument("scans", type=Path, help="folder of scans")
    parser.add_argument("--count", type=int, default=20, help="scans (default: %(default)s)")
    parser.add_argument("--keypoints", type=int, default=512, help="of a scan (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=100, help="timed steps (default: %(default)s)")
    parser.add_argument("--compile", action="store_true", help="also time compiled networks")
    parser.add_argument("--profile", action="store_true", help="print the kernels of a step")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
