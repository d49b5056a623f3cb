"""The examples run, and print right results."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name, folder, *arguments):
    script = [sys.executable, EXAMPLES / name, *arguments]
    done = subprocess.run(script, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


@pytest.mark.slow
def test_describe_and_match(tmp_path):
    error = re.search(r"error ([\d.]+)° and ([\d.]+) cm", run("describe_and_match.py", tmp_path))
    assert error
    assert float(error[1]) < 5
    assert float(error[2]) < 10


@pytest.mark.slow
def test_register_pair(tmp_path):
    output = run("register_pair.py", tmp_path)
    assert "success: True True" in output
    assert float(re.search(r"mean error ([\d.]+) mm", output)[1]) < 30


@pytest.mark.slow
def test_train_step(tmp_path):
    losses = [float(x) for x in re.findall(r"loss ([\d.]+)", run("train_step.py", tmp_path, "2"))]
    assert len(losses) == 2
    assert 0 < min(losses) <= max(losses) < 10


@pytest.mark.slow
def test_voxelize_gradient(tmp_path):
    default, exact, differences = map(
        float,
        re.findall(r"derivative ([+-][\d.]+)", run("voxelize_gradient.py", tmp_path)),
    )
    assert exact == pytest.approx(differences, rel=1e-2)
    assert default == pytest.approx(exact, rel=0.1)


def test_all_examples_are_tested():
    tested = Path(__file__).read_text()
    assert all(f'"{script.name}"' in tested for script in EXAMPLES.glob("*.py"))
