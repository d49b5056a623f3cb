"""The saved page: it loads nothing, and its numbers are those of the scene."""

import base64
import json
import re

import numpy as np
import pytest
from matplotlib.image import imread

from view_helpers import count
from wsdesc.core.errors import WSDescError
from wsdesc.view.page import page, save_page
from wsdesc.view.snapshot import snapshot

KINDS = {"u8": "u1", "i8": "i1", "u16": "<u2", "u32": "<u4", "f32": "<f4"}


def unpack(part):
    return np.frombuffer(base64.b64decode(part["data"]), KINDS[part["type"]])


@pytest.fixture(scope="module")
def written(pair):
    text = page(pair)
    return text, json.loads(re.search(r'<script id="scene"[^>]*>(.*?)</script>', text, re.S)[1])


def test_page_loads_nothing(written):
    text, _ = written
    assert not re.findall(r"https?:|\bsrc=|@import|url\(|import\s*\(|fetch\(", text)
    assert "{{" not in text


def test_points_of_the_page(written, pair):
    for values, scan in zip(written[1]["scans"], pair.scans, strict=True):
        points = values["low"] + values["step"] * unpack(values["points"]).reshape(-1, 3)
        np.testing.assert_allclose(points, scan.points, atol=values["step"])
        assert values["step"] < 1e-4
        np.testing.assert_allclose(unpack(values["normals"]).reshape(-1, 3) / 127, scan.normals, atol=0.005)
        np.testing.assert_allclose(values["start"]["wxyz"], scan.start.wxyz)
        np.testing.assert_allclose(values["end"]["position"], scan.end.position)


def test_supports_of_the_page(written, pair):
    values, scan = written[1]["scans"][0]["supports"], pair.scans[0]
    starts, index = unpack(values["starts"]), unpack(values["index"])
    for k in (0, 17, 49):
        full = np.flatnonzero(scan.supports.grids[k].ravel())
        np.testing.assert_array_equal(np.sort(index[starts[k] : starts[k + 1]]), full)
    assert len(full) == 64


def test_page_is_written_completely_or_not_at_all(pair, tmp_path):
    save_page(pair, tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page(pair)
    with pytest.raises(WSDescError, match="folder"):
        save_page(pair, tmp_path / "nowhere" / "page.html")


def test_snapshots_show_all_scans(pair, many_scans, tmp_path):
    for name, scene in (("pair", pair), ("many", many_scans)):
        (tmp_path / f"{name}.png").write_bytes(snapshot(scene))
    picture = imread(tmp_path / "pair.png")[..., :3]
    for half in np.array_split(picture, 2, axis=1):
        assert count(half, "orange") > 1000
        assert count(half, "blue") > 1000
    many = imread(tmp_path / "many.png")[..., :3]
    assert len(np.unique((many * 8).astype(int).reshape(-1, 3), axis=0)) > 20
