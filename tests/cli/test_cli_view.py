"""`wsdesc view`, and `--view` and `--save` of other commands, as a user meets them."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from looking import T_TARGET_SOURCE, apply, corner
from typer.testing import CliRunner

from wsdesc import write_points
from wsdesc.cli.app import app as cli
from wsdesc.cli.view import read_pose
from wsdesc.core.errors import FileFormatError
from wsdesc.datasets.synthetic import room_pair
from wsdesc.reconstruction.pipeline import Reconstruction


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scans")
    write_points(folder / "a.ply", apply(np.linalg.inv(T_TARGET_SOURCE), corner()))
    write_points(folder / "b.ply", corner(seed=1))
    (folder / "T.json").write_text(json.dumps({"T_target_source": T_TARGET_SOURCE.tolist()}))
    return folder


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wsdesc(*arguments):
    return CliRunner().invoke(cli.app, list(map(str, arguments)), prog_name="wsdesc")


class Running:
    """A command that goes on until it is interrupted."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wsdesc", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def address(self):
        """Wait until it says where to look."""
        said = []
        for line in self.process.stderr:
            said.append(line)
            if "look at http" in line:
                return line.split("look at ")[1].split()[0], line
        raise AssertionError("".join(said))

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        out, errors = self.process.communicate(timeout=30)
        return self.process.returncode, out, errors


def test_help_begins_with_examples():
    done = wsdesc("view", "--help")
    assert done.exit_code == 0
    assert done.stdout.startswith("Examples:\n  wsdesc view a.ply b.ply T.json")


def test_a_page_is_saved_that_knows_nothing_of_this_machine(files, tmp_path):
    done = wsdesc(
        "view", files / "a.ply", files / "b.ply", files / "T.json", "--save", tmp_path / "page.html"
    )
    assert done.exit_code == 0, done.output
    assert "all 8,000 points shown" in done.stdout
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "a.ply" in text
    assert str(files) not in text
    assert '"moves":true' in text


def test_the_page_is_served_until_ctrl_c(files, port):
    running = Running("view", files / "a.ply", files / "b.ply", "--port", port)
    address, line = running.address()
    assert address == f"http://localhost:{port}"
    assert "all 8,000 points shown" in line
    with urllib.request.urlopen(address, timeout=20) as answer:
        assert b"<html" in answer.read()
    start = time.monotonic()
    code, out, errors = running.interrupt()
    assert (code, out) == (0, "")
    assert "Traceback" not in errors
    assert time.monotonic() - start < 15
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))  # it is free again


def test_register_tells_the_result_then_shows_it(tmp_path, port):
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
    from wsdesc import reconstruct
    from wsdesc.cli import reconstruct as cli_reconstruct

    paths = {name: files / name for name in ("a.ply", "b.ply")}
    poses = {"a.ply": T_TARGET_SOURCE, "b.ply": np.eye(4)}
    found = Reconstruction(poses, [["b.ply", "a.ply"]], {}, [], 0.1, paths)
    monkeypatch.setattr(reconstruct, "assemble", lambda *given, **options: found)
    monkeypatch.setattr(cli_reconstruct, "report_of", lambda found: "")
    shown = []
    monkeypatch.setattr(cli_reconstruct, "look", lambda scene, port: shown.append(scene))
    out = tmp_path / "model"
    done = wsdesc("reconstruct", *paths.values(), "-o", out, "--view", "--save", out / "page.html")
    assert done.exit_code == 0, done.output
    assert "page.html" in done.stdout
    assert "2 scans placed" in (out / "page.html").read_text(encoding="utf-8")
    assert [len(scene.scans) for scene in shown] == [2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a.ply", "nowhere.ply"], "nowhere.ply: there is no such file"),
        (["a.ply", "b.ply", "nowhere.json"], "nowhere.json: cannot be read"),
        (["a.ply", "b.ply", "bad.json"], "bad.json: holds no pose"),
        (["a.ply", "b.ply", "T.json", "--save", "page.txt"], "page.txt: should end in .html"),
        (["a.ply", "b.ply", "T.json", "--save", "no/page.html"], "no folder"),
        (["a.ply", "b.ply", "--matches", "--save", "page.html"], "name its file"),
        (["a.ply", "b.ply", "--host", "192.0.2.1"], "no page can be served there"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(files, monkeypatch, arguments, says):
    monkeypatch.chdir(files)
    (files / "bad.json").write_text("{")
    done = wsdesc("view", *arguments)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert not (files / "page.html").exists()


@pytest.mark.parametrize(
    "command", [["view"], ["register", "--view"], ["reconstruct", "--view", "-o", "model"]]
)
def test_before_any_work_a_port_in_use_is_said(files, monkeypatch, command):
    monkeypatch.chdir(files)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = wsdesc(*command, "a.ply", "b.ply", "--port", port)
    assert done.exit_code == 2
    assert f"port {port} is in use" in done.stderr
    assert not (files / "model").exists()


def test_without_viser_the_line_to_type_is_said(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)  # as if it were not installed
    done = wsdesc("view", files / "a.ply", files / "b.ply")
    assert done.exit_code == 2
    assert 'pip install "wsdesc[view]"' in done.stderr
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
def test_what_is_no_pose_is_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(FileFormatError, match=f"{name}: holds no pose"):
        read_pose(tmp_path / name)
    (tmp_path / name).write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(FileFormatError, match="holds no pose"):
        read_pose(tmp_path / name)
