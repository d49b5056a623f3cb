"""Files from anywhere: each ends in a result or in one line for people, in bounded time and memory."""

import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from benchmarks.fuzz.bulky import cases
from benchmarks.fuzz.judge import BrokenPromise, judge
from benchmarks.fuzz.readers import READERS, Reader
from benchmarks.fuzz.seeds import make
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wsdesc.cloud.files import read_points
from wsdesc.core.errors import InputError

ROOT = Path(__file__).parents[1]
places = st.floats(0, 1, exclude_max=True)


@cache
def seeds(kind: str) -> list[bytes]:
    with TemporaryDirectory() as folder:
        return make(kind, Path(folder))


@st.composite
def damages(draw) -> list[tuple]:
    """What happens to a file, as the arguments of `damaged`: places are shares of its length."""
    place = st.tuples(places, places)
    kinds = st.one_of(
        st.tuples(st.just("cut"), places),
        st.tuples(st.just("swap"), place, st.integers(1, 64)),
        st.tuples(st.just("overwrite"), places, st.binary(min_size=1, max_size=8)),
        st.tuples(st.just("fill"), places, st.integers(1, 200), st.sampled_from([0, 32, 57, 255])),
        st.tuples(st.just("repeat"), places, st.integers(1, 100)),
        st.tuples(st.just("remove"), places, st.integers(1, 100)),
    )
    return draw(st.lists(kinds, min_size=1, max_size=4))


def damaged(content: bytes, what: list[tuple]) -> bytes:
    for kind, place, *more in what:
        first, second = sorted(int(p * len(content)) for p in (place if kind == "swap" else (place, place)))
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


@pytest.mark.parametrize("kind", READERS)
@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(what=damages(), which=st.integers(0, 9))
def test_damage_of_any_kind(tmp_path, kind, what, which):
    content = seeds(kind)[which % len(seeds(kind))]
    path = tmp_path / READERS[kind].file_name
    path.write_bytes(READERS[kind].seal(damaged(content, what)))
    judge(READERS[kind], path)


def test_files_made_to_cost_much():
    """Under a bound of memory, in a process of its own: some of these once ended it."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.fuzz.bulky"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert done.stdout.count("\n") > 150


def test_the_judge_can_say_no(tmp_path, monkeypatch):
    """Each promise, broken."""
    monkeypatch.setattr("benchmarks.fuzz.judge.SECONDS", 0.05)
    monkeypatch.setattr("benchmarks.fuzz.judge.MEMORY", 2**26)

    def busy(path: Path) -> None:
        start = time.process_time()
        while time.process_time() < start + 0.1:
            pass

    def greedy(path: Path) -> None:
        assert len(b"\1" * 2**27)

    def greedy_in_vain(path: Path) -> None:
        try:
            raise MemoryError
        except MemoryError as error:
            raise InputError("too large") from error

    def clumsy(path: Path) -> None:
        raise KeyError("points")

    for read, message in ((busy, "processor time"), (greedy, "MiB|processor"), (greedy_in_vain, "not there")):
        with pytest.raises(BrokenPromise, match=message):
            judge(Reader("a", read), tmp_path)
    with pytest.raises(KeyError):
        judge(Reader("a", clumsy), tmp_path)


def test_messages_are_readable_whatever_they_quote(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\x1b[2J\x07,b,c\n1,2,3\n")
    with pytest.raises(Exception, match=r"column x is missing \(columns: �\[2J�, b, c") as caught:
        read_points(tmp_path / "a.csv")
    assert str(caught.value).isprintable()
    assert len(str(InputError("word " * 9999))) <= 1000


def test_cases_are_there_for_every_reader(tmp_path):
    few = {kind for kind in READERS if not any(True for _ in cases(kind, tmp_path))}
    assert not few


def test_polygons_of_any_size_and_several_solids(tmp_path):
    """What the library that read meshes before refused."""
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
