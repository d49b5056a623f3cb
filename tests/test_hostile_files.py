"""Damaged and malicious files: a result or a one-line error, in limited time and memory."""

import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from benchmarks.fuzz.expensive import cases
from benchmarks.fuzz.guarantees import BrokenGuarantee, check_reader
from benchmarks.fuzz.readers import READERS, Reader
from benchmarks.fuzz.seeds import make_seeds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wsdesc.cloud.files import read_points
from wsdesc.core.errors import InputError

ROOT = Path(__file__).parents[1]
positions = st.floats(0, 1, exclude_max=True)  # as shares of the length


@cache
def seeds(kind: str) -> list[bytes]:
    with TemporaryDirectory() as folder:
        return make_seeds(kind, Path(folder))


@st.composite
def damages(draw) -> list[tuple]:
    """Draw changes of a file, as arguments of `damage`."""
    kinds = st.one_of(
        st.tuples(st.just("cut"), positions),
        st.tuples(st.just("swap"), st.tuples(positions, positions), st.integers(1, 64)),
        st.tuples(st.just("overwrite"), positions, st.binary(min_size=1, max_size=8)),
        st.tuples(st.just("fill"), positions, st.integers(1, 200), st.sampled_from([0, 32, 57, 255])),
        st.tuples(st.just("repeat"), positions, st.integers(1, 100)),
        st.tuples(st.just("remove"), positions, st.integers(1, 100)),
    )
    return draw(st.lists(kinds, min_size=1, max_size=4))


def damage(content: bytes, changes: list[tuple]) -> bytes:
    for kind, position, *more in changes:
        both = position if kind == "swap" else (position, position)
        first, second = sorted(int(p * len(content)) for p in both)
        if kind == "cut":
            content = content[:first]
        elif kind == "swap":
            size = min(more[0], second - first, len(content) - second)
            one, other = content[first : first + size], content[second : second + size]
            content = (
                content[:first] + other + content[first + size : second] + one + content[second + size :]
            )
        elif kind == "overwrite":
            content = content[:first] + more[0] + content[first + len(more[0]) :]
        elif kind == "fill":
            content = content[:first] + bytes([more[1]]) * more[0] + content[first + more[0] :]
        elif kind == "repeat":
            content = content[: first + more[0]] + content[first:]
        else:
            content = content[:first] + content[first + more[0] :]
    return content


def check_damaged(folder: Path, kind: str, changes: list[tuple], number: int) -> None:
    content = seeds(kind)[number % len(seeds(kind))]
    path = folder / READERS[kind].file_name
    path.write_bytes(READERS[kind].repair(damage(content, changes)))
    check_reader(READERS[kind], path)


def examples(count: int) -> settings:
    fixtures = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=fixtures)


@pytest.mark.parametrize("kind", READERS)
@examples(5)
@given(changes=damages(), number=st.integers(0, 9))
def test_damaged_files(tmp_path, kind, changes, number):
    check_damaged(tmp_path, kind, changes, number)


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
@examples(50)
@given(changes=damages(), number=st.integers(0, 9))
def test_many_damaged_files(tmp_path, kind, changes, number):
    check_damaged(tmp_path, kind, changes, number)


@pytest.mark.parametrize("kind", ["pcd", "pts", "npy", "bin", "pose.json", "registration", "poses", "graph"])
def test_expensive_files(tmp_path, kind):
    path = tmp_path / READERS[kind].file_name
    for _, content in cases(kind, tmp_path):
        path.write_bytes(content)
        check_reader(READERS[kind], path)


@pytest.mark.slow
def test_all_expensive_files_with_limited_memory():
    """Runs in a separate process, which some of these files once aborted."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.fuzz.expensive"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=1500,
        check=False,
    )
    broken = [line for line in done.stdout.splitlines() if "BROKEN" in line]
    assert done.returncode == 0, "\n".join(broken) + done.stderr[-2000:]
    assert done.stdout.count("\n") > 150


def test_every_broken_guarantee_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.fuzz.guarantees.MAX_SECONDS", 0.05)
    monkeypatch.setattr("benchmarks.fuzz.guarantees.MAX_MEMORY", 2**26)

    def slow(path: Path) -> None:
        start = time.process_time()
        while time.process_time() < start + 0.1:
            pass

    def large(path: Path) -> None:
        assert len(b"\1" * 2**27)

    def too_large(path: Path) -> None:
        try:
            raise MemoryError
        except MemoryError as error:
            raise InputError("too large") from error

    def faulty(path: Path) -> None:
        raise KeyError("points")

    for read, message in ((slow, "processor time"), (large, "MiB|processor"), (too_large, "allocation")):
        with pytest.raises(BrokenGuarantee, match=message):
            check_reader(Reader("a", read), tmp_path)
    with pytest.raises(KeyError):
        check_reader(Reader("a", faulty), tmp_path)


def test_messages_with_quoted_content_are_readable(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\x1b[2J\x07,b,c\n1,2,3\n")
    with pytest.raises(Exception, match=r"column x is missing \(columns: �\[2J�, b, c") as caught:
        read_points(tmp_path / "a.csv")
    assert str(caught.value).isprintable()
    assert len(str(InputError("word " * 9999))) <= 1000


@pytest.mark.parametrize("kind", READERS)
def test_every_reader_has_expensive_files(tmp_path, kind):
    assert next(cases(kind, tmp_path), None)


def test_polygons_of_any_size_and_several_solids(tmp_path):
    corners = "0 0 0\n1 0 0\n1 1 0\n0.5 1.5 0\n0 1 0\n"
    (tmp_path / "a.off").write_text(f"OFF\n5 2 0\n{corners}5 0 1 2 3 4\n3 0 1 2\n")
    assert read_points(tmp_path / "a.off", sample=50)[:, 1].max() > 1.1
    facet = (
        "facet normal 0 0 1\nouter loop\nvertex 0 0 {0}\nvertex 1 0 {0}\nvertex 0 1 {0}\nendloop\nendfacet\n"
    )
    solids = "".join(f"solid {k}\n{facet.format(k)}endsolid {k}\n" for k in range(3))
    (tmp_path / "a.stl").write_text(solids)
    assert len(read_points(tmp_path / "a.stl")) == 9
    (tmp_path / "a.stl").write_text(solids[:-12])
    with pytest.raises(Exception, match=r"a\.stl.*truncated"):
        read_points(tmp_path / "a.stl")
