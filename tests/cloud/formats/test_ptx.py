"""PTX files: stations with poses."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc.cloud.files import read_cloud
from wsdesc.core.errors import FileFormatError
from wsdesc.core.geometry import make_pose


def station(points: np.ndarray, T: np.ndarray, more: str = " 0.5", column_vectors: bool = False) -> str:
    """Return a station with a grid of two rows; the first ray has no echo."""
    rows = ["0 0 0" + more] + [" ".join(map(repr, point)) + more for point in points.tolist()]
    matrix = T if column_vectors else T.T
    head = [str(len(rows) // 2), "2", "0 0 0", "1 0 0", "0 1 0", "0 0 1"]
    head += [" ".join(map(repr, row)) for row in matrix.tolist()]
    return "\n".join([*head, *rows]) + "\n"


@pytest.fixture
def stations() -> list[tuple[np.ndarray, np.ndarray]]:
    """Points and pose of two stations."""
    rng, both = np.random.default_rng(0), []
    for k in range(2):
        T = make_pose(Rotation.random(random_state=k).as_matrix(), rng.normal(size=3) * 10)
        both.append((rng.normal(size=(5, 3)), T))
    return both


def test_stations_are_merged_by_their_poses(tmp_path, stations):
    (tmp_path / "a.ptx").write_text("".join(station(points, T) for points, T in stations))
    cloud = read_cloud(tmp_path / "a.ptx")
    expected = np.concatenate([points @ T[:3, :3].T + T[:3, 3] for points, T in stations])
    np.testing.assert_allclose(cloud.points, expected, atol=1e-12)
    assert cloud.attributes["intensity"].tolist() == [0.5] * 10


def test_colours_and_matrices_for_column_vectors(tmp_path, stations):
    points, T = stations[0]
    (tmp_path / "a.ptx").write_text(station(points, T, " 0.5 1 2 255", column_vectors=True))
    cloud = read_cloud(tmp_path / "a.ptx")
    np.testing.assert_allclose(cloud.points, points @ T[:3, :3].T + T[:3, 3], atol=1e-12)
    assert cloud.attributes["blue"].dtype == np.uint8
    assert set(cloud.attributes["blue"].tolist()) == {255}


def test_cut_files_are_rejected(tmp_path, stations):
    text = "".join(station(points, T) for points, T in stations)
    for end in range(1, len(text) - 3, 7):
        (tmp_path / "a.ptx").write_text(text[:end])
        if text[:end] != station(*stations[0]):
            with pytest.raises(FileFormatError, match=r"a\.ptx"):
                read_cloud(tmp_path / "a.ptx")


def test_false_poses_are_rejected(tmp_path, stations):
    points, _ = stations[0]
    for T in (np.zeros((4, 4)), np.diag([1.0, 1, 2, 1]), np.full((4, 4), np.nan)):
        (tmp_path / "a.ptx").write_text(station(points, T))
        with pytest.raises(FileFormatError, match="pose of a station"):
            read_cloud(tmp_path / "a.ptx")
