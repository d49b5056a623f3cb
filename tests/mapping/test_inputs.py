"""What a map is made of: files, folders, arrays and poses; the resolution that suits them."""

import sys

import numpy as np
import pytest

from wsdesc import Map, write_points
from wsdesc.cloud.units import measure
from wsdesc.core.errors import InputError, MissingExtraError
from wsdesc.datasets.synthetic import room_scans
from wsdesc.mapping.inputs import collect, derive_resolution

POINTS = np.random.default_rng(0).uniform(0, 5, (300, 3))


def test_one_cloud_is_cut_and_several_scans_are_not(tmp_path):
    out = tmp_path / "site.map"
    write_points(tmp_path / "a.ply", POINTS)
    assert collect(tmp_path / "a.ply", out).cut
    assert collect(tmp_path, out).cut  # a folder with one cloud
    assert collect(POINTS, out).cut
    assert collect(POINTS.tolist(), out).cut
    write_points(tmp_path / "b.ply", POINTS)
    inputs = collect(tmp_path, out)
    assert [scan.scan.name for scan in inputs.scans] == ["a.ply", "b.ply"]
    assert not inputs.cut
    assert not collect([POINTS, POINTS], out).cut
    assert not collect([POINTS], out, poses=[np.eye(4)]).cut  # a scan with a pose is no large cloud


def test_arrays_of_maps_are_no_scans(tmp_path):
    write_points(tmp_path / "a.ply", POINTS)
    for name in ("site.map", "other.map"):
        data = tmp_path / name / "data-1"
        data.mkdir(parents=True)
        np.save(data / "points.npy", POINTS)
    (tmp_path / "other.map" / "map.json").write_text("{}")
    assert [scan.scan.name for scan in collect(tmp_path, tmp_path / "site.map").scans] == ["a.ply"]
    with pytest.raises(InputError, match="only maps"):
        collect(tmp_path / "other.map", tmp_path / "site.map")
    with pytest.raises(InputError, match="needs a folder of its own"):
        collect(tmp_path, tmp_path)


def test_a_changed_scan_or_pose_changes_the_key(tmp_path):
    def keys(scans, poses=None):
        return [scan.key for scan in collect(scans, tmp_path / "site.map", poses).scans]

    assert keys([POINTS, POINTS]) == keys([POINTS, POINTS.copy()])
    assert keys([POINTS, POINTS]) != keys([POINTS, POINTS + 1e-9])
    T = np.eye(4)
    T[0, 3] = 1e-6
    assert keys([POINTS], [np.eye(4)]) != keys([POINTS], [T])


def test_the_derived_resolution_is_that_of_the_scans(tmp_path):
    scans = [scan.points for scan in room_scans(3, 3, resolution=0.03)]
    derived = derive_resolution(collect(scans, tmp_path / "m"))
    assert derived == measure(*scans).resolution
    placed = [
        s.points @ s.T_world_scan[:3, :3].T + s.T_world_scan[:3, 3] for s in room_scans(3, 3, resolution=0.03)
    ]
    street = np.concatenate([np.concatenate(placed) + np.array([20.0 * k, 0, 0]) for k in range(5)])
    assert derive_resolution(collect(street, tmp_path / "m")) == pytest.approx(derived, rel=0.6)


def test_without_the_library_the_install_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "voyager", None)
    with pytest.raises(MissingExtraError, match='pip install "voyager'):
        Map.build(POINTS, tmp_path / "site.map")
