"""Many calls leave nothing behind, and many threads find what one finds."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import wsdesc
from wsdesc.datasets.synthetic import room_scans
from wsdesc.descriptor.description import Description

SMALL = {"keypoints": (60,), "hypotheses": 2, "refined": 1}
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@pytest.fixture(scope="module")
def scans():
    return [fragment.points.astype(np.float64) for fragment in room_scans(3, 3, resolution=0.1)]


def own_memory():
    """Without the pages of libraries, which come and go with the system's cache."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(line[1]) for line in lines if line[0] in ("RssAnon:", "VmSwap:"))


@linux
def test_memory_and_open_files_stay_as_they_are(scans):
    memory, files = [], []
    for _ in range(20):
        wsdesc.register(scans[0], scans[1], **SMALL)
        memory.append(own_memory())
        files.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208
    assert max(memory[10:]) < 1.02 * max(memory[:10])
    assert files[-1] == files[5]


def test_threads_at_once_find_what_one_finds(scans):
    pairs = [(scans[k % 2], scans[1 + k % 2]) for k in range(8)]
    alone = [wsdesc.register(*pair, **SMALL) for pair in pairs[:2]]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda pair: wsdesc.register(*pair, **SMALL), pairs))
    for k, result in enumerate(together):
        assert (result.T_target_source == alone[k % 2].T_target_source).all()
        assert result.confidence == alone[k % 2].confidence


def save_again_and_again(path, source):
    """Keep writing one description, and reading what is there."""
    description = Description.load(source)
    for _ in range(50):
        description.save(path)
        assert len(Description.load(path).points) == len(description.points)


def test_two_processes_do_not_damage_an_entry_of_the_cache(scans, tmp_path):
    source, entry = tmp_path / "source.npz", tmp_path / "cache" / "entry.npz"
    entry.parent.mkdir()
    wsdesc.describe(scans[0], keypoints=20).save(source)
    spawn = get_context("spawn")
    both = [spawn.Process(target=save_again_and_again, args=(entry, source)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    assert [path.name for path in entry.parent.iterdir()] == ["entry.npz"]
