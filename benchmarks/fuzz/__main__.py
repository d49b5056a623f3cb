"""Fuzz readers and say what came of it.

python -m benchmarks.fuzz                           every reader for 10 minutes
python -m benchmarks.fuzz ply laz --seconds 60      these, for a minute each
python -m benchmarks.fuzz --together 60 --seed 1    every reader, a minute in all: what CI does

Exits with 1 if a promise was broken: inputs and tracebacks are then in --out, in a folder for each reader.
With a seed the search begins in the same way each time: CI is to see what a change broke.
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

_START = 300  # seconds that a process may take beyond its own time, to import and to write the seeds
_ENDED = ("crash-*", "timeout-*", "oom-*")  # inputs that ended the process
_COLUMNS = "{:12} {:>9} {:>9} {:>6}  {}"


def main() -> int:
    arguments = _arguments()
    print(_COLUMNS.format("reader", "inputs", "a second", "kept", "broken promises"), flush=True)
    found = sum(
        _fuzz(name, arguments.seconds, arguments.seed, arguments.out / name) for name in arguments.readers
    )
    print(f"{found} broken promises" + (f": see {arguments.out}" if found else ""))
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="benchmarks.fuzz"
    )
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"of {', '.join(READERS)}")
    parser.add_argument("--seconds", type=int, default=600, help="for each reader")
    parser.add_argument("--together", type=int, help="seconds for all readers in one process")
    parser.add_argument("--seed", type=int, default=0, help="of the search; 0 is another one each time")
    parser.add_argument("--out", type=Path, default=Path("results/fuzz"), help="inputs are kept here")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.readers) - READERS.keys())
    if unknown:
        parser.error(f"there is no reader {unknown[0]}")
    if arguments.together:
        arguments.readers, arguments.seconds = ["all"], arguments.together
    arguments.readers = arguments.readers or list(READERS)
    return arguments


def _fuzz(name: str, seconds: int, seed: int, folder: Path) -> int:
    """Fuzz one reader, or all, in a process of its own, or in several where inputs end it; findings."""
    inputs, left = 0, float(seconds)
    while left >= 1:
        start = time.monotonic()
        limits = (str(int(left)), str(seed))
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.fuzz.one", name, *limits, str(folder)],
            capture_output=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
            timeout=left + _START,
            check=False,
        )
        log = done.stderr.decode(errors="replace")
        units = re.findall(r"number_of_executed_units: (\d+)", log)
        if not units:
            raise SystemExit(f"{name}: fuzzing did not begin\n{log[-2000:]}")
        inputs += int(units[-1])
        left = 0 if done.returncode == 0 else left - (time.monotonic() - start)
    found = [*folder.glob("found/*.txt"), *(path for kind in _ENDED for path in folder.glob(kind))]
    kept = sum(1 for _ in (folder / "corpus").iterdir())
    print(_COLUMNS.format(name, inputs, inputs // seconds, kept, len(found)), flush=True)
    for path in found:
        print(f"    {path}: {path.read_text().splitlines()[-1][:200] if path.suffix else 'ends the process'}")
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
