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
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from benchmarks.common import make_parser, print_machine, print_table, random_rotation, run_command
from wsdesc import Reconstruction, read_points, write_points
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.threedmatch import find_fragments, read_log, read_pose
from wsdesc.reconstruction.edge_result import EdgeResult

PlacedScan = tuple[str, np.ndarray | None, np.ndarray]  # place, T_world_scan, points (N, 3)

MIN_OVERLAP = 0.2  # share of the points of both scans


class KnownScan(NamedTuple):
    """A scan as written for the reconstruction, and its true pose."""

    place: str  # scans of one place share a frame
    T_world_scan: np.ndarray | None  # None for foreign scans
    centre: np.ndarray  # (3,) of its points
    extent: float
    points: np.ndarray  # (n, 3), a third of them


def true_poses(scene: Path) -> dict[int, np.ndarray]:
    """Read T_world_scan of all scans from their own files, or chain the pairs of gt.log."""
    numbers = sorted(find_fragments(scene))
    if (scene / f"cloud_bin_{numbers[0]}.info.txt").exists():
        return {k: read_pose(scene / f"cloud_bin_{k}.info.txt") for k in numbers}
    logs = [scene.with_name(f"{scene.name}-evaluation{end}") / "gt.log" for end in ("", "-lo")]
    pairs = [entry for log in logs if log.exists() for entry in read_log(log)]
    poses = {numbers[0]: np.eye(4)}
    for _ in numbers:
        for i, j, _, T_i_j in pairs:
            if i in poses and j not in poses:
                poses[j] = poses[i] @ T_i_j
            elif j in poses and i not in poses:
                poses[i] = poses[j] @ np.linalg.inv(T_i_j)
    if missing := set(numbers) - set(poses):
        raise InputError(f"{scene}: no pose of the scans {sorted(missing)}")
    return poses


def move_randomly(points: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rotate points at random and shift them by up to their extent; return them with T_original_moved."""
    T = random_rotation(rng)
    T[:3, 3] = rng.uniform(-1, 1, 3) * np.ptp(points, axis=0).max()
    return transform(points, T), inverse(T)


def write_shuffled(
    folder: Path, scans: list[PlacedScan], seed: int, *, moved: bool = True
) -> dict[str, KnownScan]:
    """Write scans (place, T_world_scan, points) shuffled, and moved at random; return the truth by name."""
    rng = np.random.default_rng(seed)
    truth = {}
    for number, k in enumerate(rng.permutation(len(scans))):
        place, T_world_scan, points = scans[k]
        T_scan_moved = np.eye(4)
        if moved:
            points, T_scan_moved = move_randomly(points, rng)
        write_points(folder / f"scan_{number:04d}.ply", points)
        T = None if T_world_scan is None else T_world_scan @ T_scan_moved
        truth[f"scan_{number:04d}.ply"] = KnownScan(
            place, T, points.mean(axis=0), float(np.ptp(scans[k][2], axis=0).max()), points[::3]
        )
    return truth


class Errors(NamedTuple):
    """Errors of the scans of one frame after aligning it with the truth; (n,) each."""

    degrees: np.ndarray
    distance: np.ndarray  # of the scans' centres, in their unit


def pose_errors(truth: list[KnownScan], poses: list[np.ndarray]) -> Errors:
    """Align the frame of the estimated poses with the true one, without outliers; return the errors."""
    T_true = np.stack([k.T_world_scan for k in truth])
    T = np.stack(poses)
    centres = np.stack([k.centre for k in truth])
    each = T_true @ np.linalg.inv(T)  # (n, 4, 4): T_true_frame of each scan alone
    aligned = [_errors(T_true, G @ T, centres) for G in each]
    best = int(np.argmin([np.median(e.distance) for e in aligned]))
    near = aligned[best].distance <= 3 * np.median(aligned[best].distance) + 1e-12
    G = np.eye(4)
    G[:3, :3] = Rotation.from_matrix(each[near, :3, :3]).mean().as_matrix()
    true_centres, estimated = (
        np.einsum("nij,nj->ni", X[near, :3, :3], centres[near]) + X[near, :3, 3] for X in (T_true, T)
    )
    G[:3, 3] = (true_centres - estimated @ G[:3, :3].T).mean(axis=0)
    return _errors(T_true, G @ T, centres)


def _errors(T_true: np.ndarray, T: np.ndarray, centres: np.ndarray) -> Errors:
    rotation = Rotation.from_matrix(np.swapaxes(T_true[:, :3, :3], 1, 2) @ T[:, :3, :3])
    displacement = np.einsum("nij,nj->ni", (T - T_true)[:, :3, :3], centres) + (T - T_true)[:, :3, 3]
    return Errors(np.degrees(rotation.magnitude()), np.linalg.norm(displacement, axis=1))


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


def overlapping(truth: dict[str, KnownScan], distance: float) -> set[frozenset[str]]:
    """Find pairs of scans that each have `MIN_OVERLAP` of their points within a distance of the other."""
    moved = {
        name: transform(k.points, k.T_world_scan) for name, k in truth.items() if k.T_world_scan is not None
    }
    trees = {name: cKDTree(points) for name, points in moved.items()}

    def share(a: str, b: str) -> float:
        sample = moved[a][:: max(1, len(moved[a]) // 500)]
        return float(np.isfinite(trees[b].query(sample, distance_upper_bound=distance)[0]).mean())

    pairs = [(a, b) for a, b in combinations(moved, 2) if truth[a].place == truth[b].place]
    return {frozenset((a, b)) for a, b in pairs if min(share(a, b), share(b, a)) >= MIN_OVERLAP}


def count_wrong(truth: dict[str, KnownScan], edges: list[EdgeResult]) -> int:
    """Count edges that join places, or with errors above 10° or a tenth of the scan's extent."""
    count = 0
    for edge in edges:
        a, b = truth[edge.source], truth[edge.target]
        if a.place != b.place or a.T_world_scan is None or b.T_world_scan is None:
            count += 1
            continue
        T_true = np.linalg.inv(b.T_world_scan) @ a.T_world_scan
        off = _errors(T_true[None], edge.T_target_source[None], a.centre[None])
        count += bool(off.degrees[0] > 10 or off.distance[0] > a.extent / 10)
    return count


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
