"""Many calls, many threads, many processes: what stays behind, and whether results stay the same.

    python -m benchmarks.load [--calls 1000] [--threads 8]

Registers small scans of a synthetic room again and again in one process and looks at its memory and open
files; then from several threads at once; then has two processes describe the same scans into one folder, and
two runs of `reconstruct` use one folder. Exits with 1 where memory grows by 2 % or more after a tenth of the
calls, a file stays open, a result differs, or a file is damaged.
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

from benchmarks.common import or_explain, print_machine, print_table, watched
from wsdesc import reconstruct, register
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import room_scans
from wsdesc.descriptor.description import Description, describe

SMALL: dict[str, Any] = {"keypoints": (60,), "hypotheses": 2, "refined": 1}
_GROWTH = 0.02  # of the memory after warm-up
_SAME = 6  # entries that two processes write at once


def small_scans(count: int) -> list[np.ndarray]:
    """Scans (N, 3) of a synthetic room, of a thousand points or two."""
    return [fragment.points.astype(np.float64) for fragment in room_scans(3, count, resolution=0.1)]


def own_memory() -> int:
    """Bytes of this process without the pages of libraries, which come and go with the system's cache."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return sum(1024 * int(line[1]) for line in lines if line[0] in ("RssAnon:", "VmSwap:"))


def open_files() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def many_calls(scans: list[np.ndarray], calls: int) -> tuple[float, int]:
    """How much memory grew after a tenth of the calls, as a share, and how many files more are open."""
    memory, files = [], []
    for _ in watched(range(calls), "calls"):
        register(scans[0], scans[1], **SMALL)
        memory.append(own_memory())
        files.append(open_files())
    tenth = max(1, calls // 10)
    return max(memory[tenth:]) / max(memory[:tenth]) - 1, files[-1] - files[0]


def many_threads(scans: list[np.ndarray], threads: int) -> int:
    """Calls, two for each thread, whose result is not that of the same call alone, to the bit."""
    pairs = [(scans[k % 2], scans[1 + k % 2]) for k in range(2 * threads)]
    alone = [register(*pair, **SMALL) for pair in pairs[:2]]
    with ThreadPoolExecutor(threads) as pool:
        together = list(pool.map(lambda pair: register(*pair, **SMALL), pairs))
    differ = [_figures(one) != _figures(alone[k % 2]) for k, one in enumerate(together)]
    return sum(differ)


def _figures(result: Any) -> tuple[Any, ...]:
    return (result.T_target_source.tolist(), result.confidence, result.overlap, result.rmse, result.inliers)


def shared_entries(folder: Path) -> int:
    """Have two processes write the same descriptions again and again; how often one could not be read."""
    scans = small_scans(_SAME)
    for number, scan in enumerate(scans):
        np.save(folder / f"{number}.npy", scan)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        return sum(pool.map(_describe_all, [str(folder)] * 2))


def _describe_all(folder: str) -> int:
    unreadable = 0
    for _ in range(5):
        for number in range(_SAME):
            entry = Path(folder) / f"{number}.npz"
            describe(Path(folder) / f"{number}.npy", keypoints=20, resolution=0.1).save(entry)
            try:
                Description.load(entry)
            except Exception:  # whatever half a file leads to
                unreadable += 1
    return unreadable


def shared_run(folder: Path, scans: list[np.ndarray]) -> tuple[int, bool]:
    """Two runs in one folder at a time: how many were refused, and whether the rest found the same."""
    alone = reconstruct(scans, keypoints=60).T_world_scan
    found: list[dict[str, np.ndarray]] = []
    refused = 0
    ready = threading.Barrier(2)

    def work() -> None:
        nonlocal refused
        ready.wait()
        try:
            found.append(reconstruct(scans, folder, keypoints=60).T_world_scan)
        except InputError:
            refused += 1

    both = [threading.Thread(target=work) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    found.append(reconstruct(scans, folder, keypoints=60).T_world_scan)
    same = all(
        poses.keys() == alone.keys() and all((poses[name] == alone[name]).all() for name in alone)
        for poses in found
    )
    return refused, same


def main(o: argparse.Namespace) -> None:
    scans = small_scans(3)
    growth, left_open = many_calls(scans, o.calls)
    differ = many_threads(scans, o.threads)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("entries", "run"):
            (Path(folder) / name).mkdir()
        unreadable = shared_entries(Path(folder) / "entries")
        left = [path.name for path in Path(folder).rglob(".wsdesc-*")]
        refused, same = shared_run(Path(folder) / "run", scans)
    print_machine()
    rows = [
        (f"memory after {o.calls} calls", f"{growth:+.2%} since the first tenth, {own_memory() >> 20} MiB"),
        ("files left open", str(left_open)),
        (f"{o.threads} threads", f"{differ} of {2 * o.threads} results differ from those of one"),
        ("two processes, one cache", f"{unreadable} of {10 * _SAME} entries unreadable, left: {left or 0}"),
        ("two runs, one folder", f"{refused} refused; the same result: {'yes' if same else 'NO'}"),
    ]
    print_table(rows)
    if growth >= _GROWTH or left_open > 0 or differ or unreadable or left or not same:
        sys.exit(1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(or_explain(lambda: main(parse())))
