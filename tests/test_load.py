"""Many calls do not leak, and concurrent calls give the results of single ones."""

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

pytestmark = pytest.mark.slow

SMALL = {"keypoints": (60,), "hypotheses": 2, "refined": 1}


@pytest.fixture(scope="module")
def scans():
    return [scan.points.astype(np.float64) for scan in room_scans(3, 3, resolution=0.1)]


def anonymous_memory():
    """Return the process's memory without pages of libraries, which the system loads and drops."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(line[1]) for line in lines if line[0] in ("RssAnon:", "VmSwap:"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_many_calls_leak_neither_memory_nor_files(scans):
    memory, files = [], []
    for _ in range(20):
        wsdesc.register(scans[0], scans[1], **SMALL)
        memory.append(anonymous_memory())
        files.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208
    assert max(memory[10:]) < 1.02 * max(memory[:10])
    assert files[-1] == files[5]


def test_concurrent_threads_give_the_same_bits(scans):
    pairs = [(scans[k % 2], scans[1 + k % 2]) for k in range(8)]
    single = [wsdesc.register(*pair, **SMALL) for pair in pairs[:2]]
    with ThreadPoolExecutor(8) as pool:
        concurrent = list(pool.map(lambda pair: wsdesc.register(*pair, **SMALL), pairs))
    for k, result in enumerate(concurrent):
        np.testing.assert_array_equal(result.T_target_source, single[k % 2].T_target_source)
        assert result.confidence == single[k % 2].confidence


def save_repeatedly(path, source):
    """Write and read one description many times."""
    description = Description.load(source)
    for _ in range(50):
        description.save(path)
        assert len(Description.load(path).points) == len(description.points)


def test_two_processes_may_write_one_cache_entry(scans, tmp_path):
    source, entry = tmp_path / "source.npz", tmp_path / "cache" / "entry.npz"
    entry.parent.mkdir()
    wsdesc.describe(scans[0], keypoints=20).save(source)
    spawn = get_context("spawn")
    processes = [spawn.Process(target=save_repeatedly, args=(entry, source)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert [path.name for path in entry.parent.iterdir()] == ["entry.npz"]
