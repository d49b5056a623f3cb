"""Compare a reconstruction by `wsdesc reconstruct` with known poses.

    python -m benchmarks.reconstruct scene SCENE --foreign OTHER.ply [--jobs 2] [--work DIR]

SCENE is a folder of cloud_bin_k.ply with poses in cloud_bin_k.info.txt, or with poses of pairs in
SCENE-evaluation/gt.log. Scans are renamed, shuffled, rotated and shifted at random, and mixed with foreign
ones.

Prints placed scans and sizes of the frames, frames that join two places, placed foreign scans, tried and
accepted edges and how many of them are wrong, overlapping pairs and how many were tried, rotation and
position errors of each frame, time and memory.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.common import make_parser, print_machine, print_table, run_command
from benchmarks.known_scans import (
    MIN_OVERLAP,
    KnownScan,
    PlacedScan,
    count_wrong,
    overlapping,
    pose_errors,
    true_poses,
    write_shuffled,
)
from wsdesc import Reconstruction, read_points
from wsdesc.core.errors import InputError
from wsdesc.datasets.threedmatch import find_fragments


class ReconstructionRun(NamedTuple):
    """Output and costs of the command."""

    result: Reconstruction
    seconds: float
    core_seconds: float  # of all processes; hardly changed by other work on the machine
    gigabytes: float  # peak memory of the largest process


def run(scans: Path, out: Path, jobs: int, *options: str) -> ReconstructionRun:
    """Run the command in a new process."""
    command = [sys.executable, "-m", "wsdesc", "reconstruct", str(scans), "-o", str(out), "--jobs", str(jobs)]
    command += options
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise InputError(done.stderr.strip() or f"wsdesc reconstruct ended with {done.returncode}")
    core = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ReconstructionRun(Reconstruction.load(out), seconds, core, after.ru_maxrss / 2**20)


def report_rows(truth: dict[str, KnownScan], done: ReconstructionRun) -> list[tuple[str, str]]:
    """Summarise a reconstruction in rows."""
    result = done.result
    frames, T = result.components, result.T_world_scan
    placed = sum(truth[name].T_world_scan is not None for frame in frames for name in frame)
    foreign = [name for name, k in truth.items() if k.T_world_scan is None]
    accepted = [edge for edge in result.edges if edge.accepted]
    sizes = ", ".join(str(len(frame)) for frame in frames)
    tried = f"{len(result.edges)} tried, {len(accepted)} accepted"
    true = overlapping(truth, 3 * result.resolution)
    tried_pairs = sum(frozenset((edge.source, edge.target)) in true for edge in result.edges)
    rows = [
        ("placed", f"{placed} of {len(truth) - len(foreign)}, in frames of {sizes}"),
        ("frames that join places", str(sum(len({truth[name].place for name in f}) > 1 for f in frames))),
        ("foreign scans placed", f"{sum(name in T for name in foreign)} of {len(foreign)}"),
        ("pairs", f"{tried}, {count_wrong(truth, accepted)} of these wrong"),
        (f"pairs that overlap by {MIN_OVERLAP:.0%}", f"{len(true)}, of which {tried_pairs} were tried"),
    ]
    for frame in frames[:1] if foreign else frames:
        own = [name for name in frame if truth[name].T_world_scan is not None]
        off = pose_errors([truth[name] for name in own], [T[name] for name in own])
        figures = [f"median {np.median(e):.3g}, largest {e.max():.3g}" for e in off]
        rows.append((f"frame of {len(own)}", f"degrees: {figures[0]}; distance: {figures[1]}"))
    rows.append(("time", f"{done.seconds:.0f} s, {done.core_seconds:.0f} core seconds"))
    rows.append(("memory", f"{done.gigabytes:.2f} GiB in the largest process"))
    return rows


@contextmanager
def working_folder(folder: Path | None) -> Iterator[Path]:
    """Yield the given folder, which a later run can continue in, or a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def measure(name: str, scans: list[PlacedScan], arguments: argparse.Namespace) -> None:
    """Reconstruct shuffled scans and print the errors."""
    with working_folder(arguments.work) as work:
        shuffled = work / f"{name}-scans"
        shuffled.mkdir(exist_ok=True)
        truth = write_shuffled(shuffled, scans, arguments.seed)
        done = run(shuffled, work / f"{name}-model", arguments.jobs)
        print(f"{name}: {len(scans)} scans, {arguments.jobs} processes")
        print_table(report_rows(truth, done))


def run_scene(arguments: argparse.Namespace) -> None:
    """Reconstruct a scene with known poses, with foreign scans."""
    scene = arguments.scene
    poses = true_poses(scene)
    scans: list[PlacedScan] = [
        (scene.name, poses[k], read_points(path)) for k, path in find_fragments(scene).items()
    ]
    scans += [("foreign", None, arguments.foreign_scale * read_points(path)) for path in arguments.foreign]
    measure(scene.name, scans, arguments)


def main(arguments: argparse.Namespace) -> None:
    print_machine()
    run_scene(arguments)


def parser() -> argparse.ArgumentParser:
    parser = make_parser("reconstruct", __doc__)
    scene = parser.add_subparsers(required=True).add_parser("scene", help="folder of scans with known poses")
    scene.add_argument("scene", type=Path, help="folder of cloud_bin_k.ply")
    scene.add_argument("--foreign", type=Path, nargs="*", default=[], help="scans of other places")
    scene.add_argument(
        "--foreign-scale", type=float, default=1.0, help="factor that makes their sizes similar"
    )
    scene.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    scene.add_argument("--seed", type=int, default=0, help="seed of shuffling and of the random poses")
    scene.add_argument("--work", type=Path, help="folder that keeps scans and results")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
