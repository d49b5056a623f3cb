"""Measure how time and memory of `wsdesc.register` grow with points and keypoints, and draw it.

    python -m benchmarks.register_growth [--device cuda] [--most 10000000] [-o record.json]
    python -m benchmarks.register_growth --draw growth.png record.json [other.json …]

Registers scans of a synthetic room. For points, its points are repeated with 1 mm of noise up to each number,
and the options are the default ones. For keypoints, the scans stay as they are, and one round describes that
many keypoints. The scans are in memory: nothing is read from disk. Each figure is the median of `--repeats`
calls after one that warms up.

Prints and saves, for each number: milliseconds of the whole call and of each step, peak GPU memory (none on
the CPU), and the confidence. With `--draw`, records of several machines become curves of one picture.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.big import make_dense
from benchmarks.common import make_parser, print_machine, print_rows, run_command, show_progress
from wsdesc import register
from wsdesc.core.devices import choose_device
from wsdesc.datasets.synthetic import room_pair
from wsdesc.evaluation.provenance import machine

POINTS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)  # per scan
KEYPOINTS = (150, 300, 600, 1200, 2400, 4800)  # per scan


def measure(
    clouds: tuple[np.ndarray, np.ndarray], device: str, repeats: int, **options: Any
) -> dict[str, Any]:
    """Register a pair repeatedly: medians of the times, and the peak memory of the GPU."""
    register(*clouds, device=device, **options)
    seconds, results = [], []
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(repeats):
        start = time.perf_counter()
        results.append(register(*clouds, device=device, **options))
        seconds.append(time.perf_counter() - start)
    steps = {name: 1e3 * statistics.median(r.timings[name] for r in results) for name in results[0].timings}
    return {
        "ms": 1e3 * statistics.median(seconds),
        "steps": steps,
        "gpu_mib": torch.cuda.max_memory_allocated() / 2**20 if on_gpu else None,
        "confidence": results[0].confidence,
    }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure all numbers of points and keypoints."""
    device, pair = choose_device(arguments.device), room_pair(0)
    record: dict[str, Any] = {"device": device, "machine": machine(), "points": {}, "keypoints": {}}
    scans = np.asarray(pair.source, np.float32), np.asarray(pair.target, np.float32)
    counts = [count for count in POINTS if count <= arguments.most]
    for count in show_progress(counts, "points"):
        dense = make_dense(scans[0], count, 0), make_dense(scans[1], count, 1)
        record["points"][str(count)] = measure(dense, device, arguments.repeats)
    for count in show_progress(KEYPOINTS, "keypoints"):
        record["keypoints"][str(count)] = measure(scans, device, arguments.repeats, keypoints=count)
    return record


def print_record(record: dict[str, Any]) -> None:
    print_machine()
    for kind in ("points", "keypoints"):
        rows = [[kind, "ms", "GPU MiB", "confidence", "steps, ms"]]
        for count, row in record[kind].items():
            steps = ", ".join(f"{name} {ms:.1f}" for name, ms in row["steps"].items())
            memory = f"{row['gpu_mib']:.0f}" if row["gpu_mib"] is not None else "–"
            rows.append([count, f"{row['ms']:.1f}", memory, f"{row['confidence']:.3f}", steps])
        print_rows(rows)


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """Draw time over points and keypoints, one curve per record."""
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axes, kind in zip(panels, ("points", "keypoints"), strict=True):
        for record in records:
            counts = [int(count) for count in record[kind]]
            axes.loglog(counts, [row["ms"] for row in record[kind].values()], "o-", label=record["device"])
        axes.set_xlabel(f"{kind} per scan")
        axes.grid(visible=True, which="both", alpha=0.3)
    panels[0].set_ylabel("register, ms")
    panels[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main(arguments: argparse.Namespace) -> None:
    if arguments.draw:
        draw([json.loads(path.read_text()) for path in arguments.records], arguments.draw)
        return
    record = run(arguments)
    print_record(record)
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1))


def parser() -> argparse.ArgumentParser:
    parser = make_parser("register_growth", __doc__)
    parser.add_argument("records", type=Path, nargs="*", help="records to draw")
    parser.add_argument("--draw", type=Path, help="picture to draw from the records")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto (default: %(default)s)")
    parser.add_argument("--most", type=int, default=POINTS[-1], help="largest number of points")
    parser.add_argument("--repeats", type=int, default=3, help="calls per number (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, help="file of the record")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
