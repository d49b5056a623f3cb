"""Pairs of any scans: any file names and formats, pairs by number or by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wsdesc.cloud.files import read_points, write_points
from wsdesc.datasets.threedmatch import read_log
from wsdesc.evaluation.methods import Method
from wsdesc.evaluation.options import PairwiseOptions
from wsdesc.evaluation.own_pairs import run_pairs

NAMES = ["front.ply", "scan 2.xyz", "scan 10.npy", "top.pcd"]  # in natural order


@pytest.fixture
def own_scans(scene_root: Path, tmp_path: Path) -> Path:
    """Copy the scene's scans under other names and in other formats."""
    folder = tmp_path / "own"
    folder.mkdir()
    for k, name in enumerate(NAMES):
        points = read_points(scene_root / "room" / f"cloud_bin_{k}.ply")
        if name.endswith(".npy"):
            np.save(folder / name, points)
        else:
            write_points(folder / name, points)
    return folder


def write_pairs(path: Path, log: Path) -> None:
    lines = []
    for entry in read_log(log):
        lines.append(f'"{NAMES[entry.i]}" "{NAMES[entry.j]}"')
        lines += [" ".join(map(repr, row)) for row in entry.T_i_j.tolist()]
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("by_name", [False, True])
def test_pairs_are_registered_whatever_their_file_names(
    scene_root: Path, own_scans: Path, tmp_path: Path, exact_method: Method, by_name: bool
) -> None:
    log = scene_root / "room-evaluation" / "gt.log"
    if by_name:
        write_pairs(own_scans / "pairs.txt", log)
    else:
        (own_scans / "gt.log").write_text(log.read_text())
    options = PairwiseOptions(keypoints=(300,), voxel=0)
    results = run_pairs(own_scans, [exact_method], options, tmp_path / "out")
    assert results.name == "pairs-own"
    assert [record["r2"] for record in results.records["exact"]] == [True] * 6
