"""Jobs of an executor give the same records as this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peer_weights import save_random
from wsdesc.core.errors import InputError
from wsdesc.core.executors import Serial
from wsdesc.evaluation.methods import Method, from_recipe
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.pair_jobs import Job, Result
from wsdesc.evaluation.pairwise import evaluate_pairs
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.scenes import read_scenes
from wsdesc.peers.pointnetlk import _Network as peer_network

OPTIONS = PairwiseOptions(keypoints=(60, 30), voxel=0, rotated=True)


class TextExecutor:
    """Run jobs from the last to the first, passed as JSON text as to another process."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Job]] = []

    def run(self, task: Callable[[Job], Result], jobs: list[Job]) -> Iterator[tuple[int, Result]]:
        for number in reversed(range(len(jobs))):
            job = json.loads(json.dumps(jobs[number]))
            self.done.append((task.__name__, job))
            yield number, json.loads(json.dumps(task(job)))

    def close(self) -> None:
        pass


def _without_times(results: dict[str, list[Record]]) -> dict[str, list[Record]]:
    return {
        name: [{field: value for field, value in record.items() if field != "seconds"} for record in records]
        for name, records in results.items()
    }


@pytest.mark.parametrize(
    "recipe",
    [
        {"model": "untrained-fast", "device": "cpu"},
        pytest.param({"pipeline": "indoor-fast", "device": "cpu"}, marks=pytest.mark.slow),
    ],
)
def test_jobs_give_the_records_of_this_process(
    scene_root: Path, tmp_path: Path, recipe: dict[str, str]
) -> None:
    scenes, method = read_scenes(scene_root), from_recipe(recipe)
    serial = evaluate_pairs("3dmatch", scenes, [method], OPTIONS, tmp_path / "serial", executor=Serial())
    executor = TextExecutor()
    jobs = evaluate_pairs("3dmatch", scenes, [method], OPTIONS, tmp_path / "jobs", executor=executor)
    assert _without_times(jobs) == _without_times(serial)
    tasks = [task for task, _ in executor.done]
    pairs = 12 if "model" in recipe else 6  # six, with two keypoint counts
    assert (tasks.count("describe_scan_job"), tasks.count("score_pair_job")) == (4, pairs)
    assert all(
        len(json.dumps(job)) < 5000 for _, job in executor.done
    )  # no clouds in jobs: they have 300 points
    assert not list((tmp_path / "jobs").glob(".descriptors*"))

    again = TextExecutor()
    assert evaluate_pairs("3dmatch", scenes, [method], OPTIONS, tmp_path / "jobs", executor=again) == jobs
    assert again.done == []


def test_workers_load_the_weights_of_a_peer(scene_root: Path, tmp_path: Path) -> None:
    save_random(peer_network(), tmp_path / "pointnetlk.safetensors")
    recipe = {"peer": "pointnetlk", "device": "cpu", "weights": str(tmp_path)}
    scenes, method = read_scenes(scene_root), from_recipe(recipe)
    serial = evaluate_pairs("3dmatch", scenes, [method], OPTIONS, tmp_path / "serial", executor=Serial())
    jobs = evaluate_pairs("3dmatch", scenes, [method], OPTIONS, tmp_path / "jobs", executor=TextExecutor())
    assert _without_times(jobs) == _without_times(serial)
    settings = json.loads((tmp_path / "jobs" / "pointnetlk.jsonl").read_text().splitlines()[0])
    assert settings["weights"].startswith("peer pointnetlk.safetensors ")


def test_method_without_recipe_is_refused(scene_root: Path, exact_method: Method, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only in this process"):
        evaluate_pairs(
            "3dmatch", read_scenes(scene_root), [exact_method], OPTIONS, tmp_path, executor=TextExecutor()
        )


def test_workers_with_other_weights_or_files_are_refused(scene_root: Path, tmp_path: Path) -> None:
    scenes, method = read_scenes(scene_root), from_recipe({"model": "untrained-fast", "device": "cpu"})

    class Changing(TextExecutor):
        def __init__(self, *place: str) -> None:
            super().__init__()
            self.place = place

        def run(self, task: Callable[[Job], Result], jobs: list[Job]) -> Iterator[tuple[int, Result]]:
            for job in jobs:
                for name in self.place[:-1]:
                    job = job[name]
                job[self.place[-1]] = "another"
            return super().run(task, jobs)

    with pytest.raises(InputError, match="other weights"):
        evaluate_pairs("3dmatch", scenes, [method], OPTIONS, tmp_path / "a", executor=Changing("fingerprint"))
    files = Changing("scan", "content")
    with pytest.raises(InputError, match="differs on a worker"):
        evaluate_pairs("3dmatch", scenes, [method], OPTIONS, tmp_path / "b", executor=files)
