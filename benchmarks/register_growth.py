"""Measure how time and memory of `wsdesc.register` grow with points and keypoints, beside peers, and draw it.

    python -m benchmarks.register_growth [--device cuda] [--most 10000000] [--peer NAME …] [-o record.json]
    python -m benchmarks.register_growth --draw growth.png record.json [other.json …]

Registers scans of a synthetic room. For points, its points are repeated with 1 mm of noise up to each number,
and the options are the default ones. For keypoints, the scans stay as they are, and one round describes that
many keypoints. Peers receive the working resolution and have no keypoints. The scans are in memory: nothing
is read from disk. Each figure is the median of `--repeats` calls after one that warms up, in a process of its
own, whose peak memory includes the scans and the libraries.

Prints and saves, for each number: milliseconds of the whole call and of each step, peak memory of the process
and of the GPU, and the confidence. With `--draw`, records of several machines become curves of one picture.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.big import make_dense
from benchmarks.common import make_parser, print_machine, print_rows, run_command, show_progress
from wsdesc import Registration, peers, register
from wsdesc.cloud.units import INDOOR_RESOLUTION, working_resolution
from wsdesc.core.devices import choose_device
from wsdesc.datasets.synthetic import room_pair
from wsdesc.evaluation.provenance import machine

POINTS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)  # per scan
KEYPOINTS = (150, 300, 600, 1200, 2400, 4800)  # per scan


OWN = "WSDesc"


def measure(tool: str, count: int | None, device: str, repeats: int, keypoints: int | None) -> dict[str, Any]:
    """Register the pair repeatedly by a tool: medians of the times, and peak memory."""
    pair = room_pair(0)
    clouds = [np.asarray(cloud, np.float32) for cloud in (pair.source, pair.target)]
    if count is not None:
        clouds = [make_dense(cloud, count, seed) for seed, cloud in enumerate(clouds)]
    run = _own(clouds, device, keypoints) if tool == OWN else _peer(tool, clouds)
    run()
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds, results = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        results.append(run())
        seconds.append(time.perf_counter() - start)
    row: dict[str, Any] = {"ms": 1e3 * statistics.median(seconds)}
    row["gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row["gpu_mib"] = torch.cuda.max_memory_allocated() / 2**20 if on_gpu else None
    own = [result for result in results if result is not None]
    if own:
        row["steps"] = {k: 1e3 * statistics.median(r.timings[k] for r in own) for k in own[0].timings}
        row["confidence"] = own[0].confidence
    return row


def _own(clouds: list[np.ndarray], device: str, keypoints: int | None) -> Callable[[], Registration | None]:
    options = {} if keypoints is None else {"keypoints": keypoints}
    return lambda: register(*clouds, device=device, **options)


def _peer(name: str, clouds: list[np.ndarray]) -> Callable[[], Registration | None]:
    estimate = peers.pose(name)
    unit = working_resolution(*clouds) / INDOOR_RESOLUTION
    tensors = [torch.from_numpy(cloud.astype(np.float64)) for cloud in clouds]

    def run() -> None:
        estimate(*tensors, unit)

    return run


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure all numbers of points and keypoints."""
    device = choose_device(arguments.device)
    record: dict[str, Any] = {"device": device, "machine": machine(), "points": {}, "keypoints": {}}
    record["peers"] = {name: {} for name in arguments.peer}
    counts = [count for count in POINTS if count <= arguments.most]
    rest = device, arguments.repeats
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as process:
        for count in show_progress(counts, "points"):
            record["points"][str(count)] = process.submit(measure, OWN, count, *rest, None).result()
            for name, rows in record["peers"].items():
                rows[str(count)] = process.submit(measure, name, count, *rest, None).result()
        for count in show_progress(KEYPOINTS, "keypoints"):
            record["keypoints"][str(count)] = process.submit(measure, OWN, None, *rest, count).result()
    return record


def print_record(record: dict[str, Any]) -> None:
    print_machine()
    curves = {"points": record["points"], "keypoints": record["keypoints"]}
    for kind, curve in (curves | record["peers"]).items():
        rows = [[kind, "ms", "GiB", "GPU MiB", "confidence", "steps, ms"]]
        for count, row in curve.items():
            steps = ", ".join(f"{name} {ms:.1f}" for name, ms in row.get("steps", {}).items())
            memory = f"{row['gpu_mib']:.0f}" if row["gpu_mib"] is not None else "–"
            confidence = f"{row['confidence']:.3f}" if "confidence" in row else "–"
            rows.append([count, f"{row['ms']:.1f}", f"{row['gib']:.2f}", memory, confidence, steps])
        print_rows(rows)


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """Draw time and memory over points, and time over keypoints, one curve per tool and record."""
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.6))
    colours: dict[str, str] = {}
    for record in records:
        own = f"{OWN}, {record['device']}"
        curves = [(own, record["points"]), *record.get("peers", {}).items()]
        for tool, rows in curves:
            style = {"color": colours.setdefault(tool, f"C{len(colours)}"), "marker": "o", "markersize": 4}
            counts = [int(count) for count in rows]
            panels[0].loglog(counts, [row["ms"] for row in rows.values()], label=tool, **style)
            if all("gib" in row for row in rows.values()):
                panels[1].semilogx(counts, [row["gib"] for row in rows.values()], label=tool, **style)
        keypoints = [int(count) for count in record["keypoints"]]
        times = [row["ms"] for row in record["keypoints"].values()]
        panels[2].loglog(keypoints, times, "o-", markersize=4, label=own, color=colours[own])
    panels[1].set_ylim(bottom=0)
    panels[2].set_xticks(KEYPOINTS, map(str, KEYPOINTS))
    panels[2].tick_params(axis="x", which="minor", labelbottom=False)
    titles = (
        ("points per scan", "ms"),
        ("points per scan", "peak memory, GiB"),
        ("keypoints per scan", "ms"),
    )
    for axes, (along, up) in zip(panels, titles, strict=True):
        axes.set_xlabel(along)
        axes.set_ylabel(up)
        axes.grid(visible=True, which="both", alpha=0.3)
        axes.legend(fontsize=8)
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
    parser.add_argument("--peer", action="append", default=[], help="peer, such as kiss-matcher")
    parser.add_argument("--repeats", type=int, default=3, help="calls per number (default: %(default)s)")
    parser.add_argument("-o", "--output", type=Path, help="file of the record")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
