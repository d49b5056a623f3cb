"""A room, a reconstruction of it, and networks small enough for tests."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wsdesc import WSDesc, write_points
from wsdesc.adaptation import replay
from wsdesc.adaptation.options import FULL_WEIGHTS
from wsdesc.adaptation.scans import load_scans
from wsdesc.core.geometry import inverse
from wsdesc.datasets.synthetic import room_scans
from wsdesc.descriptor.pretrained import RUN_WEIGHTS
from wsdesc.learning.overlap import OverlapOptions
from wsdesc.learning.self_training import MatchProposer
from wsdesc.learning.synthetic_scenes import SceneScan
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.result import Reconstruction

RESOLUTION = 0.06


@pytest.fixture(scope="session")
def room_of_six():
    """Six successive scans of a synthetic room."""
    return room_scans(seed=3, count=6)


@pytest.fixture(scope="session")
def folder(room_of_six, tmp_path_factory):
    """The scans as files, thinned out."""
    path = tmp_path_factory.mktemp("scans")
    for k, scan in enumerate(room_of_six):
        write_points(path / f"scan_{k}.ply", scan.points[::4])
    return path


def reconstruction_of(folder, scans, names=None, confidence=0.95) -> Reconstruction:
    """The result that a perfect reconstruction would have; scans without a name are not placed."""
    files = {f"scan_{k}.ply": folder / f"scan_{k}.ply" for k in range(len(scans))}
    names = list(files) if names is None else names
    poses = {name: scans[list(files).index(name)].T_world_scan for name in names}
    poses = {name: inverse(poses[names[0]]) @ T for name, T in poses.items()}
    edges = [
        EdgeResult(a, b, inverse(poses[b]) @ poses[a] if {a, b} <= poses.keys() else np.eye(4),
                   confidence, 0.5, 0, 100, None if {a, b} <= poses.keys() else "confidence below 0.9", None)
        for a, b in zip(files, list(files)[1:], strict=False)
    ]  # fmt: skip
    edges += [
        EdgeResult(a, c, inverse(poses[c]) @ poses[a], confidence, 0.3, 0, 100, None, 0.1)
        for a, c in zip(names, names[2:], strict=False)
    ]
    not_placed = {name: "no overlap with another scan found" for name in files if name not in poses}
    return Reconstruction(poses, [names], not_placed, edges, RESOLUTION, files)


@pytest.fixture(scope="session")
def reconstruction(folder, room_of_six):
    return reconstruction_of(folder, room_of_six)


@pytest.fixture(scope="session")
def scans(reconstruction):
    return load_scans(reconstruction.paths, RESOLUTION)


@pytest.fixture(scope="session")
def tiny_start(tmp_path_factory):
    """A folder with a full and a fast network, untrained."""
    path = tmp_path_factory.mktemp("start")
    for name, width, layers in ((FULL_WEIGHTS, 0.125, "paper"), (RUN_WEIGHTS, 0.25, "compact")):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            WSDesc(width=width, layers=layers, resolution=8, support_start=1.2).save(path / name)
    return path


@pytest.fixture
def tiny_scenes(monkeypatch, scans, room_of_six):
    """Replace synthetic scenes by two scans of the room: making scenes takes seconds."""
    poses = [scan.local_pose(room_of_six[k].T_world_scan) for k, scan in enumerate(scans)]

    def make_scene(seed, index):
        k = index % (len(scans) - 1)
        return [SceneScan(scans[n].points + 0, poses[n]) for n in (k, k + 1)]

    monkeypatch.setattr(replay, "make_scene", make_scene)
    monkeypatch.setattr("wsdesc.adaptation.pipeline._MAX_WORKERS", 0)
    monkeypatch.setattr("wsdesc.adaptation.check.REGISTERED_KEYPOINTS", 40)
    monkeypatch.setattr("wsdesc.adaptation.check.KEYPOINTS", 40)
    few = OverlapOptions(keypoints=40, iterations=100)
    monkeypatch.setattr("wsdesc.adaptation.teaching.MatchProposer", lambda model: MatchProposer(model, few))
    return make_scene
