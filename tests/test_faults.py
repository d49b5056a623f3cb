"""Commands that are killed, or whose disk is full, leave whole files, and go on to the same result."""

import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).parent.parent / "benchmarks" / "faults.py"


@pytest.mark.skipif(not FAULTS.is_file(), reason="the benchmarks are not part of this distribution")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, mounts, and looks into /proc")
def test_files_are_whole_and_the_next_run_finishes():
    command = [sys.executable, FAULTS, "--rounds", "1", "--faults", "kill", "full"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count(": fine\n") == 6  # train, benchmark and reconstruct, each twice
