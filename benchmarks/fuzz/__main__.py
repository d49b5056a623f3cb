"""Fuzz the readers and print a table of the findings.

python -m benchmarks.fuzz                           every reader for 10 minutes
python -m benchmarks.fuzz ply laz --seconds 60      two readers, for a minute each
python -m benchmarks.fuzz --together 60 --seed 1    all readers together for a minute, as in CI

Exits with 1 if a guarantee was broken. Inputs and tracebacks are then in --out, in one folder per reader.
With a seed the search starts in the same way each time, so that a failure of CI is due to a change.
Needs the extra `fuzz`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.fuzz.readers import READERS

_STARTUP = 300  # additional seconds for a process to import and to write the seeds
_ABORTS = ("crash-*", "timeout-*", "oom-*")  # inputs that aborted the process
_COLUMNS = "{:12} {:>9} {:>9} {:>6}  {}"


def main() -> int:
    arguments = _arguments()
    print(_COLUMNS.format("reader", "inputs", "per second", "corpus", "broken guarantees"), flush=True)
    findings = sum(
        _fuzz(name, arguments.seconds, arguments.seed, arguments.out / name) for name in arguments.readers
    )
    print(f"{findings} broken guarantees" + (f": see {arguments.out}" if findings else ""))
    return 1 if findings else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="benchmarks.fuzz"
    )
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"any of {', '.join(READERS)}")
    parser.add_argument("--seconds", type=int, default=600, help="time for each reader")
    parser.add_argument("--together", type=int, help="time for all readers in one process, in seconds")
    parser.add_argument("--seed", type=int, default=0, help="seed of the search; 0 differs each time")
    parser.add_argument("--out", type=Path, default=Path("results/fuzz"), help="folder for the inputs")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.readers) - READERS.keys())
    if unknown:
        parser.error(f"there is no reader {unknown[0]}: choose from {', '.join(READERS)}")
    if arguments.together:
        arguments.readers, arguments.seconds = ["all"], arguments.together
    arguments.readers = arguments.readers or list(READERS)
    return arguments


def _fuzz(name: str, seconds: int, seed: int, folder: Path) -> int:
    """Fuzz one reader, or all, in a process that is restarted after aborts; return the number of findings."""
    inputs, left = 0, float(seconds)
    while left >= 1:
        start = time.monotonic()
        limits = (str(int(left)), str(seed))
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.fuzz.worker", name, *limits, str(folder)],
            capture_output=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
            timeout=left + _STARTUP,
            check=False,
        )
        log = done.stderr.decode(errors="replace")
        units = re.findall(r"number_of_executed_units: (\d+)", log)
        if not units:
            raise SystemExit(f"{name}: fuzzing did not start\n{log[-2000:]}")
        inputs += int(units[-1])
        left = 0 if done.returncode == 0 else left - (time.monotonic() - start)
    findings = [*folder.glob("findings/*.txt"), *(path for kind in _ABORTS for path in folder.glob(kind))]
    corpus = sum(1 for _ in (folder / "corpus").iterdir())
    print(_COLUMNS.format(name, inputs, inputs // seconds, corpus, len(findings)), flush=True)
    for path in findings:
        reason = path.read_text().splitlines()[-1][:200] if path.suffix else "aborts the process"
        print(f"    {path}: {reason}")
    return len(findings)


if __name__ == "__main__":
    sys.exit(main())
