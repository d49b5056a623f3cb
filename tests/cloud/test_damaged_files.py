"""A damaged file gives valid points or a one-line error, never another exception."""

import numpy as np
import pytest
from benchmarks.fuzz.seeds import make_seeds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wsdesc.cloud.files import read_cloud, write_points
from wsdesc.core.errors import WSDescError

FORMATS = ["ply", "pcd", "xyz", "csv", "pts", "npy", "npz", "obj", "off", "stl", "las", "laz", "e57"]
FORMATS += ["bin", "asc", "ptx", "vtk", "vtp", "gltf", "glb"]


@pytest.fixture(scope="module")
def intact(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("intact")
    rng = np.random.default_rng(0)
    points = rng.normal(size=(20, 3)).round(3)
    attributes = {
        "intensity": rng.integers(0, 99, 20).astype(np.uint16),
        "colors": rng.integers(0, 9, (20, 3), np.uint8),
    }
    for extension in FORMATS:
        path = folder / f"a.{extension}"
        if extension == "stl":
            path.write_bytes(bytes(80) + np.uint32(2).tobytes() + rng.bytes(100))
        elif extension in ("ptx", "vtk", "vtp", "gltf", "glb"):
            path.write_bytes(make_seeds(extension, folder)[-1])
        else:
            plain = extension in ("npy", "obj", "off", "bin")
            write_points(path, points, None if plain else attributes)
    return {path.suffix[1:]: path.read_bytes() for path in folder.iterdir()}


def check_result(path) -> None:
    try:
        cloud = read_cloud(path, nonfinite="drop")
    except WSDescError as error:
        message = str(error)
    else:
        assert len(cloud.points) > 0
        assert cloud.points.dtype == np.float64
        assert np.isfinite(cloud.points).all()
        assert all(len(values) == len(cloud.points) for values in cloud.attributes.values())
        return
    assert path.name in message
    assert "\n" not in message


quick = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("extension", FORMATS)
@quick
@given(part=st.floats(0, 1, exclude_max=True))
def test_truncated_anywhere(tmp_path, intact, extension, part):
    path = tmp_path / f"truncated.{extension}"
    path.write_bytes(intact[extension][: int(part * len(intact[extension]))])
    check_result(path)


@pytest.mark.parametrize("extension", FORMATS)
@quick
@given(
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=6)
)
def test_bytes_changed_anywhere(tmp_path, intact, extension, flips):
    content = bytearray(intact[extension])
    for part, value in flips:
        content[int(part * len(content))] = value
    path = tmp_path / f"flipped.{extension}"
    path.write_bytes(content)
    check_result(path)


@pytest.mark.parametrize("extension", FORMATS)
@quick
@given(content=st.binary(min_size=0, max_size=400))
def test_any_bytes(tmp_path, extension, content):
    path = tmp_path / f"noise.{extension}"
    path.write_bytes(content)
    check_result(path)


@pytest.mark.parametrize("extension", FORMATS)
def test_a_file_of_another_format(tmp_path, intact, extension):
    for other, content in intact.items():
        if other != extension:
            path = tmp_path / f"mistaken.{extension}"
            path.write_bytes(content)
            check_result(path)


def test_wrong_sizes_in_a_laz_file_do_not_abort_the_process(tmp_path, intact):
    """The LAZ library allocates the sizes in the file, and aborts Python if that fails."""
    content = intact["laz"]
    start = int.from_bytes(content[96:100], "little")
    table = int.from_bytes(content[start : start + 8], "little")
    changed = bytearray(content)
    changed[table + 4 : table + 8] = b"\xff" * 4  # chunks
    (tmp_path / "a.laz").write_bytes(changed)
    with pytest.raises(WSDescError, match="chunk table"):
        read_cloud(tmp_path / "a.laz")
    changed = bytearray(content)
    size = content.index(b"laszip encoded") - 2 + 54 + 12  # points per chunk, in the LASzip record
    changed[size : size + 4] = b"\xfe" * 4
    (tmp_path / "a.laz").write_bytes(changed)
    check_result(tmp_path / "a.laz")
