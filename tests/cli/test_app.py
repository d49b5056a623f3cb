"""The command `wsdesc`: help, version, errors, signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wsdesc import __version__
from wsdesc.cli import app as cli
from wsdesc.cli import info
from wsdesc.core.errors import InputError

COMMANDS = [
    "register",
    "find",
    "describe",
    "match",
    "reconstruct",
    "add",
    "remove",
    "merge",
    "view",
    "demo",
    "train",
    "distill",
    "pairs",
    "ablate",
    "info",
]


def run(*arguments):
    """Run the command in this process."""
    return CliRunner().invoke(cli.app, list(map(str, arguments)), prog_name="wsdesc")


def run_process(*arguments, **options):
    command = [sys.executable, "-m", "wsdesc", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def test_help_begins_with_examples():
    result = run("--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Examples:\n  wsdesc register")
    assert all(name in result.stdout for name in (*COMMANDS, "benchmark", "--version"))


@pytest.mark.parametrize("command", ["train", "ablate"])
def test_no_training_starts_without_arguments(command):
    result = run(command)
    assert result.exit_code == 2
    assert f"Usage: wsdesc {command} [OPTIONS]" in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_begins_with_its_examples(command):
    assert run(command, "--help").stdout.startswith(f"Examples:\n  wsdesc {command} ")


def test_usage_names_arguments_as_the_text_of_the_help():
    help_text = run("register", "--help").stdout
    usage = next(line for line in help_text.splitlines() if line.startswith("Usage:"))
    assert "SOURCE" in usage
    assert "TARGET" in usage
    assert "pose of SOURCE in the frame of TARGET" in " ".join(help_text.split())
    assert "Missing argument 'TARGET'" in run("register", "a.ply").stderr


def test_module_is_the_command_and_prints_the_version():
    done = run_process("--version")
    assert (done.returncode, done.stdout) == (0, f"wsdesc {__version__}\n")


def test_entry_point_is_the_same_command():
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="wsdesc")
    assert script.load() is cli.main


def test_info_lists_versions_devices_and_weights():
    result = run("info")
    assert result.exit_code == 0, result.stderr
    for part in ("torch", "numba", "voxelization by numba", "weights", "compiled kernels", __version__):
        assert part in result.stdout


def test_info_names_the_install_command_of_a_missing_extra(monkeypatch):
    monkeypatch.setattr(info, "_version", lambda name: None if name == "pye57" else "1.0")
    rows = dict(info._extras())
    assert rows["e57"] == 'not installed: pye57; type: pip install "pye57>=0.4.3,<0.5"'
    assert rows["logs"] == "tensorboard 1.0"
    assert "dev" not in rows


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nonsense"], "No such command 'nonsense'. Help: wsdesc --help"),
        (["--nonsense"], "No such option: --nonsense. Help: wsdesc --help"),
        (["demo", "--seed", "-1"], "--seed"),
        (["demo", "--sed", "1"], "No such option: --sed"),
        (["demo", "--out"], "Option '--out' requires an argument. Help: wsdesc"),
        (["register", "a.ply"], "Missing argument 'TARGET'. Help: wsdesc register --help"),
        (["register", "a.ply", "b.ply", "--keypoints", "2"], "--keypoints: "),
        (["register", "a.ply", "b.ply", "--keypoints", "300,many"], "--keypoints: "),
        (["register", "a.ply", "b.ply", "--solver", "best"], "--solver: 'best' is not one of"),
        (["benchmark", "3dmatch"], "Missing argument 'ROOT'. Help: wsdesc benchmark 3dmatch --help"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_with_2(arguments, line):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {line}")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [*COMMANDS, "benchmark"])
def test_help_has_no_types_of_python(command):
    assert "list[" not in run(command, "--help").stdout


def test_folder_that_cannot_be_written_is_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    for out in ("taken", "taken/below"):
        result = run("demo", "--out", out)
        assert (result.exit_code, result.stdout) == (2, "")
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"error: {out}: ")


def raise_in_info(monkeypatch, error):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(info, "print_table", fail)
    return run("info")


def test_error_is_one_line(monkeypatch):
    result = raise_in_info(monkeypatch, InputError("two\n  lines"))
    assert (result.exit_code, result.output) == (2, "error: two lines\n")


def test_bug_is_not_hidden(monkeypatch):
    assert isinstance(raise_in_info(monkeypatch, ZeroDivisionError()).exception, ZeroDivisionError)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to …")]
)
def test_out_of_memory_is_one_line(monkeypatch, error):
    result = raise_in_info(monkeypatch, error)
    assert result.exit_code == 2
    assert result.output.startswith("error: out of memory")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_the_command_without_a_traceback(tmp_path, number, code):
    process = subprocess.Popen(
        [sys.executable, "-m", "wsdesc", "demo"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs may ignore it
    )
    while not (tmp_path / "demo").exists():  # until the work has started
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ""
    assert "Traceback" not in errors


@pytest.mark.parametrize("command", [[], ["register"], ["benchmark", "eth"]])
def test_h_is_help(command):
    result = run(*command, "-h")
    assert result.exit_code == 0
    assert result.stdout == run(*command, "--help").stdout


@pytest.mark.skipif(os.name == "nt", reason="shell")
@pytest.mark.parametrize("output", [">&-", "> /dev/full"])
def test_output_that_cannot_be_written_gives_no_traceback(output):
    if output == "> /dev/full" and not Path("/dev/full").exists():
        pytest.skip("no such device")
    done = subprocess.run(
        f'"{sys.executable}" -m wsdesc info {output}', shell=True, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if output == ">&-" else 2)
    assert len(done.stderr.splitlines()) <= 1


@pytest.mark.skipif(os.name == "nt", reason="home folder")
def test_home_folder_in_options_of_the_form_that_shells_leave_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    result = run("register", "~/a.ply", "b.ply")
    assert f"{tmp_path / 'a.ply'}: no such file" in result.stderr
    for name in ("a.ply", "b.ply"):
        (tmp_path / name).write_text("")
    result = run("register", tmp_path / "a.ply", tmp_path / "b.ply", "--out=~/no/T.json")
    assert f"the folder {tmp_path / 'no'} does not exist" in result.stderr


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no folder in which nobody can write")
def test_output_folder_that_cannot_be_written_is_an_error_before_the_work(tmp_path):
    for name in ("a.ply", "b.ply"):
        (tmp_path / name).write_text("not a scan")  # which would be the next error
    for option in ("--out=/proc/T.json", "--aligned=/proc/a.ply", "--picture=/proc/a.png"):
        result = run("register", tmp_path / "a.ply", tmp_path / "b.ply", option)
        assert result.exit_code == 2
        assert f"{option.partition('=')[2]}: cannot be written" in result.stderr
