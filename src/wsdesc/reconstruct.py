"""Put many scans into one frame: describe each once, register those that look alike, keep what agrees.

read → describe → propose pairs → register them → reject wrong edges → pose graph. All work on single scans
and pairs goes through an executor and a journal, so that it can be spread, and stopped at any time.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field

from wsdesc import __version__
from wsdesc.align.loops import place
from wsdesc.align.observability import Information
from wsdesc.align.posegraph import Edge
from wsdesc.align.surface import Surface
from wsdesc.callable import make_callable
from wsdesc.cloud.clean import clean, with_offsets
from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.files import read_points, write_points
from wsdesc.cloud.units import COARSEST, FINEST, INDOOR_RESOLUTION, LEAST_SPACINGS, SPACINGS, extent, spacing
from wsdesc.describe import pretrained
from wsdesc.describe.description import DEFAULT_MODEL, Description, describe
from wsdesc.describe.signature import candidate_pairs
from wsdesc.errors import InputError, WSDescError
from wsdesc.executors import (
    Executor,
    Job,
    Journal,
    Result,
    Serial,
    content_key,
    content_of,
    locked,
    make_folder,
)
from wsdesc.options import Options
from wsdesc.register import Pose, RegisterOptions, Watch, register_described

JOURNAL = "journal.jsonl"  # in the folder of a run
ALL_PAIRS = 25  # scans up to which every two of them are registered


class ReconstructOptions(Options):
    """How scans are put together. Nothing of it has to be chosen."""

    model: str = DEFAULT_MODEL  # weights by name or path
    resolution: float | None = Field(None, gt=0)  # in the scans' unit; None: found from all of them
    keypoints: int = Field(2000, ge=3)  # of each scan
    neighbours: int = Field(
        10, ge=1
    )  # scans, the most similar, that each is registered with if there are many
    device: str = "auto"
    seed: int = Field(0, ge=0)


class PairResult(NamedTuple):
    """Two scans that were registered, and what became of it."""

    source: str
    target: str
    T_target_source: Pose | None  # in the files' own coordinates; None where no motion was found
    confidence: float
    overlap: float  # share of the source that lies on the target
    rejected: str | None  # why it was not believed; None where it was
    deviation: float | None  # from the final poses, in standard deviations of the edge


@dataclass(frozen=True, eq=False)
class Reconstruction:
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
    watch: Watch | None = None,
    **options: Any,
) -> Reconstruction:
    """Find the poses of `scans` in one frame, by their overlaps alone.

    Scans are paths of files, `Cloud`s, or points (N, 3), in one unit and any poses. Those that cannot be read
    are left out, and named. Options are the fields of `ReconstructOptions`. In `folder` descriptions and
    finished pairs are kept: a run that was stopped goes on there, with the same result to the bit.
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as folder:
            return assemble(scans, Path(folder), executor or Serial(), watch, **options)
    with locked(Path(folder)):
        return assemble(scans, Path(folder), executor or Serial(), watch, **options)


def assemble(
    scans: Sequence[Any], folder: Path, executor: Executor, watch: Watch | None = None, **options: Any
) -> Reconstruction:
    """What `reconstruct` does in a folder that is locked already."""
    o = ReconstructOptions.read(options)
    watch = watch or (lambda name, total: nullcontext(lambda done: None))
    folder = folder.absolute()  # work may be done elsewhere
    paths, lost = _as_files(scans, folder / "cache")
    journal = Journal(folder / JOURNAL)

    with watch("read scans", len(paths)) as advance:
        files = [{"path": str(path.absolute()), "content": content_of(path)} for path in paths.values()]
        known = [{"content": f["content"], "version": __version__} for f in files]
        surveys = journal.run(executor, survey_scan, files, known, advance)
    lost |= {name: s["error"] for name, s in zip(paths, surveys, strict=True) if "error" in s}
    names, files, surveys = _without(lost, paths, files, surveys)
    _enough(names, lost)
    settings, identity = _settings(o, surveys)

    with watch("describe scans", len(names)) as advance:
        known = [identity | {"content": f["content"]} for f in files]
        entries = [str(folder / "cache" / f"{content_key(one)}.npz") for one in known]
        jobs = [settings | file | {"entry": entry} for file, entry in zip(files, entries, strict=True)]
        scales = journal.run(executor, describe_scan, jobs, known, advance)
    lost |= {name: s["error"] for name, s in zip(names, scales, strict=True) if "error" in s}
    names, jobs, scales = _without(lost, names, jobs, scales)
    _enough(names, lost)
    pairs = list(combinations(range(len(names)), 2))
    if len(names) > ALL_PAIRS:
        pairs = candidate_pairs([_described(job).descriptors for job in jobs], o.neighbours, o.seed)
    # Which scan is the source follows from what they hold, so that renaming files changes nothing.
    pairs = [(i, j) if jobs[i]["content"] <= jobs[j]["content"] else (j, i) for i, j in pairs]
    with watch("register pairs", len(pairs)) as advance:
        work = [{"source": jobs[i], "target": jobs[j]} for i, j in pairs]
        known = [identity | {end: w[end]["content"] for end in w} for w in work]
        results = journal.run(executor, register_pair, work, known, advance)

    with watch("place scans", 0):
        edges = [_edge(*ends, result) for ends, result in zip(pairs, results, strict=True)]
        graph, verdicts, deviations = place(edges, np.array([s["radius"] for s in scales]))
    offsets = [np.array(s["offset"]) for s in scales]
    unit = settings["resolution"] / INDOOR_RESOLUTION

    def in_files(T_b_a: Pose, a: int, b: int) -> Pose:
        T = T_b_a.copy()
        T[:3, 3] *= unit
        return with_offsets(T, offsets[a], offsets[b])

    def told(ends: tuple[int, int], edge: Edge, result: Result, *judged: Any) -> PairResult:
        T = in_files(edge.T_target_source, *ends) if result["T_target_source"] else None
        return PairResult(names[ends[0]], names[ends[1]], T, edge.confidence, result["overlap"], *judged)

    placed = [scans for scans in graph.components if len(scans) > 1]
    alone = [k for scans in graph.components if len(scans) == 1 for k in scans]
    return Reconstruction(
        T_world_scan={names[k]: in_files(graph.T_world_scan[k], k, c[0]) for c in placed for k in c},
        components=[[names[k] for k in scans] for scans in placed],
        not_placed=lost | {names[k]: _why_alone(k, edges) for k in alone},
        pairs=list(map(told, pairs, edges, results, verdicts, deviations)),
        resolution=settings["resolution"],
        paths=paths,
    )


def survey_scan(job: Job) -> Result:
    """Whether a scan can be read, and its scale."""
    try:
        points = read_points(job["path"], nonfinite="drop")
        return {"spacing": spacing(points), "extent": extent(points)}
    except WSDescError as error:
        return {"error": str(error)}


def describe_scan(job: Job) -> Result:
    """Have the description of a scan in the cache; where the scan is, and how large."""
    try:
        found = _described(job)
    except _Unusable as error:
        return {"error": f"{job['path']}: {error}"}
    radius = float(found.points.double().square().sum(1).mean().sqrt())
    return {"offset": found.offset.tolist(), "radius": radius}


def register_pair(job: Job) -> Result:
    """The pose of one described scan in another, in metres of the model about the middles of both."""
    (p, source), (q, target) = (_prepared(tuple(sorted(job[end].items()))) for end in ("source", "target"))
    result = register_described(p, q, RegisterOptions(seed=job["source"]["seed"]), (source, target))
    record: Result = {"confidence": result.confidence, "overlap": result.overlap}
    held = result.information
    if held is None:  # no motion brings them together
        return record | {"T_target_source": None, "rmse": None, "information": None}
    T = with_offsets(result.T_target_source, -p.offset, -q.offset)
    T[:3, 3] /= p.unit
    record |= {"T_target_source": T.tolist(), "rmse": result.rmse / p.unit if held.places else None}
    return record | {"information": [x.tolist() if isinstance(x, np.ndarray) else x for x in held]}


class _Unusable(InputError):
    """A scan that can be read but not described."""


def _described(job: Job) -> Description:
    """A description from the cache; what is not there, or was cut off, is made anew."""
    entry = Path(job["entry"])
    with suppress(Exception):  # whatever half a file leads to
        return Description.load(entry)
    if content_of(Path(job["path"])) != job["content"]:
        raise InputError(f"{job['path']}: was changed while it was worked on: start again")
    try:
        wanted = {name: job[name] for name in ("model", "keypoints", "resolution", "device", "seed")}
        found = describe(job["path"], **wanted)
    except WSDescError as error:
        raise _Unusable(str(error)) from error
    found.save(entry)
    return Description.load(entry)


@lru_cache(maxsize=64)  # with all pairs every scan of many is needed again and again
def _prepared(items: tuple[tuple[str, Any], ...]) -> tuple[Description, Surface]:
    found = _described(dict(items))
    return found, Surface.of(found.points.numpy())


def _as_files(scans: Sequence[Any], cache: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Paths by name, and why there are none of other scans. Work travels as paths, so arrays become files."""
    if isinstance(scans, str | Path):
        raise InputError(f"{scans}: give a list of scans, as in reconstruct(sorted(Path(…).glob('*.ply')))")
    make_folder(cache)
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


def _settings(o: ReconstructOptions, surveys: list[Result]) -> tuple[Job, dict[str, Any]]:
    """What all jobs are told, and what their results depend on."""
    # The rule of `cloud.units.measure`, without having all clouds in memory.
    between, across = (sorted(s[name] for s in surveys)[len(surveys) // 2] for name in ("spacing", "extent"))
    found = max(min(max(SPACINGS * between, FINEST * across), COARSEST * across), LEAST_SPACINGS * between)
    told = o.model_dump(exclude={"neighbours"}) | {"resolution": o.resolution or found}
    identity = told | {"weights": content_of(pretrained.find(o.model)), "version": __version__}
    if o.device == "auto":
        identity["device"] = "cuda" if torch.cuda.is_available() else "cpu"
    return told, identity


def _without(lost: dict[str, str], names: Iterable[str], *lists: list[Any]) -> tuple[Any, ...]:
    """Names and what goes with them, but for those that are lost."""
    kept = [row for row in zip(names, *lists, strict=True) if row[0] not in lost]
    return tuple(map(list, zip(*kept, strict=True))) or ([], *([] for _ in lists))


def _enough(names: list[str], lost: dict[str, str]) -> None:
    if len(names) < 2:
        why = "".join(f"; {name} was left out: {reason}" for name, reason in list(lost.items())[:3])
        raise InputError(f"needed are two scans or more, and there is {('none', 'one')[len(names)]}{why}")


def _edge(source: int, target: int, result: Result) -> Edge:
    matrix, centre, *rest = result["information"] or (np.zeros((6, 6)), np.zeros(3), 0.0, 0.0, 0)
    T = np.eye(4) if result["T_target_source"] is None else np.array(result["T_target_source"])
    held = Information(np.array(matrix), np.array(centre), *rest)
    return Edge(source, target, T, result["confidence"], held, result["rmse"] or INDOOR_RESOLUTION)


def _why_alone(scan: int, edges: Sequence[Edge]) -> str:
    sure = max((e.confidence for e in edges if scan in (e.source, e.target)), default=0.0)
    return f"no other scan was found to overlap with it; the best pair has a confidence of {sure:.2f}"


make_callable(__name__)
