"""How long `wsdesc.register` takes on a GPU and on the CPU beside it, step by step, and how far both agree.

    python -m benchmarks.register_time A.npy B.npy [C.npy D.npy …] [--device cuda] [--repeats 5] [--copies 10]

Scans come in pairs, source and target, as ply or npy; without any, synthetic rooms are registered. Each pair
is registered once to warm up, then `--repeats` times as a user would, then once with the device waited for
at the end of every step. `--copies` makes each scan so many times denser first, with some noise. Exits with 1
where the poses differ by more than what is promised, or a device does not give the same bits each time.
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

from benchmarks.common import or_explain, print_machine, print_rows, watched
from benchmarks.precision import CUDA_DEGREES, CUDA_MILLIMETRES
from wsdesc import Registration, read_points, register
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.core.progress import Advance
from wsdesc.datasets.synthetic import room_pair
from wsdesc.evaluation import rotation_error_deg

Pair = tuple[np.ndarray, np.ndarray]  # (N, 3) and (M, 3)


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def waiting(name: str, total: int) -> Iterator[Advance]:
    """A step's time is all that it began."""
    yield lambda done: None
    wait()


class Timed(NamedTuple):
    """A pair on a device."""

    result: Registration  # with its steps' own times
    seconds: list[float]  # of each repetition
    same: bool  # all had the same pose and confidence, to the bit


def timed(pair: Pair, device: str, repeats: int, o: argparse.Namespace) -> Timed:
    """Register a pair again and again."""
    options: dict[str, Any] = {"device": device, "model": o.model}
    results, seconds = [register(*pair, **options)], []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        results.append(register(*pair, **options))
        seconds.append(time.perf_counter() - start)
    results.append(register(*pair, progress=waiting, **options))
    answers = {(r.T_target_source.tobytes(), r.confidence) for r in results}
    return Timed(results[-1], seconds, len(answers) == 1)


def difference(a: Registration, b: Registration, middle: np.ndarray) -> dict[str, float]:
    """Of two results for the same scans; the pose's at `middle` (3,) of the source, at 2.5 cm resolution."""
    D = a.T_target_source - b.T_target_source
    known = a.evidence is not None and b.evidence is not None
    shares = ("overlap", "informative", "normals", "uncrossed", "clear", "relief", "details", "tight")
    return {
        "pose, °": float(rotation_error_deg(*(torch.from_numpy(r.T_target_source) for r in (a, b)))),
        "pose, mm": 1000 * float(np.linalg.norm(D[:3, :3] @ middle + D[:3, 3])) * 0.025 / a.resolution,
        "confidence": abs(a.confidence - b.confidence),
        "evidence": max(abs(getattr(a.evidence, n) - getattr(b.evidence, n)) for n in shares)
        if known
        else 0.0,
        "resolution, ‰": 1000 * abs(a.resolution / b.resolution - 1),
        "sure": float(min(a.success, b.success)),
    }


def denser(points: np.ndarray, copies: int, seed: int) -> np.ndarray:
    """So many times the points, each copy with the noise of a depth camera."""
    g = np.random.default_rng(seed)
    return np.concatenate([points, *(points + g.normal(0, 0.004, points.shape) for _ in range(copies - 1))])


def pairs_of(o: argparse.Namespace) -> list[Pair]:
    if len(o.scans) % 2:
        raise InputError("scans come in pairs, source and target; there is an odd number of them")
    pairs = [(read_points(a, nonfinite="drop"), read_points(b, nonfinite="drop"))
             for a, b in zip(o.scans[::2], o.scans[1::2], strict=True)]  # fmt: skip
    if not pairs:
        rooms = [room_pair(seed) for seed in range(o.rooms)]
        pairs = [(np.asarray(room.source, float), np.asarray(room.target, float)) for room in rooms]
    return [(denser(p, o.copies, 0), denser(q, o.copies, 1)) for p, q in pairs]


def main(o: argparse.Namespace) -> None:
    devices = list(dict.fromkeys(["cpu", choose_device(o.device)]))
    pairs = pairs_of(o)
    totals: dict[str, list[float]] = {device: [] for device in devices}
    steps: dict[str, dict[str, list[float]]] = {device: {} for device in devices}
    differences, sizes, changing = [], [], []
    for pair in watched(pairs, "pairs"):
        results = []
        for device in devices:
            result, seconds, same = timed(pair, device, 1 if device == "cpu" else o.repeats, o)
            totals[device].append(statistics.median(seconds))
            for step, took in result.timings.items():
                steps[device].setdefault(step, []).append(took)
            results.append(result)
            changing += [device] * (not same)
        sizes += [len(scan) for scan in pair]
        differences.append(difference(results[0], results[-1], pair[0].mean(0)))
    print_machine()
    thinned = [len(scan.points) for scan in results[0].described or ()]
    print(
        f"{len(pairs)} pairs, {min(sizes)} … {max(sizes)} points a scan, {thinned} of the last one's thinned"
    )
    table = [["median ms", *devices]]
    names = list(dict.fromkeys(name for device in devices for name in steps[device]))
    table += [[name, *(_ms(steps[device].get(name, [])) for device in devices)] for name in names]
    print_rows([*table, ["all", *(_ms(totals[device]) for device in devices)]])
    print("ms of each pair, " + devices[-1] + ":", " ".join(f"{1e3 * s:.0f}" for s in totals[devices[-1]]))
    for device in devices:
        others = changing.count(device)
        print(f"{device}: the same bits each time" + (f", but for {others} of the pairs" if others else ""))
    if len(devices) == 1:
        sys.exit(bool(changing))
    print("difference of both: median, largest; of the poses where both are called a success")
    for name in differences[0]:
        values = [d[name] for d in differences if d["sure"] or not name.startswith("pose")]
        print(f"  {name:<14}{np.median(values or [0]):12.3g}{max(values, default=0):12.3g}")
    good = [
        d["pose, °"] <= CUDA_DEGREES and d["pose, mm"] <= CUDA_MILLIMETRES for d in differences if d["sure"]
    ]
    print(f"within {CUDA_DEGREES}° and {CUDA_MILLIMETRES} mm: {sum(good)} of {len(good)} believed on both")
    if changing or not all(good):
        sys.exit(1)


def _ms(seconds: list[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.1f}" if seconds else "–"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("scans", type=Path, nargs="*", help="source, target, source, target, …")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--copies", type=int, default=1, help="times so many points")
    parser.add_argument("--rooms", type=int, default=4, help="synthetic ones, where no scans are given")
    parser.add_argument("--model", default="indoor-fast")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(or_explain(lambda: main(parse())))
