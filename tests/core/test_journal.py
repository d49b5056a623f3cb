"""The journal runs no job twice, and survives damage, kills and full disks."""

import json
from dataclasses import asdict, dataclass

import pytest

from wsdesc.core.errors import FileFormatError
from wsdesc.core.executors import Serial
from wsdesc.core.journal import Journal, content_key, file_key


def square(job):
    return {"square": job["x"] ** 2, "third": job["x"] / 3}


JOBS = [{"x": x} for x in range(5)]
SQUARES = [square(job) for job in JOBS]
PLAIN = {"encode": dict, "decode": dict}  # results are dictionaries already


class Counting(Serial):
    """Record finished jobs; stop the run when `limit` jobs are finished."""

    def __init__(self, limit=10**9):
        self.finished, self.limit = [], limit

    def run(self, task, jobs):
        for number, result in super().run(task, jobs):
            if len(self.finished) == self.limit:
                raise KeyboardInterrupt
            self.finished.append(jobs[number])
            yield number, result


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def test_no_job_runs_twice(path):
    first, second = Counting(), Counting()
    assert Journal(path).run(first, square, JOBS, JOBS, **PLAIN) == SQUARES
    assert Journal(path).run(second, square, JOBS, JOBS, **PLAIN) == SQUARES
    assert (len(first.finished), len(second.finished)) == (5, 0)


def test_equal_identities_run_once(path):
    executor = Counting()
    assert Journal(path).run(executor, square, JOBS[:2] * 2, JOBS[:2] * 2, **PLAIN) == SQUARES[:2] * 2
    assert len(executor.finished) == 2


def test_a_stopped_run_continues(path):
    with pytest.raises(KeyboardInterrupt):
        Journal(path).run(Counting(limit=3), square, JOBS, JOBS, **PLAIN)
    executor, advances = Counting(), []
    assert Journal(path).run(executor, square, JOBS, JOBS, advances.append, **PLAIN) == SQUARES
    assert executor.finished == JOBS[3:]
    assert advances == [3, 1, 1]


@pytest.mark.parametrize("cut", [1, 20])
def test_only_the_job_of_a_cut_off_line_runs_again(path, cut):
    Journal(path).run(Serial(), square, JOBS, JOBS, **PLAIN)
    path.write_bytes(path.read_bytes()[:-cut])
    for expected in (JOBS[4:] if cut > 1 else [], []):
        executor = Counting()
        assert Journal(path).run(executor, square, JOBS, JOBS, **PLAIN) == SQUARES
        assert executor.finished == expected


def test_only_the_job_of_a_damaged_line_runs_again(path):
    Journal(path).run(Serial(), square, JOBS, JOBS, **PLAIN)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"\xff\x00nonsense\n", b"[1]\n", *lines[2:]]))
    executor = Counting()
    assert Journal(path).run(executor, square, JOBS, JOBS, **PLAIN) == SQUARES
    assert executor.finished == JOBS[1:2]


def test_failed_jobs_run_again(path):
    def fail(job):
        return {"error": "no"}

    for _ in range(2):
        executor = Counting()
        assert Journal(path).run(executor, fail, JOBS[:1], JOBS[:1], **PLAIN) == [{"error": "no"}]
        assert len(executor.finished) == 1


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Third:
    value: float


def third(job):
    return Third(job.value / 3)


def test_dataclasses_are_stored_as_plain_values(path):
    numbers = [Number(float(x)) for x in range(4)]
    identities = [asdict(number) for number in numbers]

    def run(executor):
        return Journal(path).run(
            executor, third, numbers, identities, encode=asdict, decode=lambda plain: Third(**plain)
        )

    first, second = Counting(), Counting()
    assert run(first) == run(second) == [third(number) for number in numbers]
    assert second.finished == []


def test_a_line_that_cannot_be_decoded_counts_as_damaged(path):
    numbers = [Number(1.0), Number(2.0)]
    keys = [content_key("third", asdict(number)) for number in numbers]
    entries = [{"key": keys[0], "result": {"other": 1}}, {"key": keys[1], "result": {"value": 7.0}}]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    executor = Counting()
    results = Journal(path).run(
        executor,
        third,
        numbers,
        [asdict(number) for number in numbers],
        encode=asdict,
        decode=lambda plain: Third(**plain),
    )
    assert results == [Third(1 / 3), Third(7.0)]
    assert executor.finished == numbers[:1]


def test_a_full_disk_is_reported(path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FileFormatError, match="No space left"):
        Journal(path).run(Serial(), square, JOBS, JOBS, **PLAIN)


def test_an_unreadable_journal_is_reported(tmp_path):
    with pytest.raises(FileFormatError, match="cannot be read"):
        Journal(tmp_path)


def test_content_hashes_depend_on_bytes_and_extension(tmp_path):
    for name in ("a.ply", "b.ply", "c.xyz", "d.ply"):
        (tmp_path / name).write_text("1" if name != "d.ply" else "2")
    a, b, c, d = (file_key(tmp_path / name) for name in ("a.ply", "b.ply", "c.xyz", "d.ply"))
    assert a == b
    assert len({a, c, d, file_key(tmp_path / "missing.ply")}) == 4


def test_content_keys_do_not_depend_on_the_order_of_names():
    assert content_key({"x": 1, "y": 2.5}) == content_key({"y": 2.5, "x": 1}) != content_key({"x": 1})
