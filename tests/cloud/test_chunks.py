"""Reading part by part gives the points of the whole file, and the same errors."""

import numpy as np
import pytest

from wsdesc import read_points, write_points
from wsdesc.cloud.chunks import read_chunks
from wsdesc.cloud.formats import las
from wsdesc.core.errors import FileFormatError

POINTS = np.random.default_rng(0).uniform(0, 100, (2500, 3)) + np.array([431_000, 5_411_000, 200])


@pytest.mark.parametrize("kind", ["las", "laz", "ply", "npy"])
def test_parts_are_the_points_of_the_file(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(las, "_CHUNK", 1000)
    path = tmp_path / f"cloud.{kind}"
    write_points(path, POINTS)
    parts = list(read_chunks(path))
    assert len(parts) == (3 if kind in ("las", "laz") else 1)
    assert np.array_equal(np.concatenate(parts), read_points(path))


@pytest.mark.parametrize("kind", ["las", "laz"])
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.95])
def test_a_file_that_is_cut_off_is_named(tmp_path, kind, kept):
    path = tmp_path / f"cloud.{kind}"
    write_points(path, POINTS)
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(FileFormatError, match=f"cloud.{kind}"):
        list(read_chunks(path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileFormatError, match=r"none\.laz: there is no such file"):
        list(read_chunks(tmp_path / "none.laz"))
