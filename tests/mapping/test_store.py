"""Damaged maps, maps of other versions, and folders that are no maps."""

import json
import shutil

import numpy as np
import pytest

from wsdesc import Map, write_points
from wsdesc.core.errors import FileFormatError, InputError, WSDescError
from wsdesc.datasets.synthetic import room_scans
from wsdesc.mapping.store import ARRAYS, INDEX


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A small map of two scans."""
    folder = tmp_path_factory.mktemp("scans")
    for number, scan in enumerate(room_scans(3, 2, resolution=0.08)):
        points = scan.points @ scan.T_world_scan[:3, :3].T + scan.T_world_scan[:3, 3]
        write_points(folder / f"{number}.ply", points)
    return Map.build(folder, tmp_path_factory.mktemp("maps") / "site.map", resolution=0.1).path


@pytest.fixture
def site(built, tmp_path):
    """A copy of it, to damage."""
    return shutil.copytree(built, tmp_path / "site.map")


def data(site):
    return site / json.loads((site / "map.json").read_text())["data"]


def change(site, **values):
    path = site / "map.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("name", [*(f"{name}.npy" for name in ARRAYS), INDEX])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_file_that_is_cut_off_is_named(site, name, kept):
    path = data(site) / name
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(FileFormatError, match=name):
        Map.open(site)


@pytest.mark.parametrize("name", [*(f"{name}.npy" for name in ARRAYS), INDEX])
def test_a_missing_file_is_named(site, name):
    (data(site) / name).unlink()
    with pytest.raises(FileFormatError, match=f"{name}.*missing"):
        Map.open(site)


def test_an_index_with_other_bytes_never_reaches_the_library(site):
    path = data(site) / INDEX
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="cut off or damaged"):
        Map.open(site)


@pytest.mark.parametrize(("version", "age"), [(0, "older"), (2, "newer")])
def test_another_version_is_refused_with_its_number(site, version, age):
    change(site, version=version)
    with pytest.raises(
        FileFormatError, match=f"format {version}, from an? {age} version.*build the map again"
    ):
        Map.open(site)


@pytest.mark.parametrize(
    "values",
    [
        {"resolution": -1.0},
        {"resolution": "x"},
        {"tile": 0},
        {"origin": [0, 0]},
        {"origin": [0, 0, float("nan")]},
        {"shapes": {}},
        {"sources": 3},
        {"data": "../elsewhere"},
        {"unknown": 1},
    ],
)
def test_a_damaged_manifest_is_refused(site, values):
    change(site, **values)
    with pytest.raises(FileFormatError, match="damaged"):
        Map.open(site)


def test_starts_that_do_not_fit_are_refused(site):
    path = data(site) / "point_starts.npy"
    starts = np.load(path)
    starts[-1] += 1
    np.save(path, starts)
    with pytest.raises(FileFormatError, match="do not fit each other"):
        Map.open(site)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "wsdesc map"}', "[" * 100_000])
def test_a_manifest_that_is_none_is_refused(site, text):
    (site / "map.json").write_text(text)
    with pytest.raises(FileFormatError, match=r"damaged|not a map"):
        Map.open(site)


def test_what_is_no_map_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="no such map"):
        Map.open(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileFormatError, match="a folder"):
        Map.open(tmp_path / "file")
    with pytest.raises(FileFormatError, match=r"no map\.json"):
        Map.open(tmp_path)


def test_weights_that_changed_are_refused(site):
    change(site, model_digest="0" * 64)
    with pytest.raises(InputError, match="weights indoor-fast changed"):
        Map.open(site).locate(room_scans(3, 1, resolution=0.08)[0].points)


def test_bad_input_leaves_an_existing_map_as_it_was(site, tmp_path):
    before = (site / "map.json").read_bytes()
    empty = tmp_path / "empty"
    empty.mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.md").write_text("mine")
    broken = tmp_path / "broken.ply"
    broken.write_bytes(b"ply\n")
    points = np.random.default_rng(0).normal(size=(200, 3))
    for scans, out, options, message in [
        (empty, site, {}, "no scans"),
        (tmp_path / "none", site, {}, "no such file"),
        ([broken, broken], site, {}, "none of the 2 scans can be used"),
        (broken, site, {}, r"broken\.ply"),
        ([], site, {}, "found 0"),
        (points, other, {}, r"notes\.md"),
        (points, broken, {}, "it is a file"),
        (points, site, {"resolution": -1}, "resolution"),
        (points, site, {"poses": [np.eye(4), np.eye(4)]}, "2 poses were given for 1 scans"),
        ([points], site, {"poses": [2 * np.eye(4)]}, "rigid"),
        (points, site, {"resolutions": 1}, "did you mean 'resolution'"),
    ]:
        with pytest.raises(WSDescError, match=message):
            Map.build(scans, out, **options)
    assert (site / "map.json").read_bytes() == before
    Map.open(site)
