"""The command as a user meets it."""

import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from wsdesc import __version__
from wsdesc.cli.app import app as cli
from wsdesc.core import errors


def wsdesc(*arguments, **options):
    command = [sys.executable, "-m", "wsdesc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def test_help_begins_with_examples_and_does_not_wait_for_torch():
    done = wsdesc("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Examples:\n  wsdesc register")
    assert all(name in done.stdout for name in ("info", "demo", "--version"))
    probe = "import sys, wsdesc.cli.app; sys.exit('torch' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe]).returncode == 0


def test_version():
    done = wsdesc("--version")
    assert (done.returncode, done.stdout) == (0, f"wsdesc {__version__}\n")


def test_the_entry_point_is_the_same_command():
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="wsdesc")
    assert script.load() is cli.main


def test_info_tells_backends_extras_and_weights():
    done = wsdesc("info")
    assert done.returncode == 0, done.stderr
    for part in (
        "torch",
        "numba",
        "voxelization by numba",
        "weights in the box",
        "compiled kernels",
        __version__,
    ):
        assert part in done.stdout


def test_info_has_the_line_to_type_for_a_missing_extra(monkeypatch):
    monkeypatch.setattr(cli, "_version", lambda name: None if name == "viser" else "1.0")
    rows = dict(cli._extras())
    assert rows["view"] == 'without viser; type: pip install "wsdesc[view]"'
    assert rows["e57"] == "pye57 1.0"
    assert "dev" not in rows


@pytest.mark.parametrize("arguments", [["nonsense"], ["demo", "--seed", "-1"], ["demo", "--sed", "1"]])
def test_wrong_usage_exits_with_2(arguments):
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 2


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "taken").write_text("a file")
    for out in ("taken", "taken/below"):
        done = wsdesc("demo", "--out", out, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"error: {out}: ")


def test_errors_stay_on_one_line(monkeypatch):
    def fail():
        raise errors.InputError("two\n  lines")

    monkeypatch.setattr(cli, "print_table", lambda *rows: fail())
    result = CliRunner().invoke(cli.app, ["info"])
    assert result.exit_code == 2
    assert result.output == "error: two lines\n"


def test_an_error_of_ours_is_not_hidden(monkeypatch):
    monkeypatch.setattr(cli, "print_table", lambda *rows: 1 / 0)
    assert isinstance(CliRunner().invoke(cli.app, ["info"]).exception, ZeroDivisionError)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to …")]
)
def test_too_little_memory_is_said_in_a_line(monkeypatch, error):
    def fail(*rows):
        raise error

    monkeypatch.setattr(cli, "print_table", fail)
    result = CliRunner().invoke(cli.app, ["info"])
    assert result.exit_code == 2
    assert result.output.startswith("error: this needs more memory")


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it_quietly(tmp_path, number, code):
    command = [sys.executable, "-m", "wsdesc", "demo"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job may ignore it
    )
    while not (tmp_path / "demo").exists():  # the work has begun
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["demo", "info", "pairs", "train"])
def test_help_of_each_command_begins_with_its_examples(command):
    shown = wsdesc(command, "--help").stdout
    assert shown.startswith(f"Examples:\n  wsdesc {command} ")
