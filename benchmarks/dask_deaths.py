"""Reconstruct on a Dask cluster whose workers are killed again and again; compare with a run without Dask.

    python -m benchmarks.dask_deaths 40 --work DIR [--workers 3] [--every 10] [--keypoints 1000]

Makes synthetic sites of ten scans as `benchmarks.growth` does, starts a local cluster, and kills a random
worker every EVERY seconds while pairs are registered; Dask starts another one. Then the same scans are
reconstructed in processes. Prints deaths, times, and whether all poses and edges have the same bits; the same
is in DIR/record.json. Needs the extra `dask`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import make_parser, print_machine, print_table, run_command
from benchmarks.growth import RESOLUTION, SCANS_PER_SITE, make_sites
from benchmarks.known_scans import TRUTH, count_wrong, load_truth
from wsdesc import Reconstruction
from wsdesc.core.executors import Dask, Processes
from wsdesc.evaluation.provenance import machine
from wsdesc.reconstruction.pipeline import reconstruct


class Killer:
    """Kill a random worker of a cluster every some seconds."""

    def __init__(self, cluster: Any, every: float) -> None:
        self.cluster, self.every = cluster, every
        self.deaths = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._kill, daemon=True)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _kill(self) -> None:
        rng = random.Random(0)
        while not self._stop.wait(self.every):
            processes = [nanny.pid for nanny in self.cluster.workers.values() if nanny.pid]
            if processes:
                os.kill(rng.choice(processes), signal.SIGKILL)
                self.deaths += 1


def main(arguments: argparse.Namespace) -> bool:
    import distributed

    print_machine()
    work, count = arguments.work, arguments.count
    if not (work / TRUTH).exists():
        make_sites(work, count, max(1, count // SCANS_PER_SITE), arguments.seed, arguments.workers)
    truth = load_truth(work / TRUTH)
    options = {"resolution": RESOLUTION, "keypoints": arguments.keypoints, "more_keypoints": 0}
    record: dict[str, Any] = {"scans": count, "workers": arguments.workers, "machine": machine()}
    with distributed.LocalCluster(
        n_workers=arguments.workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        start = time.perf_counter()
        with closing(Dask(cluster.scheduler_address)) as executor, Killer(cluster, arguments.every) as killer:
            together = reconstruct(work / "scans", work / "dask", executor=executor, **options)
        record |= {"deaths": killer.deaths, "seconds": time.perf_counter() - start}
    record |= {"placed": len(together.T_world_scan), "pairs": len(together.edges)}
    record["wrong"] = count_wrong(truth, [edge for edge in together.edges if edge.accepted])
    write(work, record)
    start = time.perf_counter()
    with closing(Processes(arguments.workers)) as processes:
        alone = reconstruct(work / "scans", work / "processes", executor=processes, **options)
    record |= {"seconds_without_dask": time.perf_counter() - start, "same": equal(together, alone)}
    write(work, record)
    print_table([(name, str(value)) for name, value in record.items()])
    return bool(record["same"])


def write(work: Path, record: dict[str, Any]) -> None:
    """Write the record, also of a run that is stopped later."""
    (work / "record.json").write_text(json.dumps(record, indent=1))


def equal(a: Reconstruction, b: Reconstruction) -> bool:
    """Return whether poses and edges have the same bits."""
    same = [edge.to_dict() for edge in a.edges] == [edge.to_dict() for edge in b.edges]
    poses = zip(a.T_world_scan.items(), b.T_world_scan.items(), strict=False)
    return same and all(i == j and np.array_equal(S, T) for (i, S), (j, T) in poses)


def parser() -> argparse.ArgumentParser:
    parser = make_parser("dask_deaths", __doc__)
    parser.add_argument("count", type=int, help="number of scans")
    parser.add_argument("--work", type=Path, required=True, help="folder for scans and models")
    parser.add_argument("--workers", type=int, default=3, help="worker processes (default: %(default)s)")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two deaths")
    parser.add_argument("--keypoints", type=int, default=1000, help="per scan (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=800, help="seed of the sites (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
