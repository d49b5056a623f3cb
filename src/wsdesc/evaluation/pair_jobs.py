"""Score the pairs of a scene, in this process or as jobs of an executor.

In this process the method is loaded already, and descriptors stay in memory. Other processes load the method
by its recipe, once each. Their jobs hold paths and content hashes; descriptors are exchanged through a folder
that all processes can read.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import InputError
from wsdesc.core.executors import Executor, Serial
from wsdesc.core.journal import file_key
from wsdesc.evaluation.methods import Method, from_recipe
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.scans import DescribedScan, EvaluationScan, describe_scan, load_scan
from wsdesc.evaluation.scenes import EvaluationScene, PairTruth
from wsdesc.evaluation.score import score_pair

Job = dict[str, Any]  # plain values: paths, hashes and settings
Result = dict[str, Any]  # fields of a record
Requests = Sequence[tuple[PairTruth, int]]  # pairs, and the number of keypoints per scan


class SceneSetup(NamedTuple):
    """A method, a scene and the options to score it with."""

    scene: EvaluationScene
    unit: float
    method: Method
    options: PairwiseOptions

    def scan_job(self, number: int) -> Job:
        """Return everything that a scan's points and keypoints depend on."""
        describes = self.method.describer is not None
        keypoints = self.scene.keypoints.get(number)
        return {
            "scene": self.scene.name,
            "number": number,
            "path": str(self.scene.scans[number].absolute()),
            "indices": str(keypoints.absolute()) if keypoints else None,
            "keypoints": max(self.options.keypoints),
            "voxel": self.options.voxel * self.unit if describes else 0.0,
            "full_cloud": self.method.full_cloud,
            "rotated": self.options.rotated,
            "seed": self.options.seed,
        }

    def label(self, number: int) -> str:
        """Name a scan in messages."""
        return f"{self.scene.name}/{self.scene.scans[number].stem}"


def score_pairs(
    setup: SceneSetup,
    requests: Requests,
    executor: Executor,
    folder: Path,
    scan_described: Callable[[], None],
) -> Iterator[tuple[int, Record]]:
    """Yield the number of each request and its record without a key, as they finish.

    Args:
        setup: Method, scene and options.
        requests: Pairs and keypoint counts.
        executor: Executor of the jobs.
        folder: Folder for the temporary exchange of descriptors.
        scan_described: Called after each described scan.
    """
    if isinstance(executor, Serial):
        scorer = _SerialScorer(setup, requests, scan_described)
        return executor.run(scorer, [{"number": k} for k in range(len(requests))])
    return _score_with_jobs(setup, requests, executor, folder, scan_described)


class _SerialScorer:
    """Score pairs in this process; a scan is described when its first pair needs it."""

    def __init__(self, setup: SceneSetup, requests: Requests, scan_described: Callable[[], None]) -> None:
        self.setup, self.requests, self.scan_described = setup, requests, scan_described
        self.scans: dict[int, DescribedScan] = {}

    def __call__(self, job: Job) -> Result:
        pair, count = self.requests[job["number"]]
        _, unit, method, options = self.setup
        for number in (pair.i, pair.j):
            if number not in self.scans:
                scan = _load(self.setup.scan_job(number))
                self.scans[number] = describe_scan(method, scan, unit, self.setup.label(number))
                self.scan_described()
        return score_pair(method, pair, self.scans[pair.j], self.scans[pair.i], count, unit, options)


def _score_with_jobs(
    setup: SceneSetup,
    requests: Requests,
    executor: Executor,
    folder: Path,
    scan_described: Callable[[], None],
) -> Iterator[tuple[int, Record]]:
    if setup.method.recipe is None:
        raise InputError(f"{setup.method.name}: exists only in this process; evaluate it without --jobs")
    common = {"method": setup.method.recipe, "fingerprint": setup.method.fingerprint, "unit": setup.unit}
    with tempfile.TemporaryDirectory(dir=folder.absolute(), prefix=".descriptors-") as shared:
        numbers = sorted({number for pair, _ in requests for number in (pair.i, pair.j)})
        scans = {}
        for number in numbers:
            scan_job = setup.scan_job(number)
            exchange = {"descriptors": f"{shared}/{number}.npy", "label": setup.label(number)}
            scans[number] = scan_job | exchange | {"content": file_key(scan_job["path"])}
        jobs = [common | {"scan": scans[number]} for number in numbers]
        for k, result in executor.run(describe_scan_job, jobs):
            scans[numbers[k]] |= {"failure": result["failure"], "seconds": result["seconds"]}
            scan_described()
        options = setup.options.model_dump(mode="json")
        yield from executor.run(
            score_pair_job,
            [
                common | {
                    "source": scans[pair.j],
                    "target": scans[pair.i],
                    "pair": [pair.i, pair.j],
                    "T_i_j": pair.T_i_j.tolist(),
                    "information": None if pair.information is None else pair.information.tolist(),
                    "count": count,
                    "options": options,
                }
                for pair, count in requests
            ],
        )  # fmt: skip


def describe_scan_job(job: Job) -> Result:
    """Describe a scan, write its descriptors, and return why they are unusable, if they are, and the time."""
    scan_job, method = job["scan"], _method(job)
    if file_key(scan_job["path"]) != scan_job["content"]:
        raise InputError(f"{scan_job['path']}: the file differs on a worker; give all workers the same files")
    described = describe_scan(method, _load(scan_job), job["unit"], scan_job["label"])
    if described.descriptors is not None:
        with atomic_write(scan_job["descriptors"]) as temporary:
            np.save(temporary, described.descriptors.cpu().numpy())
    return {"failure": described.failure, "seconds": described.seconds}


def score_pair_job(job: Job) -> Result:
    """Score a pair of described scans."""
    method = _method(job)
    source, target = (
        _read_described(json.dumps(job[end]), method.describer is not None) for end in ("source", "target")
    )
    information = job["information"]
    i, j = job["pair"]
    T_i_j = np.array(job["T_i_j"])
    pair = PairTruth(i, j, T_i_j, None if information is None else np.array(information))
    options = PairwiseOptions.read(job["options"])
    return score_pair(method, pair, source, target, job["count"], job["unit"], options)


def _method(job: Job) -> Method:
    method = _load_method(json.dumps(job["method"]))
    if method.fingerprint != job["fingerprint"]:
        raise InputError(f"{method.name}: a worker has other weights under this name")
    return method


@lru_cache(maxsize=4)
def _load_method(recipe: str) -> Method:
    return from_recipe(json.loads(recipe))


@lru_cache(maxsize=64)
def _read_described(text: str, has_descriptors: bool) -> DescribedScan:
    """Read a scan, whose job is given as JSON, and its descriptors."""
    scan_job = json.loads(text)
    file = Path(scan_job["descriptors"])
    readable = has_descriptors and file.is_file()  # missing where the peer has failed
    descriptors = torch.from_numpy(np.load(file, allow_pickle=False)) if readable else None
    return DescribedScan(_load(scan_job), descriptors, scan_job["failure"], scan_job["seconds"])


def _load(scan_job: Job) -> EvaluationScan:
    number = scan_job["number"]
    indices = {number: Path(scan_job["indices"])} if scan_job["indices"] else {}
    scene = EvaluationScene(scan_job["scene"], {number: Path(scan_job["path"])}, [], indices)
    settings = {name: scan_job[name] for name in ("keypoints", "voxel", "full_cloud", "rotated", "seed")}
    return load_scan(scene, number, **settings)
