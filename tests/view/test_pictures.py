"""Pictures before and after registration."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from wsdesc.core.errors import InputError, WSDescError
from wsdesc.view.pictures import before_after

PNG = b"\x89PNG\r\n\x1a\n"


def corner(count: int = 4000) -> np.ndarray:
    """Return points on three walls of a box: no two directions look the same."""
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 1, (count, 3)) * (2.0, 1.5, 1.0)
    points[np.arange(count), rng.integers(0, 3, count)] = 0
    return points


def rotated_pose() -> np.ndarray:
    T = np.eye(4)
    T[:2, :2] = [[0.5, -np.sqrt(0.75)], [np.sqrt(0.75), 0.5]]
    T[:3, 3] = 0.4, -0.2, 0.1
    return T


def colour_shares(picture: np.ndarray) -> tuple[float, float]:
    """Return the shares of orange and of blue pixels."""
    red, blue = picture[..., 0], picture[..., 2]
    return float((red - blue > 0.25).mean()), float((blue - red > 0.2).mean())


def test_picture_shows_both_scans_before_and_after(tmp_path: Path) -> None:
    T, target = rotated_pose(), corner()
    source = (target - T[:3, 3]) @ T[:3, :3]
    before_after(source, target, T, tmp_path / "pair.png", title="confidence 0.97")
    assert (tmp_path / "pair.png").read_bytes().startswith(PNG)
    picture = imread(tmp_path / "pair.png")
    assert picture.shape[:2] == (836, 1320)
    upper, lower = picture[60:448], picture[448:]
    for half in (upper, lower):
        orange, blue = colour_shares(half)
        assert orange > 0.01
        assert blue > 0.01
    assert np.abs(upper - lower[: len(upper)]).mean() > 0.01
    assert [p.name for p in tmp_path.iterdir()] == ["pair.png"]


def test_title_is_drawn(tmp_path: Path) -> None:
    for title in ("", "rotation 0.4°"):
        before_after(corner(50), corner(50), np.eye(4), tmp_path / f"{len(title)}.png", title=title)
    blank, named = (imread(tmp_path / f"{n}.png")[:60, :600] for n in (0, 13))
    assert blank.min() == 1.0
    assert named.min() < 0.5


@pytest.mark.parametrize(
    "points",
    [np.zeros((1, 3)), np.ones((5, 3)), np.eye(3) * 1e-4, np.eye(3) * 1e6 + 5e6],
    ids=["one", "all the same", "tiny", "huge and far away"],
)
def test_unusual_clouds_are_drawn(tmp_path: Path, points: np.ndarray) -> None:
    before_after(points, points, np.eye(4), tmp_path / "odd.png")
    assert colour_shares(imread(tmp_path / "odd.png"))[1] > 0


def test_picture_is_deterministic(tmp_path: Path) -> None:
    for name in ("a", "b"):
        before_after(corner(), corner() + 0.1, np.eye(4), tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_bad_input_is_refused_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(WSDescError, match="folder"):
        before_after(corner(10), corner(10), np.eye(4), tmp_path / "nowhere" / "pair.png")
    with pytest.raises(InputError, match="source"):
        before_after(np.zeros((0, 3)), corner(10), np.eye(4), tmp_path / "pair.png")
    with pytest.raises(InputError, match="target"):
        before_after(corner(10), np.full((4, 3), np.nan), np.eye(4), tmp_path / "pair.png")
    with pytest.raises(InputError, match="T_target_source"):
        before_after(corner(10), corner(10), np.eye(3), tmp_path / "pair.png")
    assert list(tmp_path.iterdir()) == []


def test_global_state_of_matplotlib_is_unchanged(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    before_after(corner(50), corner(50), np.eye(4), tmp_path / "pair.png")
    assert dict(matplotlib.rcParams) == before
