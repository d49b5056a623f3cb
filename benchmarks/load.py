"""Measure what repeated and concurrent calls leave behind, and whether results stay identical.

    python -m benchmarks.load [--calls 1000] [--threads 8]

Registers small scans of a synthetic room repeatedly in one process and measures its memory and open files;
then from several threads at once. Two processes describe the same scans into one folder, and two runs of
`reconstruct` share one folder. Prints a line for each. The exit code is 1 if memory grows by 2 % or more
after the first tenth of the calls, a file stays open, a result differs, or a file is damaged.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import make_parser, print_machine, print_table, run_command, show_progress
from wsdesc import reconstruct, register
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import room_scans
from wsdesc.descriptor.describe import describe
from wsdesc.descriptor.description import Description

SMALL: dict[str, Any] = {"keypoints": (60,), "hypotheses": 2, "refined": 1}
_MAX_GROWTH = 0.02  # of the memory after the first tenth of the calls
_ENTRIES = 6  # files that two processes write at once


def small_scans(count: int) -> list[np.ndarray]:
    """Make scans (N, 3) of a synthetic room with one or two thousand points each."""
    return [scan.points.astype(np.float64) for scan in room_scans(3, count, resolution=0.1)]


def own_memory() -> int:
    """Return the bytes of this process, without pages of libraries, which depend on the system's cache."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return sum(1024 * int(line[1]) for line in lines if line[0] in ("RssAnon:", "VmSwap:"))


def open_files() -> int:
    """Count the open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def repeat_calls(scans: list[np.ndarray], calls: int) -> tuple[float, int]:
    """Measure the growth of memory after the first tenth of the calls (share), and of open files."""
    memory, files = [], []
    for _ in show_progress(range(calls), "calls"):
        register(scans[0], scans[1], **SMALL)
        memory.append(own_memory())
        files.append(open_files())
    tenth = max(1, calls // 10)
    return max(memory[tenth:]) / max(memory[:tenth]) - 1, files[-1] - files[0]


def call_from_threads(scans: list[np.ndarray], threads: int) -> int:
    """Count calls, two per thread, whose result differs from that of a single call."""
    pairs = [(scans[k % 2], scans[1 + k % 2]) for k in range(2 * threads)]
    single = [register(*pair, **SMALL) for pair in pairs[:2]]
    with ThreadPoolExecutor(threads) as pool:
        threaded = list(pool.map(lambda pair: register(*pair, **SMALL), pairs))
    return sum(_figures(result) != _figures(single[k % 2]) for k, result in enumerate(threaded))


def _figures(result: Any) -> tuple[Any, ...]:
    return (result.T_target_source.tolist(), result.confidence, result.overlap, result.rmse, result.inliers)


def write_from_processes(folder: Path) -> int:
    """Let two processes write the same descriptions repeatedly; count unreadable files."""
    scans = small_scans(_ENTRIES)
    for number, scan in enumerate(scans):
        np.save(folder / f"{number}.npy", scan)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        return sum(pool.map(_describe_all, [str(folder)] * 2))


def _describe_all(folder: str) -> int:
    """Describe all scans repeatedly; count files that cannot be read after writing."""
    unreadable = 0
    for _ in range(5):
        for number in range(_ENTRIES):
            entry = Path(folder) / f"{number}.npz"
            describe(Path(folder) / f"{number}.npy", keypoints=20, resolution=0.1).save(entry)
            try:
                Description.load(entry)
            except Exception:  # a damaged file may raise anything
                unreadable += 1
    return unreadable


def reconstruct_together(folder: Path, scans: list[np.ndarray]) -> tuple[int, bool]:
    """Start two runs in one folder; count refused ones, and compare the results of the others."""
    single = reconstruct(scans, keypoints=60).T_world_scan
    results: list[dict[str, np.ndarray]] = []
    refused = 0
    ready = threading.Barrier(2)

    def work() -> None:
        nonlocal refused
        ready.wait()
        try:
            results.append(reconstruct(scans, folder, keypoints=60).T_world_scan)
        except InputError:
            refused += 1

    both = [threading.Thread(target=work) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    results.append(reconstruct(scans, folder, keypoints=60).T_world_scan)
    identical = all(
        poses.keys() == single.keys() and all((poses[name] == single[name]).all() for name in single)
        for poses in results
    )
    return refused, identical


def main(arguments: argparse.Namespace) -> bool:
    scans = small_scans(3)
    growth, left_open = repeat_calls(scans, arguments.calls)
    threads = arguments.threads
    differing = call_from_threads(scans, threads)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("entries", "run"):
            (Path(folder) / name).mkdir()
        unreadable = write_from_processes(Path(folder) / "entries")
        temporary = [path.name for path in Path(folder).rglob(".wsdesc-*")]
        refused, identical = reconstruct_together(Path(folder) / "run", scans)
    print_machine()
    memory = f"{growth:+.2%} since the first tenth, {own_memory() >> 20} MiB"
    print_table(
        [
            (f"memory after {arguments.calls} calls", memory),
            ("files left open", str(left_open)),
            (f"{threads} threads", f"{differing} of {2 * threads} results differ from a single call"),
            ("two processes, one cache", f"{unreadable} of {10 * _ENTRIES} files unreadable"),
            ("temporary files left", ", ".join(temporary) or "none"),
            ("two runs, one folder", f"{refused} refused; identical: {'yes' if identical else 'NO'}"),
        ]
    )
    kept = not left_open > 0 and not differing and not unreadable and not temporary and identical
    return kept and growth < _MAX_GROWTH


def parser() -> argparse.ArgumentParser:
    parser = make_parser("load", __doc__)
    parser.add_argument("--calls", type=int, default=1000, help="calls in one process (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=8, help="threads (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
