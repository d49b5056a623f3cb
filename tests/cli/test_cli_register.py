"""`wsdesc register`, `describe` and `match` as a user meets them: files in, a report out, or a clear line."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from wsdesc import read_points, write_points
from wsdesc.cloud.files import read_cloud
from wsdesc.datasets.synthetic import room_pair

FEW = ("--keypoints", "700")


def wsdesc(*arguments, **options):
    command = [sys.executable, "-m", "wsdesc", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A room in two files of different formats, the source turned, with colours and normals."""
    folder = tmp_path_factory.mktemp("scans")
    pair = room_pair(11)
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec([0.5, -1.0, 2.0]).as_matrix()
    T[:3, 3] = [1.0, 2.0, -0.5]
    source = (pair.source - T[:3, 3]) @ T[:3, :3]  # T undone
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
    return wsdesc("register", files / "a.ply", files / "b.las", *FEW, *outputs)


def test_reports_and_exits_with_0(done):
    assert done.returncode == 0, done.stderr
    for part in ("T_target_source", "confidence", "trust it", "overlap", "seconds", "written:"):
        assert part in done.stdout
    assert "NOT" not in done.stdout


def test_pose_file_is_right(done, files):
    found = json.loads((files / "T.json").read_text())
    truth = np.load(files / "truth.npy")
    points = read_points(files / "a.ply")
    T = np.array(found["T_target_source"])
    apart = (points @ T[:3, :3].T + T[:3, 3]) - (points @ truth[:3, :3].T + truth[:3, 3])
    assert np.linalg.norm(apart, axis=1).max() < 0.08
    assert found["success"] is True
    assert set(found) >= {"confidence", "overlap", "rmse", "inliers", "timings", "resolution", "warnings"}


def test_moved_cloud_keeps_its_attributes_and_turns_its_normals(done, files):
    before, after = read_cloud(files / "a.ply"), read_cloud(files / "moved.ply")
    T = np.array(json.loads((files / "T.json").read_text())["T_target_source"])
    np.testing.assert_allclose(after.points, before.points @ T[:3, :3].T + T[:3, 3], atol=1e-4)
    np.testing.assert_array_equal(after.attributes["red"], before.attributes["red"])
    normals = np.stack([after.attributes[name] for name in ("nx", "ny", "nz")], axis=1)
    np.testing.assert_allclose(normals, np.tile(T[:3, 2], (len(normals), 1)), atol=1e-5)


def test_picture_is_drawn(done, files):
    assert (files / "both.png").read_bytes().startswith(b"\x89PNG")


def test_json_on_stdout_and_nothing_else(files, tmp_path):
    one = wsdesc("register", files / "a.ply", files / "b.las", *FEW, "--json", "-o", tmp_path / "T.txt")
    found = json.loads(one.stdout)
    text = np.loadtxt(tmp_path / "T.txt")
    np.testing.assert_allclose(text, found["T_target_source"], atol=1e-9)
    assert found["success"] is True


def test_describe_and_match_in_two_steps(files, tmp_path):
    for name in ("a.ply", "b.las"):
        made = wsdesc("describe", files / name, "-o", tmp_path / f"{name}.npz", "--resolution", 0.03, *FEW)
        assert made.returncode == 0, made.stderr
        assert "700 keypoints" in made.stdout
    matched = wsdesc("match", tmp_path / "a.ply.npz", tmp_path / "b.las.npz", "--json")
    assert matched.returncode == 0, matched.stderr
    truth = np.load(files / "truth.npy")
    np.testing.assert_allclose(json.loads(matched.stdout)["T_target_source"], truth, atol=0.05)


def test_different_rooms_exit_with_1_and_still_report(files, tmp_path):
    write_points(tmp_path / "other.ply", room_pair(77).target)
    one = wsdesc("register", files / "a.ply", tmp_path / "other.ply", *FEW)
    assert one.returncode == 1
    assert "do NOT trust it" in one.stdout
    assert "Traceback" not in one.stderr


def make_bad(folder, kind, good):
    """A file that cannot be registered; returns its path and a word of the error."""
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
def test_bad_input_is_one_line_and_exit_2(files, tmp_path, kind):
    bad, says = make_bad(tmp_path, kind, files / "a.ply")
    one = wsdesc("register", bad, files / "b.las", "-o", tmp_path / "T.json", *FEW)
    assert one.returncode == 2, one.stdout
    lines = [line for line in one.stderr.splitlines() if not line.startswith("wsdesc: compiling")]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert says in lines[0]
    assert not (tmp_path / "T.json").exists()


def test_a_line_of_points_is_not_trusted(tmp_path):
    np.save(tmp_path / "line.npy", np.linspace(0, 5, 3000)[:, None] * [1.0, 2.0, 3.0])
    one = wsdesc("register", tmp_path / "line.npy", tmp_path / "line.npy", *FEW)
    assert one.returncode == 1, one.stderr
    assert "warning:" in one.stderr


def test_whole_numbers_with_duplicates(files, tmp_path):
    """Millimetres rounded to centimetres: many points coincide."""
    for name in ("a.ply", "b.las"):
        np.save(tmp_path / f"{name}.npy", 10 * np.rint(100 * read_points(files / name)).astype(np.int64))
    one = wsdesc("register", tmp_path / "a.ply.npy", tmp_path / "b.las.npy", *FEW, "--json")
    T = np.array(json.loads(one.stdout)["T_target_source"])
    truth = np.load(files / "truth.npy")
    np.testing.assert_allclose(T[:3, :3], truth[:3, :3], atol=0.03)
    np.testing.assert_allclose(T[:3, 3] / 1000, truth[:3, 3], atol=0.06)


def test_some_points_that_are_not_finite_are_counted(files, tmp_path):
    points = read_points(files / "a.ply")
    points[:3] = np.nan
    np.save(tmp_path / "a.npy", points)
    one = wsdesc("register", tmp_path / "a.npy", files / "b.las", *FEW)
    assert one.returncode == 0
    assert "3 points that are not finite" in one.stderr


def test_different_units_are_said(files, tmp_path):
    np.save(tmp_path / "mm.npy", 1000 * read_points(files / "a.ply"))
    one = wsdesc("register", tmp_path / "mm.npy", files / "b.las", *FEW)
    assert one.returncode == 1
    assert "different units" in one.stderr


@pytest.mark.parametrize(
    "output",
    [("-o", "no/such/folder/T.json"), ("-o", "T.yaml"), ("--aligned", "x.doc"), ("--picture", "p.jpeg")],
)
def test_outputs_are_checked_before_the_work(files, tmp_path, output):
    one = wsdesc("register", files / "a.ply", files / "b.las", *output, cwd=tmp_path)
    assert one.returncode == 2
    assert one.stderr.startswith("error: ")
    assert not list(tmp_path.iterdir())


def test_an_input_is_never_overwritten(files):
    before = (files / "a.ply").read_bytes()
    one = wsdesc("register", files / "a.ply", files / "b.las", "--aligned", files / "a.ply")
    assert one.returncode == 2
    assert (files / "a.ply").read_bytes() == before


def test_interrupted_leaves_nothing_behind(files, tmp_path):
    command = [sys.executable, "-m", "wsdesc", "register", str(files / "a.ply"), str(files / "b.las")]
    process = subprocess.Popen(
        [*command, "-o", "T.json"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job may ignore it
    )
    time.sleep(2.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT, 0)
    assert process.returncode == 0 or not list(tmp_path.iterdir())
    assert process.returncode == 0 or "Traceback" not in errors
