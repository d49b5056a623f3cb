"""Errors of files, options, weights and devices are reported before torch is imported."""

import json
import subprocess
import sys

import pytest

from wsdesc.core import devices

# The commands run in one fresh process, which must not have imported torch in the end.
PROBE = """
import json, sys
from typer.testing import CliRunner
from wsdesc.cli.app import app

outputs = []
for arguments in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, arguments)
    outputs.append([result.exit_code, result.stderr, "torch" in sys.modules])
print(json.dumps(outputs))
"""
WITHOUT_GPU = [] if devices._has_gpu_driver() else [
    (["register", "a.ply", "b.ply", "--device", "cuda"], "no CUDA device"),
]  # fmt: skip
COMMANDS = [
    (["--help"], ""),
    (["register", "nofile.ply", "b.ply"], "nofile.ply: no such file"),
    (["register", ".", "b.ply"], "is a folder"),
    (["register", "a.ply", "broken.ply"], "broken.ply"),
    (["register", "a.ply", "notes.docx"], "notes.docx"),
    (["register", "a.ply", "b.ply", "--model", "nosuch"], "nosuch"),
    (["register", "a.ply", "b.ply", "--device", "nonsense"], "nonsense"),
    (["register", "a.ply", "b.ply", "--resolution", "-1"], "resolution"),
    (["register", "a.ply", "b.ply", "-o", "T.yaml"], "T.yaml"),
    (["register", "a.ply", "b.ply", "--viewpoint", "1,2"], "three numbers X,Y,Z or none, not '1,2'"),
    (["register", "a.ply", "b.ply", "--viewpoint", "nan,0,0"], "three numbers"),
    (["register", "a.ply", "b.ply", *3 * ["--viewpoint", "none"]], "given 3 times"),
    (["describe", "a.ply", "-o", "a.npz", "--viewpoint", "here"], "three numbers"),
    (["describe", "nofile.ply", "-o", "a.npz"], "nofile.ply"),
    (["describe", "a.ply", "-o", "a.npz", "--model", "nosuch"], "nosuch"),
    (["match", "nofile.npz", "b.npz"], "nofile.npz"),
    (["reconstruct", "nofolder", "-o", "model"], "nofolder"),
    (["reconstruct", ".", "-o", "model", "--model", "nosuch"], "nosuch"),
    (["reconstruct", ".", "-o", "model", "--device", "nonsense"], "nonsense"),
    (["reconstruct", ".", "-o", "model", "--control", "nofile.csv"], "nofile.csv: cannot be read"),
    (["reconstruct", ".", "-o", "model", "--control", "notes.docx"], "line 1: 1 fields"),
    (["reconstruct", ".", "-o", "model", "--crs", "UTM"], "not a coordinate system"),
    (["reconstruct", ".", "-o", "model", "--merged", "doc"], "not a format"),
    (["reconstruct", ".", "-o", "model", "--prior-sigma", "-1"], "prior_sigma"),
    (["reconstruct", ".", "-o", "model", "--write-scans", "moved"], "in the folder of scans"),
    (["view", "nofile.ply", "b.ply"], "nofile.ply"),
    (["train", ".", "--out", "a.ply"], "a.ply is no folder"),
    (["distill", "indoor", ".", "--out", "a.ply/run"], "a.ply is no folder"),
    (["pairs", ".", "-o", "nofolder/pairs.json"], "nofolder does not exist"),
    (["pairs", ".", "--pairs", "all"], "error: pairs: must be 'order'"),
    (["train", ".", "--pairs", "all"], "error: pairs: must be 'order'"),
    (["view", "a.ply", "b.ply", "--matches", "--save", "page.html"], "--matches"),
    *WITHOUT_GPU,
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scans")
    header = "ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nproperty float y\nproperty float z\n"
    for name in ("a.ply", "b.ply"):
        (folder / name).write_text(header + "end_header\n0 0 0\n1 1 1\n")
    (folder / "broken.ply").write_text(header)
    (folder / "notes.docx").write_text("no scan")
    commands = json.dumps([arguments for arguments, _ in COMMANDS])
    done = subprocess.run(
        [sys.executable, "-c", PROBE, commands], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_command_line_imports_no_heavy_library():
    heavy = "{'torch', 'numba', 'numpy', 'scipy', 'matplotlib', 'rich'}"
    code = f"import sys, wsdesc.cli.app; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=[" ".join(c[0]) for c in COMMANDS])
def test_error_is_reported_before_torch_is_imported(outputs, number):
    message = COMMANDS[number][1]
    code, stderr, torch_imported = outputs[number]
    assert not torch_imported
    assert code == (2 if message else 0), stderr
    assert message in stderr
    if message:
        assert len(stderr.splitlines()) == 1
        assert stderr.startswith("error: ")
