"""Put many scans into one frame: describe each once, register those that look alike, keep what agrees.

read → describe → propose pairs → register them → keep poses that agree → pose graph. What does not connect is
tried once more with more keypoints. All work on single scans and pairs goes through an executor and a
journal, so that it can be spread, and stopped at any time.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from wsdesc import __version__
from wsdesc.cloud.clean import clean, with_offsets
from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.files import write_points
from wsdesc.cloud.units import INDOOR_RESOLUTION, Scale
from wsdesc.core.errors import InputError
from wsdesc.core.executors import Executor, Job, Result, Serial, Task
from wsdesc.core.folders import locked, make_folder
from wsdesc.core.journal import Journal, content_key, content_of
from wsdesc.core.notebook import NotebookDisplay
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.descriptor import pretrained
from wsdesc.reconstruction.jobs import describe_scan, register_pair, survey_scan
from wsdesc.reconstruction.loop_closure import Placed, place
from wsdesc.reconstruction.options import JOURNAL, ReconstructOptions
from wsdesc.reconstruction.pair_selection import Found, Pair, first_pairs, pairs_between, signatures
from wsdesc.registration.result import Pose


class PairResult(NamedTuple):
    """Two scans that were registered, and what became of it."""

    source: str
    target: str
    T_target_source: Pose | None  # in the files' own coordinates; None where no motion was found
    confidence: float
    overlap: float  # share of the source that lies on the target
    rank: int  # of this pose among those that registration found: 0 fits best, others agree better with all
    keypoints: int  # of each scan, that it was found with
    rejected: str | None  # why it was not believed; None where it was
    deviation: float | None  # from the final poses, in standard deviations of the edge


@dataclass(frozen=True, eq=False)
class Reconstruction(NotebookDisplay):
    """Where the scans are, and why that is believed."""

    T_world_scan: dict[str, Pose]  # by name, of the scans that found a place; in the files' own coordinates
    components: list[list[str]]  # scans that share a frame, which is that of the first one; largest first
    not_placed: dict[str, str]  # the other scans, and the reasons
    pairs: list[PairResult]
    resolution: float  # in the files' unit
    paths: dict[str, Path]  # by name, of all scans

    @property
    def complete(self) -> bool:
        """Every scan has its place, and all are in one frame."""
        return len(self.components) == 1 and not self.not_placed


def reconstruct(
    scans: Sequence[Any],
    folder: str | Path | None = None,
    *,
    executor: Executor | None = None,
    progress: ProgressHook | None = None,
    **options: Any,
) -> Reconstruction:
    """Find the poses of `scans` in one frame, by their overlaps alone.

    Scans are paths of files, `Cloud`s, or points (N, 3), in one unit and any poses. Those that cannot be read
    are left out, and named. Options are the fields of `ReconstructOptions`. In `folder` descriptions and
    finished pairs are kept: a run that was stopped goes on there, with the same result to the bit.
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as folder:
            return assemble(scans, Path(folder), executor or Serial(), progress, **options)
    with locked(Path(folder)):
        return assemble(scans, Path(folder), executor or Serial(), progress, **options)


def assemble(
    scans: Sequence[Any],
    folder: Path,
    executor: Executor,
    progress: ProgressHook | None = None,
    **options: Any,
) -> Reconstruction:
    """What `reconstruct` does in a folder that is locked already."""
    o = ReconstructOptions.read(options)
    work = _Work(folder.absolute(), executor, progress or no_progress)
    paths, lost = _as_files(scans, work.cache)

    files = [{"path": str(path.absolute()), "content": content_of(path)} for path in paths.values()]
    surveys = work.do("read scans", survey_scan, files, [{"content": f["content"]} for f in files])
    names, files, surveys = _usable(list(paths), files, surveys, lost)
    settings, depends = _settings(o, surveys)
    scales, jobs = work.describe(files, settings, depends)
    names, jobs, scales = _usable(names, jobs, scales, lost)

    radii = np.array([scale["radius"] for scale in scales])
    alike = signatures(jobs, o.seed)
    found = work.register(first_pairs(alike, o.neighbours), jobs, depends)
    with work.progress("place scans", 0):
        placed = place([pair.edges for pair in found.values()], radii)
    again = pairs_between(placed.graph.components, found, alike, o.neighbours)
    if again and o.more_keypoints > o.keypoints:
        found = work.register_again(again, found, jobs, depends, o.more_keypoints)
        with work.progress("place scans again", 0):
            placed = place([pair.edges for pair in found.values()], radii)

    offsets = [np.array(scale["offset"]) for scale in scales]
    return _build_result(names, lost, paths, list(found.items()), placed, offsets, settings["resolution"])


class _Work:
    """Jobs that are done by an executor, noted in a journal, and watched."""

    def __init__(self, folder: Path, executor: Executor, progress: ProgressHook) -> None:
        self.cache, self.executor, self.progress = folder / "cache", executor, progress
        make_folder(self.cache)
        self.journal = Journal(folder / JOURNAL)

    def do(self, what: str, task: Task, jobs: Sequence[Job], depends: Sequence[Job]) -> list[Result]:
        """The results of jobs, by this run or an earlier one; `depends` is all that each depends on."""
        with self.progress(what, len(jobs)) as advance:
            known = [one | {"version": __version__} for one in depends]
            return self.journal.run(self.executor, task, jobs, known, advance)

    def describe(
        self, files: Sequence[Job], settings: Job, depends: Job, what: str = "describe scans"
    ) -> tuple[list[Result], list[Job]]:
        """Where scans are and how large; and jobs that name their descriptions in the cache."""
        known = [depends | {"content": file["content"]} for file in files]
        jobs = [
            settings | file | {"entry": str(self.cache / f"{content_key(one, __version__)}.npz")}
            for file, one in zip(files, known, strict=True)
        ]
        return self.do(what, describe_scan, jobs, known), jobs

    def register(
        self, pairs: Sequence[Pair], jobs: Sequence[Job], depends: Job, what: str = "register pairs"
    ) -> dict[Pair, Found]:
        """What registration finds of described scans."""
        # Which scan is the source follows from what they hold, so that renaming files changes nothing.
        ends = [sorted(pair, key=lambda k: str(jobs[k]["content"])) for pair in pairs]
        work = [{"source": jobs[i], "target": jobs[j]} for i, j in ends]
        known = [depends | {end: scan["content"] for end, scan in job.items()} for job in work]
        results = self.do(what, register_pair, work, known)
        return {
            pair: Found.of(i, j, result, depends["keypoints"])
            for pair, (i, j), result in zip(pairs, ends, results, strict=True)
        }

    def register_again(
        self,
        pairs: Sequence[Pair],
        found: dict[Pair, Found],
        jobs: Sequence[Job],
        depends: Job,
        keypoints: int,
    ) -> dict[Pair, Found]:
        """The same after another try of some pairs with more keypoints."""
        scans = sorted({scan for pair in pairs for scan in pair})
        begun = [jobs[k] | {"begun": jobs[k]["entry"]} for k in scans]
        depends = depends | {"keypoints": keypoints}
        more = list(jobs)
        told = {"keypoints": keypoints}
        for k, job in zip(scans, self.describe(begun, told, depends, "describe further")[1], strict=True):
            more[k] = job
        second = self.register(pairs, more, depends, "register again")
        better = {p: f for p, f in second.items() if p not in found or f.confidence > found[p].confidence}
        return dict(sorted((found | better).items()))


def _build_result(
    names: list[str],
    lost: dict[str, str],
    paths: dict[str, Path],
    found: list[tuple[Pair, Found]],
    placed: Placed,
    offsets: list[Pose],
    resolution: float,
) -> Reconstruction:
    """What was found, in the names and the coordinates of the files."""

    def in_files(T_b_a: Pose, a: int, b: int) -> Pose:
        T = T_b_a.copy()
        T[:3, 3] *= resolution / INDOOR_RESOLUTION
        return with_offsets(T, offsets[a], offsets[b])

    pairs, best = [], dict[int, float]()
    for (ends, pair), edge, verdict, deviation in zip(found, *placed[1:], strict=True):
        for scan in ends:
            best[scan] = max(pair.confidence, best.get(scan, 0.0))
        a, b, T, tried = *ends, None, (0.0, 0.0, 0)
        if edge is not None:
            a, b, T = edge.source, edge.target, in_files(edge.T_target_source, edge.source, edge.target)
            rank = next(k for k, other in enumerate(pair.edges) if other is edge)
            tried = (edge.confidence, pair.overlaps[rank], rank)
        pairs.append(PairResult(names[a], names[b], T, *tried, pair.keypoints, verdict, deviation))
    graph = placed.graph
    components = [scans for scans in graph.components if len(scans) > 1]
    alone = {
        names[k]: f"no scan was found to overlap with it; the best pair has a confidence of {best[k]:.2f}"
        for scans in graph.components if len(scans) == 1 for k in scans
    }  # fmt: skip
    return Reconstruction(
        T_world_scan={names[k]: in_files(graph.T_world_scan[k], k, c[0]) for c in components for k in c},
        components=[[names[k] for k in scans] for scans in components],
        not_placed=lost | alone,
        pairs=pairs,
        resolution=resolution,
        paths=paths,
    )


def _as_files(scans: Sequence[Any], cache: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Paths by name, and why there are none of other scans. Work travels as paths, so arrays become files."""
    if isinstance(scans, str | Path):
        raise InputError(f"{scans}: give a list of scans, as in reconstruct(sorted(Path(…).glob('*.ply')))")
    paths, lost = dict[str, Path](), dict[str, str]()
    short = Counter(Path(scan).name for scan in scans if isinstance(scan, str | Path))
    for number, scan in enumerate(scans):
        if isinstance(scan, str | Path):
            name = Path(scan).name if short[Path(scan).name] == 1 else str(scan)
            paths[name if name not in paths else f"{name} ({number})"] = Path(scan)
            continue
        try:
            points = clean(scan.points if isinstance(scan, Cloud) else scan)
            path = cache / f"scan_{number}.npy"
            write_points(path, points.points.astype(np.float64) + points.offset)
            paths[f"scan {number}"] = path
        except InputError as error:
            lost[f"scan {number}"] = str(error)
    return paths, lost


def _settings(o: ReconstructOptions, surveys: list[Result]) -> tuple[Job, Job]:
    """What all jobs are told, and what their results depend on."""
    scale = Scale.combine([s["spacing"] for s in surveys], [s["extent"] for s in surveys])
    resolution = o.resolution or scale.resolution
    told = o.model_dump(exclude={"neighbours", "more_keypoints"}) | {"resolution": resolution}
    depends = told | {"weights": content_of(pretrained.find(o.model))}
    if o.device == "auto":
        depends["device"] = "cuda" if torch.cuda.is_available() else "cpu"
    return told | {"most": max(o.keypoints, o.more_keypoints)}, depends


def _usable(
    names: list[str], jobs: list[Job], results: list[Result], lost: dict[str, str]
) -> tuple[list[str], list[Job], list[Result]]:
    """Names, jobs and results without those that say an error, which are added to the lost ones."""
    lost |= {name: r["error"] for name, r in zip(names, results, strict=True) if "error" in r}
    kept = [k for k, result in enumerate(results) if "error" not in result]
    if len(kept) < 2:
        why = "".join(f"; {name} was left out: {reason}" for name, reason in list(lost.items())[:3])
        raise InputError(f"needed are two scans or more, and there is {('none', 'one')[len(kept)]}{why}")
    return [names[k] for k in kept], [jobs[k] for k in kept], [results[k] for k in kept]
