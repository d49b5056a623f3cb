"""PDAL reads the files that we write. Few package indexes have it: conda does, Debian 12 and PyPI do not."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from poses import random_pose
from wsdesc import read_cloud, write_cloud, write_points

pytestmark = pytest.mark.skipif(not shutil.which("pdal"), reason="needs pdal: conda install pdal")


@pytest.mark.parametrize("extension", ["las", "laz", "ply", "pcd", "e57"])
def test_pdal_reads_the_written_file(tmp_path, extension):
    if extension == "e57":
        pytest.importorskip("pye57", reason="pye57 is not installed")
    rng = np.random.default_rng(0)
    points = rng.uniform(-5, 5, (500, 3)).astype(np.float32)
    colours = rng.integers(0, 256, (500, 3)).astype(np.uint8)
    write_points(tmp_path / "a.ply", points, {"colors": colours, "intensity": points[:, 0]})
    moved = read_cloud(tmp_path / "a.ply").transformed(random_pose(1))
    write_cloud(tmp_path / f"b.{extension}", moved)
    command = ["pdal", "info", "--summary", str(tmp_path / f"b.{extension}")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Couldn't create reader" in done.stderr or "Cannot determine reader" in done.stderr:
        pytest.skip(f"this pdal has no reader of {extension}")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)["summary"]
    assert summary["num_points"] == 500
    bounds = [[summary["bounds"][f"{end}{axis}"] for axis in "xyz"] for end in ("min", "max")]
    np.testing.assert_allclose(bounds, [moved.points.min(axis=0), moved.points.max(axis=0)], atol=1e-3)
