"""Measure the time of `wsdesc.register` on the GPU and the CPU, step by step, and how far their results
agree.

    python -m benchmarks.register_time A.ply B.ply [C.ply D.ply …] [--device cuda] [--repeats 5] [--copies 10]
    python -m benchmarks.register_time A.ply B.ply [C.ply D.ply …] [--device cuda] --many 200 [--jobs 8]

Files come in pairs, source and target; without any, synthetic rooms are registered. Each pair is registered
once to warm up, then `--repeats` times, then once with the GPU synchronised after every step. `--copies`
makes each scan denser by that factor, with noise.

Prints the median time of each step and of the whole call per device, whether repeated results are identical,
and the differences between both devices. With `--many`, the pairs are registered again and again by
`register_many` instead, and their number per second is printed: with the start of the processes, and without
it, from the time when each process has finished two pairs on average.

The exit code is 1 if poses differ by more than the promised limits, or if repeated results differ.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.common import (
    add_model_option,
    files_in_pairs,
    make_parser,
    print_machine,
    print_rows,
    run_command,
    show_progress,
)
from benchmarks.precision import CUDA_DEGREES, CUDA_MILLIMETRES
from wsdesc import Registration, read_points, register, register_many
from wsdesc.alignment.confidence import Evidence
from wsdesc.core.devices import choose_device
from wsdesc.core.progress import Advance
from wsdesc.datasets.synthetic import room_pair
from wsdesc.evaluation import rotation_error_deg

Clouds = tuple[np.ndarray, np.ndarray]  # source (N, 3) and target (M, 3)
SHARES = Evidence._fields[:9]  # figures in 0 … 1


def synchronise() -> None:
    """Wait for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def synchronised_step(name: str, total: int) -> Iterator[Advance]:
    """Progress hook that counts the GPU work of a step as its time."""
    yield lambda items: None
    synchronise()


class Timed(NamedTuple):
    """Repeated registrations of a pair on one device."""

    result: Registration  # with the times of its steps
    seconds: list[float]  # of each repetition
    identical: bool  # all poses and confidences are equal bit by bit


def time_pair(clouds: Clouds, device: str, repeats: int, model: str) -> Timed:
    """Register a pair repeatedly."""
    options: dict[str, Any] = {"device": device, "model": model}
    results, seconds = [register(*clouds, **options)], []
    for _ in range(repeats):
        synchronise()
        start = time.perf_counter()
        results.append(register(*clouds, **options))
        seconds.append(time.perf_counter() - start)
    results.append(register(*clouds, progress=synchronised_step, **options))
    distinct = {(r.T_target_source.tobytes(), r.confidence) for r in results}
    return Timed(results[-1], seconds, len(distinct) == 1)


def difference(a: Registration, b: Registration, centre: np.ndarray) -> dict[str, float]:
    """Compare two results; poses at `centre` (3,) of the source, scaled to a resolution of 2.5 cm."""
    D = a.T_target_source - b.T_target_source
    evidence = 0.0
    if a.evidence is not None and b.evidence is not None:
        evidence = max(abs(getattr(a.evidence, n) - getattr(b.evidence, n)) for n in SHARES)
    return {
        "pose, °": float(rotation_error_deg(a.T_target_source, b.T_target_source)),
        "pose, mm": 1000 * float(np.linalg.norm(D[:3, :3] @ centre + D[:3, 3])) * 0.025 / a.resolution,
        "confidence": abs(a.confidence - b.confidence),
        "evidence": evidence,
        "resolution, ‰": 1000 * abs(a.resolution / b.resolution - 1),
        "both succeed": float(min(a.success, b.success)),
    }


def make_denser(points: np.ndarray, copies: int, seed: int) -> np.ndarray:
    """Repeat the points with the noise of a depth camera."""
    rng = np.random.default_rng(seed)
    noisy = (points + rng.normal(0, 0.004, points.shape) for _ in range(copies - 1))
    return np.concatenate([points, *noisy])


def read_clouds(arguments: argparse.Namespace) -> list[Clouds]:
    """Read the pairs, or make synthetic ones."""
    pairs = [
        (read_points(source, nonfinite="drop"), read_points(target, nonfinite="drop"))
        for source, target in files_in_pairs(arguments.scans)
    ]
    if not pairs:
        rooms = [room_pair(seed) for seed in range(arguments.rooms)]
        pairs = [(np.asarray(room.source, float), np.asarray(room.target, float)) for room in rooms]
    copies = arguments.copies
    return [(make_denser(p, copies, 0), make_denser(q, copies, 1)) for p, q in pairs]


def time_many(pairs: list[Clouds], arguments: argparse.Namespace) -> bool:
    """Register many pairs in several processes; print pairs per second."""
    work = [pairs[k % len(pairs)] for k in range(arguments.many)]
    finished: list[float] = []

    @contextmanager
    def note_times(name: str, total: int) -> Iterator[Advance]:
        yield lambda items: finished.extend([time.perf_counter()] * items)

    start = time.perf_counter()
    options: dict[str, Any] = {"device": choose_device(arguments.device), "model": arguments.model}
    results = register_many(work, jobs=arguments.jobs, progress=note_times, **options)
    print_machine()
    good = [result for result in results if isinstance(result, Registration)]
    print(f"{len(work)} pairs, {sum(r.success for r in good)} succeed, {len(work) - len(good)} errors")
    print(f"with the start of the processes: {len(work) / (finished[-1] - start):.1f} pairs/s")
    warm = 2 * (arguments.jobs or 8)
    if len(work) > 2 * warm:
        rate = (len(work) - warm) / (finished[-1] - finished[warm - 1])
        print(f"after the first {warm}: {rate:.1f} pairs/s")
    later = [result.timings for result in good[warm:]]
    steps = {name: _ms([t[name] for t in later if name in t]) for name in good[-1].timings}
    print("median ms beside other pairs:", ", ".join(f"{name} {ms}" for name, ms in steps.items()))
    return len(good) == len(work)


def main(arguments: argparse.Namespace) -> bool:
    if arguments.many:
        return time_many(read_clouds(arguments), arguments)
    devices = list(dict.fromkeys(["cpu", choose_device(arguments.device)]))
    pairs = read_clouds(arguments)
    totals: dict[str, list[float]] = {device: [] for device in devices}
    steps: dict[str, dict[str, list[float]]] = {device: {} for device in devices}
    differences, sizes, varying = [], [], []
    for clouds in show_progress(pairs, "pairs"):
        results = []
        for device in devices:
            repeats = 1 if device == "cpu" else arguments.repeats
            result, seconds, identical = time_pair(clouds, device, repeats, arguments.model)
            totals[device].append(statistics.median(seconds))
            for step, step_seconds in result.timings.items():
                steps[device].setdefault(step, []).append(step_seconds)
            results.append(result)
            varying += [device] * (not identical)
        sizes += [len(cloud) for cloud in clouds]
        differences.append(difference(results[0], results[-1], clouds[0].mean(0)))
    print_machine()
    print(f"{len(pairs)} pairs, {min(sizes)} … {max(sizes)} points per scan")
    table = [["median ms", *devices]]
    names = list(dict.fromkeys(name for device in devices for name in steps[device]))
    table += [[name, *(_ms(steps[device].get(name, [])) for device in devices)] for name in names]
    print_rows([*table, ["all", *(_ms(totals[device]) for device in devices)]])
    print(f"ms of each pair, {devices[-1]}:", " ".join(f"{1e3 * s:.0f}" for s in totals[devices[-1]]))
    for device in devices:
        print(f"{device}: repeated results differ for {varying.count(device)} of {len(pairs)} pairs")
    if len(devices) == 1:
        return not varying
    print("difference between devices: median and largest; poses only where both results are successes")
    for name in differences[0]:
        values = [d[name] for d in differences if d["both succeed"] or not name.startswith("pose")]
        print(f"  {name:<14}{np.median(values or [0]):12.3g}{max(values, default=0):12.3g}")
    within = [
        d["pose, °"] <= CUDA_DEGREES and d["pose, mm"] <= CUDA_MILLIMETRES
        for d in differences
        if d["both succeed"]
    ]
    print(f"within {CUDA_DEGREES}° and {CUDA_MILLIMETRES} mm: {sum(within)} of {len(within)}")
    return not varying and all(within)


def _ms(seconds: list[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.1f}" if seconds else "–"


def parser() -> argparse.ArgumentParser:
    parser = make_parser("register_time", __doc__)
    parser.add_argument("scans", type=Path, nargs="*", help="source, target, source, target, …")
    parser.add_argument(
        "--device", default="auto", help="second device, beside the CPU (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="timed calls per pair (default: %(default)s)")
    parser.add_argument(
        "--copies", type=int, default=1, help="factor of the point count (default: %(default)s)"
    )
    parser.add_argument("--many", type=int, default=0, help="register so many pairs by `register_many`")
    parser.add_argument("--jobs", type=int, help="processes of `--many` (default: as `register_many`)")
    parser.add_argument("--rooms", type=int, default=4, help="synthetic pairs, if no scans are given")
    add_model_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
