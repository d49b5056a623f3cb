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
from wsdesc.reconstruction.result import EdgeResult, Reconstruction
from wsdesc.view.pose_file import read_pose


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scans")
    write_points(folder / "a.ply", transform(corner(), inverse(T_TARGET_SOURCE)))
    write_points(folder / "b.ply", corner(seed=1))
    (folder / "T.json").write_text(json.dumps({"T_target_source": T_TARGET_SOURCE.tolist()}))
    return folder


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
    assert done.stdout.startswith("Examples:\n  wsdesc view a.ply b.ply T.json")


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
        (["a.ply", "b.ply", "--matches", "--save", "page.html"], "needs a pose"),
        (["a.ply", "b.ply", "--host", "192.0.2.1"], "cannot serve a page"),
    ],
)
def test_bad_input_is_one_line_and_exits_with_2(files, monkeypatch, arguments, message):
    monkeypatch.chdir(files)
    (files / "bad.json").write_text("{")
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


def test_without_viser_the_error_names_the_install_command(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)  # imports as if not installed
    done = run("view", files / "a.ply", files / "b.ply")
    assert done.exit_code == 2
    assert 'pip install "viser>=' in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_poses_are_read_from_json_and_text(tmp_path):
    rows = T_TARGET_SOURCE.tolist()
    (tmp_path / "bare.json").write_text(json.dumps(rows))
    np.savetxt(tmp_path / "T.txt", T_TARGET_SOURCE, fmt="%.12g")
    for name in ("bare.json", "T.txt"):
        np.testing.assert_allclose(read_pose(tmp_path / name), rows, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("T.json", '{"confidence": 1}'),
        ("T.json", "null"),
        ("T.json", "[[1, 2], [3]]"),
        ("T.json", "[[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]"),
        ("T.json", '{"T_target_source": "here"}'),
        ("T.json", json.dumps((3 * np.eye(4)).tolist())),
        ("T.txt", "1 0 0 0\n0 1 0 0\n0 0 one 0\n0 0 0 1\n"),
        ("T.txt", ""),
    ],
)
def test_file_without_a_pose_is_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(FileFormatError, match=f"{name}: contains no pose"):
        read_pose(tmp_path / name)
    (tmp_path / name).write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(FileFormatError, match="contains no pose"):
        read_pose(tmp_path / name)
