"""Fragments to describe and pairs to judge: in this process, or as jobs that an executor does elsewhere.

Here the method is at hand, and what it says of fragments stays in memory. Elsewhere it is loaded by its
recipe, once in each process; jobs hold paths and content hashes of files that all see, and descriptors travel
through a folder that all see as well.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import InputError
from wsdesc.core.executors import Executor, Job, Result, Serial
from wsdesc.core.journal import content_of
from wsdesc.evaluation.fragments import Described, Fragment, describe_fragment, load_fragment
from wsdesc.evaluation.methods import Method, from_recipe
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.scenes import PairTruth, TestScene
from wsdesc.evaluation.score import PairwiseOptions, judge

Wanted = Sequence[tuple[PairTruth, int]]  # pairs, and how many keypoints of each fragment


class Work(NamedTuple):
    """What a method is to do with fragments of a scene."""

    scene: TestScene
    unit: float
    method: Method
    options: PairwiseOptions

    def fragment_job(self, number: int) -> Job:
        """All that a fragment's points and keypoints follow from."""
        describes = self.method.describer is not None
        keypoints = self.scene.keypoints.get(number)
        return {
            "scene": self.scene.name,
            "number": number,
            "path": str(self.scene.fragments[number].absolute()),
            "indices": str(keypoints.absolute()) if keypoints else None,
            "keypoints": max(self.options.keypoints),
            "voxel": self.options.voxel * self.unit if describes else 0.0,
            "rotated": self.options.rotated,
            "seed": self.options.seed,
        }

    def where(self, number: int) -> str:
        """The fragment, for people."""
        return f"{self.scene.name}/{self.scene.fragments[number].stem}"


def judge_pairs(
    work: Work, wanted: Wanted, executor: Executor, folder: Path, described: Callable[[], None]
) -> Iterator[tuple[int, Record]]:
    """The number of each wanted pair and its record without a key, as they are judged.

    `described` is called after each fragment. In `folder` lies for a while what others shall read.
    """
    if isinstance(executor, Serial):
        return executor.run(_Here(work, wanted, described), [{"number": k} for k in range(len(wanted))])
    return _judge_elsewhere(work, wanted, executor, folder, described)


class _Here:
    """Judges pairs in this process; fragments are described when the first pair needs them."""

    def __init__(self, work: Work, wanted: Wanted, described: Callable[[], None]) -> None:
        self.work, self.wanted, self.described = work, wanted, described
        self.known: dict[int, Described] = {}

    def __call__(self, job: Job) -> Result:
        pair, count = self.wanted[job["number"]]
        _, unit, method, options = self.work
        for number in (pair.i, pair.j):
            if number not in self.known:
                fragment = _load(self.work.fragment_job(number))
                self.known[number] = describe_fragment(method, fragment, unit, self.work.where(number))
                self.described()
        return judge(method, pair, self.known[pair.j], self.known[pair.i], count, unit, options)


def _judge_elsewhere(
    work: Work, wanted: Wanted, executor: Executor, folder: Path, described: Callable[[], None]
) -> Iterator[tuple[int, Record]]:
    if work.method.recipe is None:
        raise InputError(f"{work.method.name}: is known in this process only: judge it without --jobs")
    common = {"method": work.method.recipe, "fingerprint": work.method.fingerprint, "unit": work.unit}
    with tempfile.TemporaryDirectory(dir=folder.absolute(), prefix=".descriptors-") as shared:
        numbers = sorted({number for pair, _ in wanted for number in (pair.i, pair.j)})
        fragments = {}
        for number in numbers:
            file = work.fragment_job(number)
            place = {"features": f"{shared}/{number}.npy", "where": work.where(number)}
            fragments[number] = file | place | {"content": content_of(file["path"])}
        jobs = [common | {"fragment": fragments[number]} for number in numbers]
        for k, result in executor.run(describe_there, jobs):
            fragments[numbers[k]]["failure"] = result["failure"]
            described()
        options = work.options.model_dump(mode="json")
        yield from executor.run(
            judge_there,
            [
                common | {
                    "source": fragments[pair.j],
                    "target": fragments[pair.i],
                    "pair": [pair.i, pair.j],
                    "T_i_j": pair.T_i_j.tolist(),
                    "information": None if pair.information is None else pair.information.tolist(),
                    "count": count,
                    "options": options,
                }
                for pair, count in wanted
            ],
        )  # fmt: skip


def describe_there(job: Job) -> Result:
    """Describe a fragment, leave its descriptors where the job says; and why they cannot be used, if so."""
    file, method = job["fragment"], _method(job)
    if content_of(file["path"]) != file["content"]:
        raise InputError(f"{file['path']}: holds something else where a worker reads it")
    found = describe_fragment(method, _load(file), job["unit"], file["where"])
    if found.features is not None:
        with atomic_write(file["features"]) as temporary:
            np.save(temporary, found.features.cpu().numpy())
    return {"failure": found.failure}


def judge_there(job: Job) -> Result:
    """Judge a pair whose fragments were described."""
    method = _method(job)
    source, target = (
        _described(json.dumps(job[end]), method.describer is not None) for end in ("source", "target")
    )
    known = job["information"]
    i, j = job["pair"]
    pair = PairTruth(i, j, np.array(job["T_i_j"]), None if known is None else np.array(known))
    options = PairwiseOptions.read(job["options"])
    return judge(method, pair, source, target, job["count"], job["unit"], options)


def _method(job: Job) -> Method:
    method = _loaded(json.dumps(job["method"]))
    if method.fingerprint != job["fingerprint"]:
        raise InputError(f"{method.name}: a worker has other weights of that name")
    return method


@lru_cache(maxsize=4)
def _loaded(recipe: str) -> Method:
    return from_recipe(json.loads(recipe))


@lru_cache(maxsize=64)
def _described(file: str, features: bool) -> Described:
    job = json.loads(file)
    vectors = torch.from_numpy(np.load(job["features"], allow_pickle=False)) if features else None
    return Described(_load(job), vectors, job["failure"])


def _load(file: Job) -> Fragment:
    number = file["number"]
    indices = {number: Path(file["indices"])} if file["indices"] else {}
    scene = TestScene(file["scene"], {number: Path(file["path"])}, [], indices)
    settings = {name: file[name] for name in ("keypoints", "voxel", "rotated", "seed")}
    return load_fragment(scene, number, **settings)
