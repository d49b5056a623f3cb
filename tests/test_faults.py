"""Killed commands and full disks leave whole files, and the next run gives the same result."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.slow


@pytest.mark.skipif(
    not (ROOT / "benchmarks").is_dir(), reason="the benchmarks are not part of this distribution"
)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, mounts, and reads /proc")
def test_next_run_finishes_the_work_of_a_stopped_one():
    command = [sys.executable, "-m", "benchmarks.faults", "--rounds", "1", "--faults", "kill", "full"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
