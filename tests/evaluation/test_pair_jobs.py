"""Pairs judged elsewhere get the records that they get here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from wsdesc.core.errors import InputError
from wsdesc.core.executors import Job, Result, Serial, Task
from wsdesc.evaluation.methods import Method, from_recipe
from wsdesc.evaluation.pairwise import PairwiseOptions, run_pairwise
from wsdesc.evaluation.scenes import read_test_scenes

OPTIONS = PairwiseOptions(keypoints=(60, 30), voxel=0, rotated=True)


class Elsewhere:
    """Does jobs, from the last to the first, as a process would that got nothing but their text."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Job]] = []

    def run(self, task: Task, jobs: list[Job]) -> Iterator[tuple[int, Result]]:
        for number in reversed(range(len(jobs))):
            job = json.loads(json.dumps(jobs[number]))
            self.done.append((task.__name__, job))
            yield number, json.loads(json.dumps(task(job)))

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "recipe", [{"model": "untrained-fast", "device": "cpu"}, {"pipeline": "indoor-fast", "device": "cpu"}]
)
def test_the_same_records_here_and_elsewhere(
    scene_root: Path, tmp_path: Path, recipe: dict[str, str]
) -> None:
    scenes, method = read_test_scenes(scene_root), from_recipe(recipe)
    here = run_pairwise("3dmatch", scenes, [method], OPTIONS, tmp_path / "here", executor=Serial())
    executor = Elsewhere()
    there = run_pairwise("3dmatch", scenes, [method], OPTIONS, tmp_path / "there", executor=executor)
    assert there == here
    tasks = [task for task, _ in executor.done]
    pairs = 12 if "model" in recipe else 6  # six, with two numbers of keypoints
    assert (tasks.count("describe_there"), tasks.count("judge_there")) == (4, pairs)
    assert all(len(json.dumps(job)) < 5000 for _, job in executor.done)  # clouds have 300 points
    assert not list((tmp_path / "there").glob(".descriptors*"))

    again = Elsewhere()
    assert run_pairwise("3dmatch", scenes, [method], OPTIONS, tmp_path / "there", executor=again) == here
    assert again.done == []


def test_a_method_without_a_recipe_stays_here(scene_root: Path, right: Method, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="in this process only"):
        run_pairwise(
            "3dmatch", read_test_scenes(scene_root), [right], OPTIONS, tmp_path, executor=Elsewhere()
        )


def test_other_weights_or_files_of_the_same_name_are_noticed(scene_root: Path, tmp_path: Path) -> None:
    scenes, method = read_test_scenes(scene_root), from_recipe({"model": "untrained-fast", "device": "cpu"})

    class Changing(Elsewhere):
        def __init__(self, *place: str) -> None:
            super().__init__()
            self.place = place

        def run(self, task: Task, jobs: list[Job]) -> Iterator[tuple[int, Result]]:
            for job in jobs:
                for name in self.place[:-1]:
                    job = job[name]
                job[self.place[-1]] = "another"
            return super().run(task, jobs)

    with pytest.raises(InputError, match="other weights"):
        run_pairwise("3dmatch", scenes, [method], OPTIONS, tmp_path / "a", executor=Changing("fingerprint"))
    files = Changing("fragment", "content")
    with pytest.raises(InputError, match="something else"):
        run_pairwise("3dmatch", scenes, [method], OPTIONS, tmp_path / "b", executor=files)
