"""The frame of a scene: which direction is up, and colours and units of files."""

import numpy as np
import pytest

from view_helpers import corner
from wsdesc import Cloud
from wsdesc.cloud.storage import Record, Storage
from wsdesc.core.errors import InputError
from wsdesc.view.colours import confidence_colour, own_colours, scan_colour
from wsdesc.view.drawn import hide_folders, scan_facts, unit_of
from wsdesc.view.frame import SceneFrame, camera_up


def test_up_is_z_for_scanners_and_minus_y_for_depth_cameras():
    room = corner() - [2, 1.5, 1]
    assert camera_up(room) is None
    assert SceneFrame.fit([room]).up == "z"
    ahead = (corner() - [2, 1.5, 0]) * [0.5, 0.5, 1] + [0, 0, 3]
    assert camera_up(ahead) == "-y"
    assert camera_up(ahead * [1, -1, -1]) == "y"
    assert SceneFrame.fit([ahead]).up == "-y"
    assert SceneFrame.fit([ahead], "z").up == "z"


@pytest.mark.parametrize("up", ["x", "-x", "y", "-y", "z", "-z"])
@pytest.mark.parametrize("points", [corner(), np.zeros((1, 3)), corner() * [1, 0, 0], corner() * [0, 0, 1]])
def test_axes_are_a_rotation_whose_third_axis_is_up(points, up):
    frame = SceneFrame.fit([points], up)
    np.testing.assert_allclose(frame.axes.T @ frame.axes, np.eye(3), atol=1e-12)
    assert np.linalg.det(frame.axes) == pytest.approx(1)
    expected = np.zeros(3)
    expected["xyz".index(up[-1])] = -1 if up[0] == "-" else 1
    np.testing.assert_allclose(frame.axes[:, 2], expected, atol=1e-12)


def test_unknown_direction_is_refused():
    with pytest.raises(InputError, match="up must be one of auto, x, -x"):
        SceneFrame.fit([corner()], "north")


def test_colours_of_files():
    index = np.array([0, 2])
    red, green, blue = (np.array([v, 0, 9], np.uint8) for v in (10, 20, 30))
    colours = own_colours({"red": red, "green": green, "blue": blue, "intensity": red}, index)
    assert colours.kind == "colour"
    np.testing.assert_array_equal(colours.rgb, [[10, 20, 30], [9, 9, 9]])
    wide = {name: np.array([65535, 0, 256], np.uint16) for name in ("red", "green", "blue")}
    np.testing.assert_array_equal(own_colours(wide, index).rgb, [[255] * 3, [1] * 3])
    grey = own_colours({"intensity": np.linspace(0, 5000, 100)}, np.arange(100))
    assert grey.kind == "intensity"
    assert np.ptp(grey.rgb) > 200
    assert (np.diff(grey.rgb[:, 0].astype(int)) >= 0).all()
    for useless in (np.full(100, 7.0), np.full(100, np.nan), np.array(["a"] * 100)):
        assert own_colours({"intensity": useless}, np.arange(100)) is None
    assert own_colours({}, index) is None


def test_units_of_files():
    metre, foot = (
        f'PROJCS["x",UNIT["degree",0.017],UNIT["{name}",1]]'.encode() for name in ("metre", "foot")
    )
    assert unit_of(Cloud(corner())) == ""
    assert unit_of(Cloud(corner(), storage=Storage(".ply"))) == ""
    assert unit_of(Cloud(corner(), storage=Storage(".e57"))) == "m"
    assert unit_of(Cloud(corner(), storage=Storage(".las", crs=(Record(2112, "", metre),)))) == "m"
    assert unit_of(Cloud(corner(), storage=Storage(".las", crs=(Record(2112, "", foot),)))) == ""


def test_facts_of_a_scan():
    facts = scan_facts(Cloud(np.array([[0, 0, 0], [1, 2, 0.5]]), {"intensity": np.zeros(2)}))
    assert facts == ["size 1 × 2 × 0.5", "attributes: intensity"]


def test_confidence_colours():
    red, green = confidence_colour(0.0), confidence_colour(1.0)
    assert red[0] > 3 * red[1]
    assert green[1] > 3 * green[0]
    assert confidence_colour(-1.0) == red
    assert confidence_colour(2.0) == green
    assert len({scan_colour(k) for k in range(20)}) == 20


@pytest.mark.parametrize(
    ("sentence", "hidden"),
    [
        ("/home/me/scans/a.ply: 3 points were ignored.", "a.ply: 3 points were ignored."),
        (r"C:\Users\me\a.ply: cannot be read", "a.ply: cannot be read"),
        ("scans/a.ply: 3 points were ignored.", "a.ply: 3 points were ignored."),
        (
            "not placed: x: /tmp/m/b.ply: is empty, see /tmp/m/c.ply",
            "not placed: x: b.ply: is empty, see c.ply",
        ),
        (
            "Try more keypoints and/or another resolution (1/2).",
            "Try more keypoints and/or another resolution (1/2).",
        ),
    ],
)
def test_pages_name_files_without_their_folders(sentence, hidden):
    assert hide_folders(sentence) == hidden
