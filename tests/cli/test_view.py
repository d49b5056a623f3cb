"""`wsdesc view`, and the options `--view` and `--save` of other commands."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
from typer.testing import CliRunner

from view_helpers import T_TARGET_SOURCE, corner
from wsdesc import write_points
from wsdesc.cli.app import app
from wsdesc.core.errors import FileFormatError
from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.synthetic import room_pair
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.result import Reconstruction
from wsdesc.registration.pose_file import read_pose
from wsdesc.registration.result import Registration


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scans")
    write_points(folder / "a.ply", transform(corner(), inverse(T_TARGET_SOURCE)))
    write_points(folder / "b.ply", corner(seed=1))
    (folder / "T.json").write_text(json.dumps({"T_target_source": T_TARGET_SOURCE.tolist()}))
    return folder


NAN_PLY = """ply
format ascii 1.0
element vertex 1
property float x
property float y
property float z
end_header
nan nan nan
"""


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), prog_name="wsdesc")


class Running:
    """A command that runs until it is interrupted."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wsdesc", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def address(self):
        """Wait for the address of the page; return it with the whole line."""
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if "open http" in line:
                return line.split("open ")[1].split()[0], line
        raise AssertionError("".join(lines))

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        out, errors = self.process.communicate(timeout=30)
        return self.process.returncode, out, errors


def test_help_begins_with_examples():
    done = run("view", "--help")
    assert done.exit_code == 0
    assert done.stdout.startswith("Examples:\n  wsdesc view scan.ply")


def saved(folder, *arguments):
    """Return the text of the page that `wsdesc view` saves, and what it prints."""
    done = run("view", *arguments, "--save", folder / "page.html")
    assert done.exit_code == 0, done.output
    return (folder / "page.html").read_text(encoding="utf-8"), done


def test_one_scan_several_scans_and_a_folder_are_shown(files, tmp_path):
    text, done = saved(tmp_path, files / "a.ply", "--unit", "m")
    assert '"unit":"m"' in text
    assert "all 4,000 points shown" in done.stdout
    assert "size " in text
    text, _ = saved(tmp_path, files / "a.ply", files / "b.ply", files / "a.ply")
    assert "3 scans" in text
    assert '"name":"a.ply (2)"' in text
    assert "scans at the coordinates of their files" in text
    scans = tmp_path / "scans"
    scans.mkdir()
    for name in ("1.ply", "2.ply", "3.ply"):
        write_points(scans / name, corner())
    (scans / "2.ply").write_bytes(b"ply")
    text, done = saved(tmp_path, scans)
    assert "2 scans" in text
    [warning] = done.stderr.splitlines()
    assert warning.startswith("warning: 2.ply is left out: cannot be read as ply: ")


def test_scans_that_can_be_read_are_shown_beside_broken_ones(files, tmp_path):
    for name in ("broken.ply", "worse.ply", "worst.ply"):
        (tmp_path / name).write_bytes(b"nonsense")
    text, done = saved(tmp_path, files / "a.ply", tmp_path / "broken.ply", tmp_path / "worse.ply")
    assert "all 4,000 points shown" in done.stdout
    assert "broken.ply is left out: cannot be read as ply" in done.stderr
    assert str(tmp_path) not in text
    broken = [tmp_path / name for name in ("broken.ply", "worse.ply", "worst.ply")]
    done = run("view", *broken, "--save", tmp_path / "page.html")
    assert done.exit_code == 2
    assert "none of 3 scans can be read" in done.stderr
    assert "worst.ply: cannot be read as ply" in done.stderr


def test_single_point_and_thinned_points_are_said(files, tmp_path):
    write_points(tmp_path / "one.ply", np.zeros((1, 3)))
    _, done = saved(tmp_path, tmp_path / "one.ply")
    assert "its only point is shown" in done.stdout
    _, done = saved(tmp_path, files / "a.ply", "--points", 500)
    assert "of 4,000 points shown" in done.stdout


def test_result_file_is_shown_with_the_scans_that_it_names(files, tmp_path):
    result = Registration(T_TARGET_SOURCE, True, 0.97, 0.5, 0.01, 30, 300, 0.1, ["Check the scale."])
    result.of_files(files / "a.ply", files / "b.ply").save(tmp_path / "result.json")
    text, done = saved(tmp_path, tmp_path / "result.json")
    assert "confidence 0.970 (success)" in text
    assert "30 inliers of 300 matches" in text
    assert "Check the scale." in done.stderr
    assert str(files) not in text
    alone, _ = saved(tmp_path, files / "a.ply", files / "b.ply", tmp_path / "result.json")
    assert alone == text


def test_folder_of_a_reconstruction_is_shown(files, tmp_path, monkeypatch):
    paths = {name: files / name for name in ("a.ply", "b.ply")}
    edge = EdgeResult("a.ply", "b.ply", T_TARGET_SOURCE, 0.99, 0.5, 0, 2000, None, 1.0)
    poses = {"a.ply": T_TARGET_SOURCE, "b.ply": np.eye(4)}
    Reconstruction(poses, [["b.ply", "a.ply"]], {}, [edge], 0.1, paths).save(tmp_path / "model")
    monkeypatch.chdir(tmp_path)  # the files are named relative to the folder
    text, _ = saved(tmp_path, "model")
    assert "all scans are placed in one frame" in text
    assert "1 edges accepted of 1 registered pairs" in text
    graph = json.loads((tmp_path / "model" / "poses.json").read_text())
    graph["files"]["a.ply"] = "gone.ply"
    (tmp_path / "model" / "poses.json").write_text(json.dumps(graph))
    done = run("view", "model", "--save", "page.html")
    assert done.exit_code == 2
    assert "a scan of the reconstruction cannot be read: model/gone.ply: there is no such file" in done.stderr


def test_different_units_are_named(files, tmp_path):
    write_points(tmp_path / "mm.ply", 1000 * corner())
    for others in ([files / "b.ply"], [files / "b.ply", files / "b.ply"]):
        _, done = saved(tmp_path, tmp_path / "mm.ply", *others)
        assert "different units: the extent of b.ply is" in done.stderr


def test_saved_page_has_no_paths_of_this_machine(files, tmp_path):
    done = run("view", files / "a.ply", files / "b.ply", files / "T.json", "--save", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert "all 8,000 points shown" in done.stdout
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "a.ply" in text
    assert str(files) not in text
    assert '"moves":true' in text


@pytest.mark.slow
def test_page_is_served_until_ctrl_c(files, port):
    running = Running("view", files / "a.ply", files / "b.ply", "--port", port)
    address, line = running.address()
    assert address == f"http://localhost:{port}"
    assert "all 8,000 points shown" in line
    with urllib.request.urlopen(address, timeout=20) as answer:
        assert b"<html" in answer.read()
    code, out, errors = running.interrupt()
    assert (code, out) == (0, "")
    assert "Traceback" not in errors
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))  # the port is free again


@pytest.mark.slow
def test_register_prints_the_result_and_serves_the_page(tmp_path, port):
    pair = room_pair(11)
    write_points(tmp_path / "a.ply", pair.source)
    write_points(tmp_path / "b.ply", pair.target)
    page = tmp_path / "page.html"
    running = Running(
        "register", tmp_path / "a.ply", tmp_path / "b.ply", "--keypoints", 700, "--json",
        "--save", page, "--view", "--port", port,
    )  # fmt: skip
    address, _ = running.address()
    assert address.endswith(str(port))
    code, out, errors = running.interrupt()
    assert code == 0
    assert json.loads(out)["success"] is True
    assert "Traceback" not in errors
    text = page.read_text(encoding="utf-8")
    assert '"matches":{' in text
    assert str(tmp_path) not in text


def test_reconstruct_saves_and_shows_all_scans(files, tmp_path, monkeypatch):
    from wsdesc.cli import view
    from wsdesc.reconstruction import pipeline

    paths = {name: files / name for name in ("a.ply", "b.ply")}
    poses = {"a.ply": T_TARGET_SOURCE, "b.ply": np.eye(4)}
    edge = EdgeResult("a.ply", "b.ply", T_TARGET_SOURCE, 0.99, 0.5, 0, 2000, None, 1.0)
    result = Reconstruction(poses, [["b.ply", "a.ply"]], {}, [edge], 0.1, paths)
    monkeypatch.setattr(pipeline, "reconstruct", lambda *arguments, **options: result)
    shown = []
    monkeypatch.setattr(view, "serve_page", lambda scene, port: shown.append(scene))
    out = tmp_path / "model"
    done = run("reconstruct", *paths.values(), "-o", out, "--view", "--save", out / "page.html")
    assert done.exit_code == 0, done.output
    assert "page.html" in done.stdout
    assert "2 scans placed" in (out / "page.html").read_text(encoding="utf-8")
    assert [len(scene.scans) for scene in shown] == [2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.ply", "nowhere.ply"], "nowhere.ply: no such file"),
        (["a.ply", "b.ply", "nowhere.json"], "nowhere.json: no such file"),
        (["a.ply", "b.ply", "bad.json"], "bad.json: contains no pose"),
        (["a.ply", "b.ply", "T.json", "--save", "page.txt"], "page.txt: the name must end in .html"),
        (["a.ply", "b.ply", "T.json", "--save", "no/page.html"], "does not exist"),
        (["a.ply", "b.ply", "--matches", "--save", "page.html"], "--matches needs a pose"),
        (["a.ply", "T.json"], "a pose needs two scans, source and target, found 1"),
        (["T.json"], "T.json: holds a pose, but names no scans. Give them first: wsdesc view SOURCE TARGET"),
        (["a.ply", "b.ply", "T.json", "bad.json"], "2 files with poses were given, at most one"),
        (["empty"], "empty: no scans in this folder"),
        (["broken.ply"], "broken.ply: "),
        (["a.ply", "broken.ply"], "broken.ply: "),
        (["broken.ply", "broken.ply", "broken.ply"], "broken.ply: "),
        (["nan.ply"], "nan.ply: "),
        (["moved.json"], "gone.ply: no such file, named in moved.json. If the scans were moved: wsdesc view"),
        (["nameless.json"], "nameless.json: two scans are needed, and the file names none"),
        (["damaged"], "damaged: not a result that `Reconstruction.save` wrote"),
        (["a.ply", "--up", "north", "--save", "page.html"], "up must be one of auto, x"),
        (["a.ply", "b.ply", "--host", "192.0.2.1"], "cannot serve a page"),
    ],
)
def test_bad_input_is_one_line_and_exits_with_2(files, monkeypatch, arguments, message):
    monkeypatch.chdir(files)
    (files / "bad.json").write_text("{")
    (files / "empty").mkdir(exist_ok=True)
    (files / "broken.ply").write_bytes((files / "a.ply").read_bytes()[:1000])
    (files / "nan.ply").write_text(NAN_PLY)
    (files / "damaged").mkdir(exist_ok=True)
    for name in ("poses.json", "graph.json"):
        (files / "damaged" / name).write_text("{}")
    result = Registration(T_TARGET_SOURCE, True, 0.97, 0.5, 0.01, 30, 300, 0.1)
    result.save("nameless.json")
    result.of_files("a.ply", "gone.ply").save("moved.json")
    done = run("view", *arguments)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not (files / "page.html").exists()


@pytest.mark.parametrize(
    "command", [["view"], ["register", "--view"], ["reconstruct", "--view", "-o", "model"]]
)
def test_port_in_use_is_reported_before_the_work(files, monkeypatch, command):
    monkeypatch.chdir(files)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run(*command, "a.ply", "b.ply", "--port", port)
    assert done.exit_code == 2
    assert f"port {port} is in use" in done.stderr
    assert not (files / "model").exists()


def test_poses_are_read_from_json_and_text(tmp_path):
    rows = T_TARGET_SOURCE.tolist()
    (tmp_path / "bare.json").write_text(json.dumps(rows))
    np.savetxt(tmp_path / "T.txt", T_TARGET_SOURCE, fmt="%.12g")
    for name in ("bare.json", "T.txt"):
        np.testing.assert_allclose(read_pose(tmp_path / name), rows, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("T.json", '{"confidence": 1}', "the key T_target_source is missing"),
        ("T.json", "null", "T_target_source must be a 4 × 4 matrix"),
        ("T.json", "[[1, 2], [3]]", "T_target_source must be a 4 × 4 matrix"),
        ("T.json", "[[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]", "T_target_source must be a 4 × 4 matrix"),
        ("T.json", '{"T_target_source": "here"}', "T_target_source must be a 4 × 4 matrix"),
        ("T.json", json.dumps((3 * np.eye(4)).tolist()), "T_target_source must be a rotation"),
        ("T.json", "[[1, 0,\n0", "invalid JSON in line 2"),
        ("T.json", "", "the file is empty"),
        ("T.txt", "1 0 0 0\n0 1 0 0\n0 0 one 0\n0 0 0 1\n", "line 3 has words that are not numbers"),
        ("T.txt", "# a comment\n", "the file has no numbers"),
    ],
)
def test_file_without_a_pose_is_refused(tmp_path, name, text, reason):
    (tmp_path / name).write_text(text)
    with pytest.raises(FileFormatError, match=f"{name}: contains no pose: {reason}"):
        read_pose(tmp_path / name)
    (tmp_path / name).write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(FileFormatError, match="contains no pose: it is not a text file"):
        read_pose(tmp_path / name)
