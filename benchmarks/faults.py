"""Interrupt train, benchmark and reconstruct at random moments, check their files, and let them continue.

    python -m benchmarks.faults [--rounds 30] [--commands train benchmark reconstruct] [--faults kill full …]

kill: SIGKILL. term: SIGTERM. full: the disk is full (a small tmpfs; where it cannot be mounted, a limit on
the size of files). memory: the address space is limited. Each round starts in an empty folder. After the
fault every file must be complete or absent. After the next run, which is not interrupted, the folder must
have the same content as after an uninterrupted run, without temporary files.

Prints, for each command and fault: the number of rounds, how many were stopped by the fault, and how many had
damaged or different files. The exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.common import make_parser, print_machine, print_rows, run_command
from benchmarks.faults_files import broken, differences, temporary
from benchmarks.faults_work import COMMANDS, prepare, warm_up
from wsdesc.core.errors import InputError

FAULTS = ("kill", "term", "full", "memory")
_DISK_SIZE = 64 << 20  # bytes, enough for all files


Case = tuple[str, str]  # command and fault


class Ended(NamedTuple):
    """How a run ended."""

    code: int  # exit code; negative: signal
    seconds: float
    growth: int  # of the address space, in bytes
    output: str


def start(arguments: list[str], log: Path, limits: dict[int, int]) -> int:
    """Fork a process that runs the command, with libraries and kernels loaded; return its id."""
    output = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    child = os.fork()
    if child:
        os.close(output)
        return child
    code = 3
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        for kind, limit in limits.items():
            resource.setrlimit(kind, (limit, limit))
        sys.argv = ["wsdesc", *arguments]
        from wsdesc.cli.app import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            Path(f"{log}.growth").write_text(str(address_space("VmPeak")))
        finally:
            os._exit(code)  # the child must not continue with the code of its parent


def finish(child: int, log: Path, start_time: float) -> Ended:
    """Wait for a process and describe how it ended."""
    _, status = os.waitpid(child, 0)
    grown = Path(f"{log}.growth")
    growth = int(grown.read_text() or 0) - address_space("VmSize") if grown.exists() else 0
    grown.unlink(missing_ok=True)
    output = log.read_text(errors="replace")
    return Ended(os.waitstatus_to_exitcode(status), time.monotonic() - start_time, growth, output)


def run(arguments: list[str], log: Path, limits: dict[int, int] | None = None) -> Ended:
    """Run a command to its end."""
    start_time = time.monotonic()
    return finish(start(arguments, log, limits or {}), log, start_time)


def address_space(which: str) -> int:
    """Read VmSize or VmPeak of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(which))


class Disk:
    """A folder on a file system whose size can be changed, if one can be mounted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.mounted = self._mount("-t", "tmpfs", "-o", f"size={_DISK_SIZE}", "tmpfs", str(folder))

    def _mount(self, *arguments: str) -> bool:
        if shutil.which("mount") is None:
            return False
        return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0

    def resize(self, size: int) -> None:
        """Change the size, in bytes."""
        self._mount("-o", f"remount,size={max(4096, size)}", str(self.folder))

    def close(self) -> None:
        """Unmount the file system."""
        if self.mounted:
            subprocess.run(["umount", str(self.folder)], check=True)


def inject_fault(fault: str, arguments: list[str], log: Path, disk: Disk, whole: Ended, size: int) -> Ended:
    """Run the command once with one fault at a random moment."""
    moment = random.random()
    if fault in ("kill", "term"):
        start_time = time.monotonic()
        child = start(arguments, log, {})
        time.sleep(moment * whole.seconds)
        os.kill(child, signal.SIGKILL if fault == "kill" else signal.SIGTERM)
        return finish(child, log, start_time)
    if fault == "memory":
        limit = address_space("VmSize") + int(moment * whole.growth)
        return run(arguments, log, {resource.RLIMIT_AS: limit})
    if not disk.mounted:
        return run(arguments, log, {resource.RLIMIT_FSIZE: int(moment * size)})
    disk.resize(int(moment * size))
    try:
        return run(arguments, log)
    finally:
        disk.resize(_DISK_SIZE)


def check_interrupted(fault: str, ended: Ended, out: Path, code: int) -> list[str]:
    """List problems of an interrupted run; `code` is the exit code of a run that finished before."""
    problems = [f"damaged: {name}" for name in broken(out)]
    if fault in ("term", "full"):
        problems += [f"temporary file: {name}" for name in temporary(out)]
    if fault == "full" and (ended.code not in (code, 2) or "Traceback" in ended.output):
        problems.append(f"ended with {ended.code}: {ended.output[-300:]}")
    early = ended.code == -signal.SIGTERM and not ended.output  # the signal handler was not installed yet
    if fault == "term" and ended.code not in (code, 143) and not early:
        problems.append(f"ended with {ended.code}: {ended.output[-300:]}")
    return problems


def one_round(
    fault: str, command: str, data: Path, disk: Disk, reference: Path, whole: Ended
) -> tuple[bool, list[str]]:
    """Interrupt a command, check its files, continue and compare.

    Returns:
        Whether the fault stopped the command, and the problems.
    """
    out, log = disk.folder / "out", data / "log.txt"
    arguments = COMMANDS[command](data, out)
    size = sum(path.stat().st_size for path in reference.rglob("*") if path.is_file())
    try:
        ended = inject_fault(fault, arguments, log, disk, whole, size)
        problems = check_interrupted(fault, ended, out, whole.code)
        again = run(arguments, log)
        if again.code != whole.code:
            problems.append(f"the next run ended with {again.code}: {again.output[-300:]}")
        problems += [f"different: {name}" for name in differences(reference, out)]
        problems += [f"temporary file: {name}" for name in temporary(out)]
        return ended.code != whole.code, problems
    finally:
        shutil.rmtree(out, ignore_errors=True)


def run_reference(command: str, data: Path, disk: Disk) -> tuple[Path, Ended]:
    """Run a command without a fault; return the folder of its files, and how it ended."""
    out, reference = disk.folder / "out", data / f"reference-{command}"
    whole = run(COMMANDS[command](data, out), data / "log.txt")
    if whole.code not in (0, 1) or broken(out):
        raise InputError(f"{command} fails without a fault ({whole.code}): {whole.output} {broken(out)}")
    shutil.move(out, reference)
    return reference, whole


def all_rounds(data: Path, disk: Disk, arguments: argparse.Namespace) -> tuple[Counter[Case], ...]:
    """Count how often each case was run, was stopped by its fault, and had problems; and the problems."""
    prepare(data)
    warm_up(data)
    references = {command: run_reference(command, data, disk) for command in arguments.commands}
    rounds, stopped, bad, failures = Counter[Case](), Counter[Case](), Counter[Case](), Counter[Case]()
    for case in arguments.rounds * list(product(arguments.commands, arguments.faults)):
        command, fault = case
        was_stopped, problems = one_round(fault, command, data, disk, *references[command])
        rounds[case] += 1
        stopped[case] += was_stopped
        bad[case] += bool(problems)
        failures.update((f"{command}, {fault}", problem) for problem in problems)
        print(f"{command}, {fault}, {rounds[case]}: {problems or 'passed'}", file=sys.stderr, flush=True)
    return rounds, stopped, bad, failures


def run_all(arguments: argparse.Namespace) -> tuple[tuple[Counter[Case], ...], bool]:
    """Run all rounds in a temporary folder; return the counts, and whether the disk was a tmpfs."""
    random.seed(arguments.seed)
    torch.set_num_threads(1)  # forked processes have no threads
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder) / "disk")
        try:
            return all_rounds(Path(folder), disk, arguments), disk.mounted
        finally:
            disk.close()


def main(arguments: argparse.Namespace) -> bool:
    (rounds, stopped, bad, failures), mounted = run_all(arguments)
    print_machine()
    print(f"full disk: {'a tmpfs' if mounted else 'a limit on the size of files'}; seed {arguments.seed}")
    header = ["command", "fault", "rounds", "stopped by it", "damaged or different"]
    print_rows([header, *([*case, str(n), str(stopped[case]), str(bad[case])] for case, n in rounds.items())])
    for (case, problem), count in failures.items():
        print(f"{case}: {count} × {problem}")
    return not failures


def parser() -> argparse.ArgumentParser:
    parser = make_parser("faults", __doc__)
    parser.add_argument("--rounds", type=int, default=30, help="per command and fault (default: %(default)s)")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS), help="commands")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=FAULTS, help="faults")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
