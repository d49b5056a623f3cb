"""Many scans put together by `wsdesc reconstruct`, against known poses; and how its time grows.

    python -m benchmarks.reconstruct scene SCENE --foreign OTHER.ply [--jobs 2] [--work DIR]
    python -m benchmarks.reconstruct floor 8 --seed 5 [--jobs 2] [--work DIR]
    python -m benchmarks.reconstruct growth 20 40 80 [--jobs 2] [--work DIR]

SCENE is a folder of cloud_bin_k.ply with their poses (cloud_bin_k.info.txt) or those of its pairs beside it
(SCENE-evaluation/gt.log). The scans lose their order, names and frames: each is turned and shifted at random
and gets a number drawn at random; the foreign one is mixed in. `floor` does so with laser scans of a
synthetic floor whose bays are built alike, where wrong poses fit nearly as well as right ones. `growth` makes
rooms of ten fragments each, so that there are as many scans as wanted, and the rooms must neither fall apart
nor be joined.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from benchmarks.common import or_explain, print_machine, print_table
from wsdesc import read_points, write_points
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.synthetic import room_scans
from wsdesc.datasets.synthetic.floor import floor_scans
from wsdesc.datasets.threedmatch import find_fragments, read_log, read_pose

A_ROOM = 10  # fragments of each synthetic room
SHARED = 0.2  # of both scans, from which on two overlap


class Known(NamedTuple):
    """A scan as it is given away, and what is known about it."""

    place: str  # scans of one place share a frame
    T_world_scan: np.ndarray | None  # None for a foreigner
    centre: np.ndarray  # (3,) of its points
    extent: float
    points: np.ndarray  # (n, 3) some of them


def true_poses(scene: Path) -> dict[int, np.ndarray]:
    """T_world_scan of the fragments, from their own files or along the pairs of gt.log."""
    numbers = sorted(find_fragments(scene))
    if (scene / f"cloud_bin_{numbers[0]}.info.txt").exists():
        return {k: read_pose(scene / f"cloud_bin_{k}.info.txt") for k in numbers}
    logs = [scene.with_name(f"{scene.name}-evaluation{end}") / "gt.log" for end in ("", "-lo")]
    pairs = [entry for log in logs if log.exists() for entry in read_log(log)]
    known = {numbers[0]: np.eye(4)}
    for _ in numbers:
        for i, j, _, T_i_j in pairs:
            if i in known and j not in known:
                known[j] = known[i] @ T_i_j
            elif j in known and i not in known:
                known[i] = known[j] @ np.linalg.inv(T_i_j)
    if missing := set(numbers) - set(known):
        raise InputError(f"{scene}: no pose is known of the fragments {sorted(missing)}")
    return known


def disguise(points: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The points in a frame of their own, shifted by up to their size; and T_given_own of it."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_quat(rng.normal(size=4)).as_matrix()
    T[:3, 3] = rng.uniform(-1, 1, 3) * np.ptp(points, axis=0).max()
    return transform(points, T), inverse(T)


def give_away(
    folder: Path, scans: list[tuple[str, np.ndarray | None, np.ndarray]], seed: int
) -> dict[str, Known]:
    """Write scans (place, T_world_scan, points), disguised and shuffled; what is known, by file name."""
    rng = np.random.default_rng(seed)
    known = {}
    for number, k in enumerate(rng.permutation(len(scans))):
        place, T_world_scan, points = scans[k]
        given, T_scan_given = disguise(points, rng)
        write_points(folder / f"scan_{number:04d}.ply", given)
        T = None if T_world_scan is None else T_world_scan @ T_scan_given
        known[f"scan_{number:04d}.ply"] = Known(
            place, T, given.mean(axis=0), float(np.ptp(points, axis=0).max()), given[::3]
        )
    return known


class Errors(NamedTuple):
    """Of the scans in one frame, after that was laid onto the truth; (n,) each."""

    degrees: np.ndarray
    distance: np.ndarray  # of the scans' centres, in their unit


def errors(known: list[Known], T_found: list[np.ndarray]) -> Errors:
    """Lay the frame of the found poses onto the true one, by all scans but those far off; what remains."""
    T_true = np.stack([k.T_world_scan for k in known])
    T = np.stack(T_found)
    centres = np.stack([k.centre for k in known])
    each = T_true @ np.linalg.inv(T)  # (n, 4, 4): what each scan says the found frame is in the true one
    tried = [_errors(T_true, G @ T, centres) for G in each]
    best = int(np.argmin([np.median(e.distance) for e in tried]))
    near = tried[best].distance <= 3 * np.median(tried[best].distance) + 1e-12
    G = np.eye(4)
    G[:3, :3] = Rotation.from_matrix(each[near, :3, :3]).mean().as_matrix()
    there, here = (
        np.einsum("nij,nj->ni", X[near, :3, :3], centres[near]) + X[near, :3, 3] for X in (T_true, T)
    )
    G[:3, 3] = (there - here @ G[:3, :3].T).mean(axis=0)
    return _errors(T_true, G @ T, centres)


def _errors(T_true: np.ndarray, T: np.ndarray, centres: np.ndarray) -> Errors:
    turn = Rotation.from_matrix(np.swapaxes(T_true[:, :3, :3], 1, 2) @ T[:, :3, :3])
    apart = np.einsum("nij,nj->ni", (T - T_true)[:, :3, :3], centres) + (T - T_true)[:, :3, 3]
    return Errors(np.degrees(turn.magnitude()), np.linalg.norm(apart, axis=1))


class Run(NamedTuple):
    """What the command left behind."""

    poses: dict[str, Any]
    edges: list[dict[str, Any]]
    seconds: float
    core_seconds: float  # of all processes together, which other work on the machine hardly changes
    gigabytes: float  # peak memory of the largest process


def run(scans: Path, out: Path, jobs: int) -> Run:
    """The real command, from the start of Python to its end."""
    command = [sys.executable, "-m", "wsdesc", "reconstruct", str(scans), "-o", str(out), "--jobs", str(jobs)]
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise InputError(done.stderr.strip() or f"wsdesc reconstruct ended with {done.returncode}")
    core = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    edges = json.loads((out / "graph.json").read_text())["edges"]
    return Run(json.loads((out / "poses.json").read_text()), edges, seconds, core, after.ru_maxrss / 2**20)


def report(known: dict[str, Known], done: Run) -> list[tuple[str, str]]:
    """Rows of what was placed, how well, and how surely."""
    frames = [frame["scans"] for frame in done.poses["frames"]]
    T = {name: np.array(scan["T_world_scan"]) for name, scan in done.poses["scans"].items()}
    placed = sum(known[name].T_world_scan is not None for frame in frames for name in frame)
    foreign = [name for name, k in known.items() if k.T_world_scan is None]
    believed = [edge for edge in done.edges if edge["accepted"]]
    sizes = ", ".join(str(len(frame)) for frame in frames)
    tried = f"{len(done.edges)} tried, {len(believed)} believed"
    true = overlapping(known, 3 * done.poses["resolution"])
    met = sum(frozenset((edge["source"], edge["target"])) in true for edge in done.edges)
    rows = [
        ("placed", f"{placed} of {len(known) - len(foreign)}, in frames of {sizes}"),
        ("frames that join places", str(sum(len({known[name].place for name in f}) > 1 for f in frames))),
        ("foreign scans placed", f"{sum(name in T for name in foreign)} of {len(foreign)}"),
        ("pairs", f"{tried}, {wrong(known, believed)} of these wrong"),
        (f"pairs that share {SHARED:.0%}", f"{len(true)}, of which {met} were tried"),
    ]
    for frame in frames[:1] if foreign else frames:
        own = [name for name in frame if known[name].T_world_scan is not None]
        off = errors([known[name] for name in own], [T[name] for name in own])
        figures = [f"median {np.median(e):.3g}, largest {e.max():.3g}" for e in off]
        rows.append((f"frame of {len(own)}", f"degrees: {figures[0]}; distance: {figures[1]}"))
    rows.append(("time", f"{done.seconds:.0f} s, {done.core_seconds:.0f} s of cores"))
    rows.append(("memory", f"{done.gigabytes:.2f} GiB in the largest process"))
    return rows


def overlapping(known: dict[str, Known], reach: float) -> set[frozenset[str]]:
    """Pairs of scans, each with `SHARED` of its points within reach of the other's by their true poses."""
    moved = {
        name: transform(k.points, k.T_world_scan) for name, k in known.items() if k.T_world_scan is not None
    }
    trees = {name: cKDTree(points) for name, points in moved.items()}

    def share(a: str, b: str) -> float:
        some = moved[a][:: max(1, len(moved[a]) // 500)]
        return float(np.isfinite(trees[b].query(some, distance_upper_bound=reach)[0]).mean())

    pairs = [(a, b) for a, b in combinations(moved, 2) if known[a].place == known[b].place]
    return {frozenset((a, b)) for a, b in pairs if min(share(a, b), share(b, a)) >= SHARED}


def wrong(known: dict[str, Known], edges: list[dict[str, Any]]) -> int:
    """Edges that join places, or are off by more than 10° or a tenth of the scan's own extent."""
    count = 0
    for edge in edges:
        a, b = known[edge["source"]], known[edge["target"]]
        if a.place != b.place or a.T_world_scan is None or b.T_world_scan is None:
            count += 1
            continue
        T_true = np.linalg.inv(b.T_world_scan) @ a.T_world_scan
        off = _errors(T_true[None], np.array(edge["T_target_source"])[None], a.centre[None])
        count += bool(off.degrees[0] > 10 or off.distance[0] > a.extent / 10)
    return count


@contextmanager
def working_folder(wanted: Path | None) -> Iterator[Path]:
    """The folder asked for, kept, which a later run goes on in; or a temporary one."""
    if wanted is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted


def measure(name: str, scans: list[tuple[str, np.ndarray | None, np.ndarray]], o: argparse.Namespace) -> None:
    with working_folder(o.work) as work:
        given = work / f"{name}-scans"
        given.mkdir(exist_ok=True)
        known = give_away(given, scans, o.seed)
        done = run(given, work / f"{name}-model", o.jobs)
        print(f"{name}: {len(scans)} scans, {o.jobs} processes")
        print_table(report(known, done))


def scene(o: argparse.Namespace) -> None:
    poses = true_poses(o.scene)
    scans: list[tuple[str, np.ndarray | None, np.ndarray]] = [
        (o.scene.name, poses[k], read_points(path)) for k, path in find_fragments(o.scene).items()
    ]
    scans += [("elsewhere", None, o.foreign_scale * read_points(path)) for path in o.foreign]
    measure(o.scene.name, scans, o)


def floor(o: argparse.Namespace) -> None:
    scans: list[tuple[str, np.ndarray | None, np.ndarray]] = [
        ("floor", fragment.T_world_scan, fragment.points.astype(np.float64))
        for fragment in floor_scans(o.seed, o.count)
    ]
    measure(f"floor-{o.seed}", scans, o)


def growth(o: argparse.Namespace) -> None:
    for count in o.counts:
        rooms = [room_scans(o.seed + 1000 + room, A_ROOM) for room in range(-(-count // A_ROOM))]
        scans = [
            (f"room {number}", fragment.T_world_scan, fragment.points.astype(np.float64))
            for number, room in enumerate(rooms)
            for fragment in room
        ]
        measure(f"{count}", scans[:count], o)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("scene", help="a folder of scans with known poses")
    one.add_argument("scene", type=Path)
    one.add_argument("--foreign", type=Path, nargs="*", default=[], help="scans that belong elsewhere")
    one.add_argument("--foreign-scale", type=float, default=1.0, help="so that size does not give them away")
    one.set_defaults(work_on=scene)
    alike = commands.add_parser("floor", help="a synthetic floor of equal bays")
    alike.add_argument("count", type=int)
    alike.set_defaults(work_on=floor)
    many = commands.add_parser("growth", help="time over the number of synthetic scans")
    many.add_argument("counts", type=int, nargs="+")
    many.set_defaults(work_on=growth)
    for command in (one, alike, many):
        command.add_argument("--jobs", type=int, default=2)
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--work", type=Path, help="keep scans and results here")
    return parser.parse_args()


def main(o: argparse.Namespace) -> None:
    print_machine()
    o.work_on(o)


if __name__ == "__main__":
    sys.exit(or_explain(lambda: main(parse())))
