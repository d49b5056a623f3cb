"""`wsdesc register`, `describe` and `match`: files in, a result out, or one line that says what is wrong."""

import json

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from typer.testing import CliRunner

from wsdesc import read_points, write_points
from wsdesc.cli.app import app
from wsdesc.cloud.files import read_cloud
from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.synthetic import room_pair

FEW = ("--keypoints", "700")


def run(*arguments):
    """Run the command in this process, where the libraries are loaded already."""
    return CliRunner().invoke(app, list(map(str, arguments)), prog_name="wsdesc")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two scans of a room in files of different formats; the source is rotated, with colours and normals."""
    folder = tmp_path_factory.mktemp("scans")
    pair = room_pair(11)
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec([0.5, -1.0, 2.0]).as_matrix()
    T[:3, 3] = [1.0, 2.0, -0.5]
    source = transform(pair.source, inverse(T))
    rng = np.random.default_rng(0)
    normals = np.tile(np.float32([0, 0, 1]), (len(source), 1))
    attributes = {"red": rng.integers(0, 256, len(source)).astype(np.uint8)}
    attributes |= {name: normals[:, k] for k, name in enumerate(("nx", "ny", "nz"))}
    write_points(folder / "a.ply", source, attributes)
    write_points(folder / "b.las", pair.target.astype(np.float64))
    np.save(folder / "truth.npy", pair.T_target_source @ T)
    return folder


@pytest.fixture(scope="module")
def done(files):
    outputs = ("-o", files / "T.json", "--aligned", files / "moved.ply", "--picture", files / "both.png")
    return run("register", files / "a.ply", files / "b.las", *FEW, *outputs)


def test_success_is_printed_and_exits_with_0(done):
    assert done.exit_code == 0, done.output
    for part in ("T_target_source", "confidence", "(success)", "overlap", "seconds", "written:"):
        assert part in done.stdout
    assert "NO success" not in done.stdout


def test_pose_file_is_right(done, files):
    result = json.loads((files / "T.json").read_text())
    truth = np.load(files / "truth.npy")
    points = read_points(files / "a.ply")
    error = transform(points, np.array(result["T_target_source"])) - transform(points, truth)
    assert np.linalg.norm(error, axis=1).max() < 0.08
    assert result["success"] is True
    assert set(result) >= {"confidence", "overlap", "rmse", "inliers", "timings", "resolution", "warnings"}


def test_aligned_scan_keeps_its_attributes_and_rotates_its_normals(done, files):
    before, after = read_cloud(files / "a.ply"), read_cloud(files / "moved.ply")
    T = np.array(json.loads((files / "T.json").read_text())["T_target_source"])
    np.testing.assert_allclose(after.points, transform(before.points, T), atol=1e-4)
    np.testing.assert_array_equal(after.attributes["red"], before.attributes["red"])
    normals = np.stack([after.attributes[name] for name in ("nx", "ny", "nz")], axis=1)
    np.testing.assert_allclose(normals, np.tile(T[:3, 2], (len(normals), 1)), atol=1e-5)


def test_picture_is_written(done, files):
    assert (files / "both.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_json_is_the_only_output_on_stdout(files, tmp_path):
    one = run("register", files / "a.ply", files / "b.las", *FEW, "--json", "-o", tmp_path / "T.txt")
    result = json.loads(one.stdout)
    text = np.loadtxt(tmp_path / "T.txt")
    np.testing.assert_allclose(text, result["T_target_source"], atol=1e-9)
    assert result["success"] is True


@pytest.mark.slow
def test_describe_and_match(files, tmp_path):
    for name in ("a.ply", "b.las"):
        done = run("describe", files / name, "-o", tmp_path / f"{name}.npz", "--resolution", 0.03, *FEW)
        assert done.exit_code == 0, done.stderr
        assert "700 keypoints" in done.stdout
    matched = run("match", tmp_path / "a.ply.npz", tmp_path / "b.las.npz", "--json")
    assert matched.exit_code == 0, matched.stderr
    truth = np.load(files / "truth.npy")
    np.testing.assert_allclose(json.loads(matched.stdout)["T_target_source"], truth, atol=0.05)


@pytest.mark.slow
def test_different_rooms_exit_with_1_and_advice(files, tmp_path):
    write_points(tmp_path / "other.ply", room_pair(77).target)
    one = run("register", files / "a.ply", tmp_path / "other.ply", *FEW)
    assert one.exit_code == 1
    assert "(NO success)" in one.stdout
    assert "Try --resolution" in one.stderr


def make_bad(folder, kind, good):
    """Create a file that cannot be registered; return its path and a word of the error."""
    path = folder / "bad.ply"
    rng = np.random.default_rng(0)
    match kind:
        case "missing":
            return folder / "nowhere.ply", "nowhere.ply"
        case "directory":
            return folder, "folder"
        case "unknown extension":
            path = folder / "scan.xlsx"
            path.write_text("1 2 3\n")
            return path, "xlsx"
        case "truncated":
            path.write_bytes(good.read_bytes()[:-1000])
            return path, "bad.ply"
        case "empty":
            path.write_bytes(b"")
            return path, "bad.ply"
        case "no points":
            path.write_text("ply\nformat ascii 1.0\nelement vertex 0\nproperty float x\n"
                            "property float y\nproperty float z\nend_header\n")  # fmt: skip
            return path, "points"
        case "one point":
            np.save(folder / "bad.npy", np.ones((1, 3)))
        case "two points":
            np.save(folder / "bad.npy", rng.normal(size=(2, 3)))
        case "fifty points":
            np.save(folder / "bad.npy", rng.normal(size=(49, 3)))
        case "all equal":
            np.save(folder / "bad.npy", np.ones((1000, 3)))
        case "all NaN":
            np.save(folder / "bad.npy", np.full((1000, 3), np.nan))
    return folder / "bad.npy", "point"


@pytest.mark.parametrize(
    "kind",
    ["missing", "directory", "unknown extension", "truncated", "empty", "no points", "one point",
     "two points", "fifty points", "all equal", "all NaN"],
)  # fmt: skip
def test_bad_input_is_one_line_and_exits_with_2(files, tmp_path, kind):
    bad, message = make_bad(tmp_path, kind, files / "a.ply")
    one = run("register", bad, files / "b.las", "-o", tmp_path / "T.json", *FEW)
    assert one.exit_code == 2, one.stdout
    lines = [line for line in one.stderr.splitlines() if not line.startswith("wsdesc: compiling")]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert not (tmp_path / "T.json").exists()


@pytest.mark.slow
def test_points_on_a_line_have_no_success(tmp_path):
    np.save(tmp_path / "line.npy", np.linspace(0, 5, 3000)[:, None] * [1.0, 2.0, 3.0])
    one = run("register", tmp_path / "line.npy", tmp_path / "line.npy", *FEW)
    assert one.exit_code == 1, one.stderr
    assert "warning:" in one.stderr


@pytest.mark.slow
def test_integers_with_duplicates(files, tmp_path):
    """Coordinates in millimetres, rounded to centimetres: many points coincide."""
    for name in ("a.ply", "b.las"):
        np.save(tmp_path / f"{name}.npy", 10 * np.rint(100 * read_points(files / name)).astype(np.int64))
    one = run("register", tmp_path / "a.ply.npy", tmp_path / "b.las.npy", *FEW, "--json")
    T = np.array(json.loads(one.stdout)["T_target_source"])
    truth = np.load(files / "truth.npy")
    np.testing.assert_allclose(T[:3, :3], truth[:3, :3], atol=0.03)
    np.testing.assert_allclose(T[:3, 3] / 1000, truth[:3, 3], atol=0.06)


@pytest.mark.slow
def test_points_that_are_not_finite_are_counted(files, tmp_path):
    points = read_points(files / "a.ply")
    points[:3] = np.nan
    np.save(tmp_path / "a.npy", points)
    one = run("register", tmp_path / "a.npy", files / "b.las", *FEW)
    assert one.exit_code == 0
    assert "3 points that are not finite" in one.stderr


def test_different_units_are_reported(files, tmp_path):
    np.save(tmp_path / "mm.npy", 1000 * read_points(files / "a.ply"))
    one = run("register", tmp_path / "mm.npy", files / "b.las", *FEW)
    assert one.exit_code == 1
    assert "different units" in one.stderr
    assert "no alignment found" in one.stdout
    assert "Try --resolution" not in one.stderr  # it would not help


def test_known_scale_aligns_scans_of_different_units(files, tmp_path):
    np.save(tmp_path / "mm.npy", 1000 * read_points(files / "a.ply"))
    outputs = (
        "-o",
        tmp_path / "T.json",
        "--aligned",
        tmp_path / "moved.ply",
        "--picture",
        tmp_path / "p.png",
    )
    one = run("register", tmp_path / "mm.npy", files / "b.las", *FEW, "--scale", "0.001", *outputs)
    assert one.exit_code == 0, one.output
    result = json.loads((tmp_path / "T.json").read_text())
    assert np.cbrt(np.linalg.det(np.array(result["T_target_source"])[:3, :3])) == pytest.approx(0.001)
    assert result["scale"] == pytest.approx(0.001, rel=0.02)
    true = transform(read_points(files / "a.ply"), np.load(files / "truth.npy"))
    assert np.linalg.norm(read_points(tmp_path / "moved.ply") - true, axis=1).max() < 0.15


@pytest.mark.parametrize("scale", ["0", "-2", "guess", "nan"])
def test_invalid_scale_is_one_line(files, scale):
    one = run("register", files / "a.ply", files / "b.las", "--scale", scale)
    assert one.exit_code == 2
    assert 'scale: a positive factor is needed, or "estimate"' in one.stderr


@pytest.mark.parametrize(
    "output",
    [("-o", "no/such/folder/T.json"), ("-o", "T.yaml"), ("--aligned", "x.doc"), ("--picture", "p.jpeg")],
)
def test_outputs_are_checked_before_the_work(files, tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    one = run("register", files / "a.ply", files / "b.las", *output)
    assert one.exit_code == 2
    assert one.stderr.startswith("error: ")
    assert not list(tmp_path.iterdir())


def test_input_is_never_overwritten(files):
    before = (files / "a.ply").read_bytes()
    one = run("register", files / "a.ply", files / "b.las", "--aligned", files / "a.ply")
    assert one.exit_code == 2
    assert (files / "a.ply").read_bytes() == before


def test_interrupted_command_leaves_no_files(files, tmp_path, monkeypatch):
    from wsdesc.registration import pipeline

    def interrupt(*scans, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "register", interrupt)
    one = run("register", files / "a.ply", files / "b.las", "-o", tmp_path / "T.json")
    assert (one.exit_code, one.output) == (130, "")
    assert not list(tmp_path.iterdir())
